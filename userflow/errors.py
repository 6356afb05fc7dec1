"""Errors of userflow."""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from identity_platform.api import errors

# By which field a request proves each method of a user (`mfa_methods`).
_PROOF_OF_METHOD: Final[Mapping[str, str]] = {
    "webauthn": "response",
    "totp": "code",
    "sms": "sms_code",
    "backup_code": "backup_code",
}


class WrongCredentials(errors.NotSignedIn):
    """401: unknown, wrong and inactive alike, with the same text and in the same time."""

    message = "Name or password is not right, or the user may not sign in: check them, and client_id where one is sent."


class InsufficientAuthentication(errors.NotSignedIn):
    """401: the session is too old for a sensitive action, or has not proven the user's second factor (RFC 9470)."""

    code = "insufficient_user_authentication"
    audited = True
    shows_code = True
    challenge = 'Bearer error="insufficient_user_authentication", max_age=900, acr_values="aal2"'
    message = (
        "Prove again that it is you: call /authmgr/step-up with your password, or with your second factor if you have one,"
        " and repeat the call with the new access token. This needs a proof that is at most 15 minutes old."
    )


class ClientNotAuthenticated(errors.NotSignedIn):
    """401: a sign-in through a confidential client that did not authenticate (RFC 6749 section 5.2, `invalid_client`)."""

    code = "invalid_client"
    shows_code = True
    challenge = 'Basic realm="clients", charset="UTF-8"'
    message = (
        "The client did not authenticate. Send its current secret as `client_secret`, and none for a public client."
    )


class FactorRequired(InsufficientAuthentication):
    """401: the policy in force wants a second factor, and this session has not proven one."""

    challenge = 'Bearer error="insufficient_user_authentication", acr_values="aal2"'
    message = "A second factor is required here: enroll one if you have none, then sign in again with it."


class EmailNotVerified(errors.NotAllowed):
    """403: this tenant wants the address proven before the first sign-in."""

    message = "Verify your e-mail address first: follow the link in the mail, or ask for it again at /uflow/user/email/resend."


class HashersBusy(errors.Unavailable):
    """503: as many passwords are being hashed as this server can hash; a moment later there is room."""

    message = "The server is busy checking passwords: try again in a moment."


class AttemptsLocked(errors.TooManyRequests):
    """429: too many wrong tries at this factor; nobody else and nothing else is locked."""

    message = "Too many wrong tries: wait as long as Retry-After says."


class TooManyFromAddress(errors.TooManyRequests):
    """429: a limit of this network address."""

    message = "Too many requests from your address: wait as long as Retry-After says."


class AdminNameTaken(errors.Conflict):
    """409: another admin user has this username or e-mail address. Which of them, and where, is not told: the other one may
    be an operator or another tenant's."""

    message = "This username or e-mail address is taken: choose another one."


class EmailTaken(errors.Conflict):
    """409: another user has this e-mail address, in any spelling."""

    message = "A user with this e-mail address exists: sign in as that one, or use another address."


class UnknownUser(errors.NotFound):
    """404: no such user in this tenant."""

    message = "No user has this id in this tenant: check user_id."


class UnknownClient(errors.NotFound):
    """404: no such client in this tenant."""

    message = "No client has this id in this tenant: check client_id."


class UnknownRole(errors.ApiError):
    """400: a role that does not exist."""

    message = "A role that you name does not exist or cannot be given here: see details."


class TooManyNames(errors.ValidationFailed):
    """400: an import that names more groups and roles than one call looks up or makes."""

    message = (
        "Name at most 200 different groups and roles in one call: an operator imports larger files with import_users."
    )


class TooManyRows(errors.ValidationFailed):
    """400: more rows than one call imports."""

    message = "Send at most 1000 rows in one call: an operator imports larger files with import_users."


class UnknownUsers(errors.NotFound):
    """404: some of the users that are named do not exist in this tenant; nothing was changed."""

    message = "Some of these users do not exist in this tenant, so nothing was changed: see details."


class UnknownRoleId(errors.NotFound):
    """404: no such role in this tenant."""

    message = "No role has this id in this tenant."


class RoleNameTaken(errors.Conflict):
    """409: another role of the tenant has this name, in any case."""

    message = "Another role has this name: choose another one."


class BuiltInRole(errors.NotAllowed):
    """403: a role that every tenant has is neither deleted nor renamed."""

    message = "A built-in role can neither be deleted nor renamed."


class UnknownGroup(errors.NotFound):
    """404: no such group in this tenant."""

    message = "No group has this id in this tenant."


class GroupNameTaken(errors.Conflict):
    """409: another group of the tenant has this name, in any case."""

    message = "Another group has this name: choose another one."


class GrantsMoreThanHeld(errors.NotAllowed):
    """403: nobody grants what they do not hold."""

    message = "You cannot grant permissions that you do not hold yourself: ask an admin who holds them."


class LastAdmin(errors.NotAllowed):
    """403: the last active admin of a tenant, or the last operator, stays."""

    message = "The last active admin cannot be deactivated: make another one first."


class NotYourself(errors.NotAllowed):
    """403: nobody deactivates themselves."""

    message = "You cannot deactivate yourself: ask another admin."


class LastActiveUser(errors.ApiError):
    """400: the last active user of a tenant cannot be erased."""

    message = "The last active user of a tenant cannot be erased: register or activate another one first."


class RegistrationClosed(errors.NotSignedIn):
    """401: the client does not take self-registration; an admin or a client with endusers:write registers users."""

    message = "This client takes no self-registration: send the token of a caller with endusers:write."


class ForeignProvider(errors.NotAllowed):
    """403: users register themselves for the provider `local` only."""

    message = (
        "Only users of the provider local register themselves. Another provider needs a token with endusers:write."
    )


class WeakPassword(errors.ValidationFailed):
    """400: the password does not meet the tenant's rules."""

    message = "The password is not strong enough: see details."


class MailBusy(errors.Unavailable):
    """503: more mails wait to be sent than this server keeps."""

    message = "Too many mails wait to be sent: try again in a moment."


class WrongCurrentPassword(errors.ApiError):
    """400: a change of password that does not state the present one."""

    message = "The current password is not right."


class FactorNeeded(errors.ApiError):
    """400: a step-up by password of a user who has a second factor; `details` says what to send."""

    message = "You have a second factor: prove the session with it, not with your password. See details."

    def __init__(self, methods: Iterable[str]) -> None:
        fields = [_PROOF_OF_METHOD[method] for method in methods if method in _PROOF_OF_METHOD]
        super().__init__(details={"password": [f"Send one of {', '.join(fields)}."]})


class ProofTokenInvalid(errors.ApiError):
    """400: a proof token that is unknown, used, expired, or of another session."""

    message = "This proof token is used, expired or of another session: call /authmgr/step-up for a new one."


class NoPasswordHere(errors.NotAllowed):
    """403: the user signs in elsewhere (directory, another provider), so there is no password to change."""

    message = "This user has no password on this platform: change it where you sign in."


class ResetTokenInvalid(errors.ApiError):
    """400: a reset token that is unknown, used, expired or another user's kind."""

    message = "This link is not good any more: ask for a new one."


class UnknownSession(errors.NotFound):
    """404: no such session that the caller may know of."""

    message = "No session has this id."


class DefaultClientStays(errors.NotAllowed):
    """403: every tenant keeps its default client."""

    message = "The default client of a tenant cannot be deleted: deactivate it if nobody shall use it."


class NoClientSecret(errors.ApiError):
    """400: a public client has no secret."""

    message = "A public client has no secret."


class PermissionsMissing(errors.InsufficientScope):
    """403 of the validation endpoints: the caller does not hold what was asked for."""

    message = "The token does not carry what was asked for: see details."


class InvalidClient(errors.OAuthError):
    """401 `invalid_client` (RFC 6749 section 5.2): unknown, wrong and inactive alike."""

    status = 401
    error = "invalid_client"
    message = "The client is unknown, inactive or did not prove who it is."

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message, headers={"WWW-Authenticate": 'Basic realm="clients", charset="UTF-8"'})


class InvalidRequest(errors.OAuthError):
    """400 `invalid_request` (RFC 6749 section 5.2)."""


class InvalidScope(errors.OAuthError):
    """400 `invalid_scope` (RFC 6749 section 5.2): more than the client or the user holds."""

    error = "invalid_scope"
    message = "The scope is malformed or goes beyond what the client holds."


class UnauthorizedClient(errors.OAuthError):
    """400 `unauthorized_client` (RFC 6749 section 5.2): the client is known but may not do this."""

    error = "unauthorized_client"
    message = "This client may not do this."


class InvalidGrant(errors.OAuthError):
    """400 `invalid_grant` (RFC 6749 section 5.2): the refresh token is unknown, used, expired or revoked."""

    error = "invalid_grant"
    message = "The refresh token is not valid any more: sign in again."


class UnsupportedGrant(errors.OAuthError):
    """400 `unsupported_grant_type` (RFC 6749 section 5.2)."""

    error = "unsupported_grant_type"
    message = "grant_type must be client_credentials or refresh_token."


class NotSignedInByTicket(errors.NotSignedIn):
    """401: a ticket that is unknown, used, expired, worn out or somebody else's."""

    message = "This ticket is not good any more: sign in again."


class EmailProofInvalid(errors.ApiError):
    """400: a link or code that is unknown, wrong, used up or expired; alike for addresses that nobody has."""

    message = "This link or code is not good any more: ask for another one at /uflow/user/email/resend."


class EmailUndoInvalid(errors.ApiError):
    """400: a link that is unknown, used or expired."""

    message = "The link is invalid or has expired. Ask your administrator if you have lost your account."


class InvitationInvalid(errors.ApiError):
    """400: an invitation that is unknown, accepted, cancelled or expired."""

    message = "This invitation is not good any more: ask whoever invited you for another one."


class UnknownInvitation(errors.NotFound):
    """404: no such invitation in this tenant."""

    message = "No invitation has this id in this tenant."


class AlreadyInvited(errors.Conflict):
    """409: the address has an open invitation of this kind in this tenant; `details` has its id."""

    message = "This address has an open invitation. Resend that one, or cancel it first."

    def __init__(self, invitation_id: UUID | None) -> None:
        super().__init__(details={"invitation_id": str(invitation_id)} if invitation_id else None)


class InvitationClosed(errors.Conflict):
    """409: an invitation that was accepted or cancelled is neither sent again nor cancelled."""

    message = "This invitation is accepted or cancelled: make a new one if you need to."


class UnknownDirectory(errors.NotFound):
    """404: no such directory configuration in this tenant."""

    message = "No directory has this id in this tenant."


class DirectoryNameTaken(errors.Conflict):
    """409: another directory of the tenant has this name, in any case."""

    message = "Another directory has this name: choose another one."


class TooManyDirectories(errors.Conflict):
    """409: the tenant has as many directories as it may have."""

    message = "This tenant has as many directories as it may have: delete one that you do not need."


class DirectoryAddressRejected(errors.ValidationFailed):
    """400: the server is this machine, or stands in a network that the platform is not let into."""

    def __init__(self, field: str = "server") -> None:
        says = "This address is private, local or reserved: an operator allows networks in DIRECTORY_ALLOWED_NETWORKS."
        super().__init__(says, details={field: [says]})


class DirectoryBusy(errors.Conflict):
    """409: another run of this directory has not ended."""

    message = "This directory is being synchronised at the moment: wait until that run has ended."


class DirectoryFailed(errors.ApiError):
    """502: the directory cannot be reached, does not prove who it is, rejects us or answers nonsense."""

    status = 502
    code = "BAD_GATEWAY"
    message = "The directory did not answer as it should."


class LdapNotInstalled(errors.ApiError):
    """501: this installation reads no LDAP directories, as the package for it is not installed."""

    status = 501
    code = "NOT_IMPLEMENTED"
    message = "This server reads no LDAP directories: an operator installs requirements-ldap.txt and starts it again."


class DirectoriesBusy(errors.Unavailable):
    """503: as many requests wait for directories as this server lets wait."""

    message = "The server is reading as many directories as it can: try again in a moment, or use sync_directory."


class ImportsBusy(errors.Unavailable):
    """503: as many requests bring people in as this server lets do so at once."""

    message = "The server is bringing in as many people as it can: try again in a moment, or use import_users."


class NameServersBusy(errors.Unavailable):
    """503: as many requests wait for name servers as this server lets wait."""

    message = "The server is looking up as many names as it can: try again in a moment."


class DirectorySecretLocked(errors.Unavailable):
    """503: the stored secret of the directory was altered or belongs to another row; it must be entered again."""

    message = "The directory's secret cannot be decrypted and must be entered again."


class UnknownEndpoint(errors.NotFound):
    """404: no such webhook endpoint in this tenant."""

    message = "No webhook endpoint has this id in this tenant."


class TooManyEndpoints(errors.Conflict):
    """409: the tenant has as many webhook endpoints as it may have."""

    message = "This tenant has as many webhook endpoints as it may have: delete one that you do not need."


class EndpointOff(errors.Conflict):
    """409: the webhook endpoint is switched off, so nothing is sent to it."""

    message = 'This webhook endpoint is switched off: switch it on with {"enabled": true} first.'


class InvalidCode(errors.ApiError):
    """400: the code is wrong or was used before, or the user has no such factor. The text is that of the specification."""

    message = "Invalid verification code"


class CodeExpired(errors.NotSignedIn):
    """401: the five minutes of an SMS code are over. The text is that of the specification."""

    message = "Verification code has expired"


class AttemptsExceeded(errors.ApiError):
    """400: five attempts were made at this SMS code. A new code does not reset the attempts of the last 15 minutes."""

    message = "Maximum verification attempts exceeded"


class PasskeyNotVerified(errors.NotSignedIn):
    """401: the response does not prove a passkey of this user."""

    message = "The passkey could not be verified: call beginAuthentication again and send the response to its options."


# Errors of a request that needs a proof in its body (userflow.signin.proofs); the last four are those of a wrong factor.
PROOF_ERRORS: Final[tuple[type[errors.ApiError], ...]] = (
    InsufficientAuthentication,
    WrongCurrentPassword,
    NoPasswordHere,
    ProofTokenInvalid,
    AttemptsLocked,
    TooManyFromAddress,
    HashersBusy,
    InvalidCode,
    AttemptsExceeded,
    CodeExpired,
    PasskeyNotVerified,
)
