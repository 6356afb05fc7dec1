"""TOTP over HTTP, for end users and for admin users: the same calls, the latter without a tenant."""

from dataclasses import asdict
from typing import ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import Shape, endpoint
from mfa.errors import LastFactor, NotEnrolled, SecretNotIssued, TooManyPending, UnknownEmail
from mfa.totp import actions, serializers
from mfa.views import ENROLLMENT_ERRORS, NO_STORE, PROOFS, FactorViewSet, with_tokens
from tenants.errors import TenantBusy, TenantMismatch, TenantSuspended, UnknownTenant
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.errors import PROOF_ERRORS, AttemptsLocked, InvalidCode, NotSignedInByTicket
from userflow.sessions.assurance import Action
from userflow.signin.proof_fields import proof_in, without_proof

REALM = [TenantSuspended, TenantBusy, TenantMismatch, UnknownEmail]
TENANCY = [*REALM, UnknownTenant]
SECOND_STEP = [InvalidCode, AttemptsLocked, NotSignedInByTicket]


class TotpEndpoints(FactorViewSet):
    """What both realms do with a valid request."""

    realm: ClassVar[Realm]

    def respond_begin(self, shape: Shape) -> Response:
        asked = self.valid(shape)
        tenant_id = asked.pop("tenant_id", None)
        caller = self.caller(tenant_id, asked.pop("enrollment_ticket", None))
        setup = actions.begin_totp_setup(realm=self.realm, tenant_id=tenant_id, caller=caller, **asked)
        return Response(asdict(setup), headers=NO_STORE)

    def respond_confirm(self, shape: Shape) -> Response:
        asked = self.valid(shape)
        proof, asked = proof_in(asked, but="code"), without_proof(asked, but="code")
        tenant_id = asked.pop("tenant_id", None)
        caller = self.caller(tenant_id, asked.pop("enrollment_ticket", None), proof=proof)
        done = actions.confirm_totp_setup(realm=self.realm, tenant_id=tenant_id, caller=caller, **asked)
        message = "The authenticator is enrolled. Keep the backup codes: they are not shown again."
        body = {"backup_codes": done.backup_codes, "message": message, "success": True}
        return with_tokens(body, done.tokens)

    def respond_verify(self, shape: Shape) -> Response:
        asked = self.valid(shape)
        tenant_id = asked.pop("tenant_id", None)
        done = actions.verify_totp(realm=self.realm, tenant_id=tenant_id, caller=self.caller(tenant_id), **asked)
        tenant = {"tenant_id": tenant_id} if tenant_id is not None else {}
        body = {"email": done.user.email, "message": "The code is right.", "method": done.method, "success": True}
        return with_tokens({**body, **tenant}, done.tokens)

    def respond_disable(self, shape: Shape) -> Response:
        asked = self.valid(shape)
        proof, asked = proof_in(asked), without_proof(asked)
        tenant_id = asked.pop("tenant_id", None)
        actions.disable_totp(realm=self.realm, tenant_id=tenant_id, caller=self.caller(tenant_id, proof=proof), **asked)
        return Response({"message": "The authenticator and its backup codes are removed.", "success": True})

    def respond_regenerate(self, shape: Shape) -> Response:
        asked = self.valid(shape)
        tenant_id = asked.pop("tenant_id", None)
        caller = self.caller(tenant_id)
        codes = actions.regenerate_backup_codes(realm=self.realm, tenant_id=tenant_id, caller=caller, **asked)
        message = "The old backup codes are invalid now. Keep these: they are not shown again."
        return Response({"backup_codes": codes, "message": message, "success": True}, headers=NO_STORE)


class TotpViewSet(TotpEndpoints):
    realm = END_USERS

    @endpoint(
        serializers.TotpSetup,
        returns={200: serializers.TotpBeginOut},
        errors=[*TENANCY, *ENROLLMENT_ERRORS, TooManyPending],
        token="optional",
        any_level=True,
        headers=PROOFS,
        assurance=Action.ADD_FACTOR,
    )
    def begin(self, request: Request) -> Response:
        """Issue a secret for an authenticator app."""
        return self.respond_begin(serializers.TotpSetup)

    @endpoint(
        serializers.TotpConfirm,
        returns={200: serializers.TotpConfirmedOut},
        errors=[*TENANCY, *ENROLLMENT_ERRORS, *PROOF_ERRORS, SecretNotIssued, NotSignedInByTicket],
        token="optional",
        any_level=True,
        headers=PROOFS,
        assurance=(Action.ADD_FACTOR, Action.REPLACE_FACTOR),
    )
    def confirm(self, request: Request) -> Response:
        """Enroll the authenticator with its first code; returns the backup codes once.

        With `mfa_token` it completes the login that waits for a factor and returns its tokens.
        """
        return self.respond_confirm(serializers.TotpConfirm)

    @endpoint(
        serializers.TotpVerify,
        returns={200: serializers.TotpVerifiedOut},
        errors=[*TENANCY, InvalidCode, AttemptsLocked],
        token="optional",
    )
    def verify(self, request: Request) -> Response:
        """Check a code, or use a backup code."""
        return self.respond_verify(serializers.TotpVerify)

    @endpoint(
        serializers.TotpVerifyLogin,
        returns={200: serializers.TotpVerifiedOut},
        errors=[*TENANCY, *SECOND_STEP],
        token="optional",
    )
    def verify_login(self, request: Request) -> Response:
        """Check a code as the second step of a login: with `mfa_token` it returns the login's tokens."""
        return self.respond_verify(serializers.TotpVerifyLogin)

    @endpoint(
        serializers.TotpDisable,
        returns={200: serializers.TotpDoneOut},
        errors=[*TENANCY, *ENROLLMENT_ERRORS, *PROOF_ERRORS, NotEnrolled, LastFactor],
        token="optional",
        assurance=Action.REMOVE_FACTOR,
    )
    def disable(self, request: Request) -> Response:
        """Remove authenticator and backup codes, with a proof in the body."""
        return self.respond_disable(serializers.TotpDisable)

    @endpoint(
        serializers.TotpBegin,
        returns={200: serializers.BackupCodesOut},
        errors=[*TENANCY, *ENROLLMENT_ERRORS, NotEnrolled],
        token="optional",
        assurance=Action.RENEW_BACKUP_CODES,
    )
    def regenerate(self, request: Request) -> Response:
        """Replace the backup codes by new ones."""
        return self.respond_regenerate(serializers.TotpBegin)


class AdminTotpViewSet(TotpEndpoints):
    realm = ADMINS

    @endpoint(
        serializers.AdminTotpSetup,
        returns={200: serializers.TotpBeginOut},
        errors=[*REALM, *ENROLLMENT_ERRORS, TooManyPending],
        token="optional",
        any_level=True,
        headers=PROOFS,
        assurance=Action.ADD_FACTOR,
    )
    def begin(self, request: Request) -> Response:
        """Issue a secret for an admin user's authenticator app."""
        return self.respond_begin(serializers.AdminTotpSetup)

    @endpoint(
        serializers.AdminTotpConfirm,
        returns={200: serializers.TotpConfirmedOut},
        errors=[*REALM, *ENROLLMENT_ERRORS, *PROOF_ERRORS, SecretNotIssued, NotSignedInByTicket],
        token="optional",
        any_level=True,
        headers=PROOFS,
        assurance=(Action.ADD_FACTOR, Action.REPLACE_FACTOR),
    )
    def confirm(self, request: Request) -> Response:
        """Enroll an admin user's authenticator with its first code; with `mfa_token` it completes the waiting login."""
        return self.respond_confirm(serializers.AdminTotpConfirm)

    @endpoint(
        serializers.AdminTotpVerifyLogin,
        returns={200: serializers.AdminTotpVerifiedOut},
        errors=[*REALM, *SECOND_STEP],
        token="optional",
    )
    def verify_login(self, request: Request) -> Response:
        """Check an admin user's code; with `mfa_token` it returns the login's tokens."""
        return self.respond_verify(serializers.AdminTotpVerifyLogin)

    @endpoint(
        serializers.AdminTotpDisable,
        returns={200: serializers.TotpDoneOut},
        errors=[*REALM, *ENROLLMENT_ERRORS, *PROOF_ERRORS, NotEnrolled, LastFactor],
        token="optional",
        assurance=Action.REMOVE_FACTOR,
    )
    def disable(self, request: Request) -> Response:
        """Remove an admin user's authenticator and backup codes, with a proof in the body."""
        return self.respond_disable(serializers.AdminTotpDisable)

    @endpoint(
        serializers.AdminTotpBegin,
        returns={200: serializers.BackupCodesOut},
        errors=[*REALM, *ENROLLMENT_ERRORS, NotEnrolled],
        token="optional",
        assurance=Action.RENEW_BACKUP_CODES,
    )
    def regenerate(self, request: Request) -> Response:
        """Replace the backup codes of an admin user by new ones."""
        return self.respond_regenerate(serializers.AdminTotpBegin)
