"""TOTP over HTTP, for end users and for admin users: the same calls, the latter without a tenant."""

from dataclasses import asdict

from rest_framework.request import Request
from rest_framework.response import Response

from identity_platform.api.responses import NO_STORE
from identity_platform.api.views import endpoint
from mfa.enrollment import ENROLLING
from mfa.errors import LastFactor, NotEnrolled, SecretNotIssued, TooManyPending, UnknownEmail
from mfa.serializers import AdminEnrollmentIn, SuccessOut
from mfa.totp import actions, serializers
from mfa.views import (
    ENROLLING_BY_TOKEN,
    ENROLLMENT_ERRORS,
    FactorViewSet,
    enrollment_endpoint,
    for_admins,
    verified_code,
    with_tokens,
)
from tenants.errors import TenantBusy, TenantMismatch, TenantSuspended, UnknownTenant
from userflow.accounts.realms import ADMINS
from userflow.errors import (
    PROOF_ERRORS,
    AttemptsLocked,
    ClientNotAuthenticated,
    DirectSignInDisabled,
    InvalidCode,
    NotSignedInByTicket,
    TooManyFromAddress,
)
from userflow.sessions.assurance import Action

TENANCY = [TenantSuspended, TenantBusy, TenantMismatch, UnknownEmail, UnknownTenant, TooManyFromAddress]


class TotpViewSet(FactorViewSet):
    @enrollment_endpoint(
        serializers.TotpSetup,
        id="beginTotpSetup",
        returns={200: serializers.TotpSetupOut},
        errors=[*TENANCY, *ENROLLMENT_ERRORS, TooManyPending],
        assurance=ENROLLING,
    )
    def begin(self, request: Request) -> Response:
        """Get a secret for an authenticator app.

        The secret can be confirmed for ten minutes. Needs a proof of the user: an access token, an enrollment ticket,
        or a registration or sign-in in the last minutes.
        """
        setup = actions.begin_totp_setup(realm=self.realm, **self.arguments())
        return Response(asdict(setup), headers=NO_STORE)

    @enrollment_endpoint(
        serializers.TotpConfirm,
        id="confirmTotpSetup",
        returns={200: serializers.TotpConfirmationOut},
        errors=[
            *TENANCY,
            *ENROLLMENT_ERRORS,
            *ENROLLING_BY_TOKEN,
            SecretNotIssued,
            NotSignedInByTicket,
            ClientNotAuthenticated,
            DirectSignInDisabled,
        ],
        assurance=ENROLLING,
    )
    def confirm(self, request: Request) -> Response:
        """Enroll an authenticator app with its first code.

        Returns the backup codes once. With an access token the body needs a proof: the password for the first factor,
        a factor for a further one. With `mfa_token` it completes the sign-in that waits for a factor and returns its
        tokens.
        """
        done = actions.confirm_totp_setup(realm=self.realm, **self.arguments(with_proof=True, but="code"))
        message = "The authenticator is enrolled. Keep the backup codes: they are not shown again."
        body = {"backup_codes": done.backup_codes, "message": message, "success": True}
        return with_tokens(body, done.signed_in)

    @endpoint(
        serializers.TotpVerify,
        id="verifyTotp",
        returns={200: serializers.TotpVerificationOut},
        errors=[*TENANCY, InvalidCode, AttemptsLocked, ClientNotAuthenticated, DirectSignInDisabled],
        token="optional",
    )
    def verify(self, request: Request) -> Response:
        """Check a code, or use a backup code.

        It only says whether the code is right. Each code is accepted once; wrong codes lock the factor for a while
        (429).
        """
        return self._verify()

    @endpoint(
        serializers.TotpVerifyLogin,
        id="verifyTotpLogin",
        returns={200: serializers.TotpVerificationOut},
        errors=[
            *TENANCY,
            InvalidCode,
            AttemptsLocked,
            NotSignedInByTicket,
            ClientNotAuthenticated,
            DirectSignInDisabled,
        ],
        token="optional",
    )
    def verify_login(self, request: Request) -> Response:
        """Complete a sign-in with a code or a backup code.

        With `mfa_token` it returns the tokens of the sign-in. Wrong codes lock the factor for a while (429).
        """
        return self._verify()

    def _verify(self) -> Response:
        arguments = self.arguments()
        done = actions.verify_totp(realm=self.realm, **arguments)
        return verified_code(done, tenant_id=arguments["tenant_id"])

    @endpoint(
        serializers.TotpDisable,
        id="disableTotp",
        returns={200: SuccessOut},
        errors=[*TENANCY, *ENROLLMENT_ERRORS, *PROOF_ERRORS, NotEnrolled, LastFactor],
        token="optional",
        assurance=Action.REMOVE_FACTOR,
    )
    def disable(self, request: Request) -> Response:
        """Remove the authenticator app and the backup codes.

        Needs a proof in the body. The last factor cannot be removed if the tenant requires one.
        """
        actions.disable_totp(realm=self.realm, **self.arguments(with_proof=True))
        return Response({"message": "The authenticator and its backup codes are removed.", "success": True})

    @endpoint(
        serializers.TotpDisable,
        id="regenerateBackupCodes",
        returns={200: serializers.NewBackupCodesOut},
        errors=[*TENANCY, *ENROLLMENT_ERRORS, *ENROLLING_BY_TOKEN, NotEnrolled],
        token="optional",
        assurance=Action.RENEW_BACKUP_CODES,
    )
    def regenerate(self, request: Request) -> Response:
        """Replace the backup codes.

        Needs a proof in the body by a factor: the password is not enough. The old codes become invalid; the new ones are
        shown once.
        """
        codes = actions.regenerate_backup_codes(realm=self.realm, **self.arguments(with_proof=True))
        message = "The old backup codes are invalid now. Keep these: they are not shown again."
        return Response({"backup_codes": codes, "message": message, "success": True}, headers=NO_STORE)


class AdminTotpViewSet(TotpViewSet):
    realm = ADMINS

    begin = for_admins(
        TotpViewSet.begin,
        "beginAdminTotpSetup",
        "Get a secret for an admin user's authenticator app.\n"
        "The secret can be confirmed for ten minutes. Needs a proof of the user: an access token, an enrollment "
        "ticket, or a sign-in in the last minutes.",
        AdminEnrollmentIn,
    )
    confirm = for_admins(
        TotpViewSet.confirm,
        "confirmAdminTotpSetup",
        "Enroll an admin user's authenticator app with its first code.\n"
        "Returns the backup codes once. With an access token the body needs a proof: the password for the first factor, "
        "a factor for a further one. With `mfa_token` it completes the sign-in that waits for a factor and returns its "
        "tokens.",
        serializers.AdminTotpConfirm,
    )
    verify_login = for_admins(
        TotpViewSet.verify_login,
        "verifyAdminTotpLogin",
        "Complete an admin user's sign-in with a code or a backup code.\n"
        "With `mfa_token` it returns the tokens of the sign-in; without, it only says whether the code is right.",
        serializers.AdminTotpVerifyLogin,
        returns=serializers.AdminTotpVerificationOut,
    )
    disable = for_admins(
        TotpViewSet.disable,
        "disableAdminTotp",
        "Remove an admin user's authenticator app and backup codes.\n"
        "Needs a proof in the body. The last factor cannot be removed if one is required.",
        serializers.AdminTotpDisable,
    )
    regenerate = for_admins(
        TotpViewSet.regenerate,
        "regenerateAdminBackupCodes",
        "Replace the backup codes of an admin user.\n"
        "Needs a proof in the body by a factor: the password is not enough. The old codes become invalid; the new ones "
        "are shown once.",
        serializers.AdminTotpDisable,
    )
