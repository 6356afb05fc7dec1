"""TOTP over HTTP, for end users and for admin users: the same calls, the latter without a tenant."""

from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.views import endpoint
from mfa.errors import LastFactor, NotEnrolled, SecretNotIssued, TooManyPending, UnknownEmail
from mfa.totp import actions, serializers
from mfa.views import ENROLLMENT_ERRORS, NO_STORE, PROOFS, FactorViewSet
from tenants.errors import TenantBusy, TenantMismatch, TenantSuspended, UnknownTenant
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.errors import PROOF_ERRORS, AttemptsLocked, InvalidCode, NotSignedInByTicket
from userflow.sessions.assurance import Action
from userflow.signin.proof_fields import proof_in, without_proof

REALM = [TenantSuspended, TenantBusy, TenantMismatch, UnknownEmail]
TENANCY = [*REALM, UnknownTenant]
SECOND_STEP = [InvalidCode, AttemptsLocked, NotSignedInByTicket]


class TotpMechanism(FactorViewSet):
    """What both realms do with a valid request."""

    realm: ClassVar[Realm]

    def whom(self, asked: dict[str, Any], *, proof: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Realm, tenant and proofs for the action; the rest of the members go to it as they are."""
        tenant_id = asked.pop("tenant_id", None)
        caller = self.caller(tenant_id, asked.pop("enrollment_ticket", None), proof=proof)
        return {"realm": self.realm, "tenant_id": tenant_id, "caller": caller, **asked}

    def answer_begin(self, asked: dict[str, Any]) -> Response:
        """200 with the secret, once."""
        setup = actions.begin_totp_setup(**self.whom(asked))
        return Response({name: getattr(setup, name) for name in setup.__slots__}, headers=NO_STORE)

    def answer_confirm(self, asked: dict[str, Any]) -> Response:
        """200 with the backup codes, once."""
        proof = proof_in(asked, but="code")
        done = actions.confirm_totp_setup(**self.whom(without_proof(asked, but="code"), proof=proof))
        message = "The authenticator is enrolled. Keep the backup codes: they are not shown again."
        answer = {"backup_codes": done.backup_codes, "message": message, "success": True}
        return Response({**answer, **(done.tokens.fields() if done.tokens else {})}, headers=NO_STORE)

    def answer_verify(self, asked: dict[str, Any]) -> Response:
        """200 with what was verified, and the tokens of a login that waited for it."""
        place = {"tenant_id": asked["tenant_id"]} if "tenant_id" in asked else {}
        done = actions.verify_totp(**self.whom(asked))
        answer = {
            "email": done.user.email,
            "message": "The code is right.",
            "method": done.method,
            "success": True,
            **place,
        }
        return Response({**answer, **(done.tokens.fields() if done.tokens else {})}, headers=NO_STORE)

    def answer_disable(self, asked: dict[str, Any]) -> Response:
        """200 once it is gone."""
        actions.disable_totp(**self.whom(without_proof(asked), proof=proof_in(asked)))
        return Response({"message": "The authenticator and its backup codes are removed.", "success": True})

    def answer_regenerate(self, asked: dict[str, Any]) -> Response:
        """200 with the new codes, once."""
        codes = actions.regenerate_backup_codes(**self.whom(asked))
        message = "The old backup codes are void. Keep these: they are not shown again."
        return Response({"backup_codes": codes, "message": message, "success": True}, headers=NO_STORE)


class TotpViewSet(TotpMechanism):
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
        return self.answer_begin(self.valid(serializers.TotpSetup))

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
        return self.answer_confirm(self.valid(serializers.TotpConfirm))

    @endpoint(
        serializers.TotpVerify,
        returns={200: serializers.TotpVerifiedOut},
        errors=[*TENANCY, InvalidCode, AttemptsLocked],
        token="optional",
    )
    def verify(self, request: Request) -> Response:
        """Check a code or spend a backup code."""
        return self.answer_verify(self.valid(serializers.TotpVerify))

    @endpoint(
        serializers.TotpVerifyLogin,
        returns={200: serializers.TotpVerifiedOut},
        errors=[*TENANCY, *SECOND_STEP],
        token="optional",
    )
    def verify_login(self, request: Request) -> Response:
        """The same as a login's second step: with `mfa_token` it answers the login's tokens."""
        return self.answer_verify(self.valid(serializers.TotpVerifyLogin))

    @endpoint(
        serializers.TotpDisable,
        returns={200: serializers.TotpDoneOut},
        errors=[*TENANCY, *ENROLLMENT_ERRORS, *PROOF_ERRORS, NotEnrolled, LastFactor],
        token="optional",
        assurance=Action.REMOVE_FACTOR,
    )
    def disable(self, request: Request) -> Response:
        """Remove authenticator and backup codes, with a proof in the body."""
        return self.answer_disable(self.valid(serializers.TotpDisable))

    @endpoint(
        serializers.TotpBegin,
        returns={200: serializers.BackupCodesOut},
        errors=[*TENANCY, *ENROLLMENT_ERRORS, NotEnrolled],
        token="optional",
        assurance=Action.RENEW_BACKUP_CODES,
    )
    def regenerate(self, request: Request) -> Response:
        """New backup codes instead of the old ones, by the user."""
        return self.answer_regenerate(self.valid(serializers.TotpBegin))


class AdminTotpViewSet(TotpMechanism):
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
        return self.answer_begin(self.valid(serializers.AdminTotpSetup))

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
        return self.answer_confirm(self.valid(serializers.AdminTotpConfirm))

    @endpoint(
        serializers.AdminTotpVerifyLogin,
        returns={200: serializers.AdminTotpVerifiedOut},
        errors=[*REALM, *SECOND_STEP],
        token="optional",
    )
    def verify_login(self, request: Request) -> Response:
        """Check an admin user's code; with `mfa_token` it answers the login's tokens."""
        return self.answer_verify(self.valid(serializers.AdminTotpVerifyLogin))

    @endpoint(
        serializers.AdminTotpDisable,
        returns={200: serializers.TotpDoneOut},
        errors=[*REALM, *ENROLLMENT_ERRORS, *PROOF_ERRORS, NotEnrolled, LastFactor],
        token="optional",
        assurance=Action.REMOVE_FACTOR,
    )
    def disable(self, request: Request) -> Response:
        """Remove an admin user's authenticator and backup codes, with a proof in the body."""
        return self.answer_disable(self.valid(serializers.AdminTotpDisable))

    @endpoint(
        serializers.AdminTotpBegin,
        returns={200: serializers.BackupCodesOut},
        errors=[*REALM, *ENROLLMENT_ERRORS, NotEnrolled],
        token="optional",
        assurance=Action.RENEW_BACKUP_CODES,
    )
    def regenerate(self, request: Request) -> Response:
        """New backup codes of an admin user."""
        return self.answer_regenerate(self.valid(serializers.AdminTotpBegin))
