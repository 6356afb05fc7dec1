"""Errors of userflow: status, code and message of each."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from django.utils.timezone import now

from identity_platform.api import errors
from identity_platform.installation import how_to_install

# The request field that proves each method of a user (`mfa_methods`).
_PROOF_OF_METHOD: Final[Mapping[str, str]] = {
    "webauthn": "response",
    "totp": "code",
    "sms": "sms_code",
    "backup_code": "backup_code",
}


class WrongCredentials(errors.NotSignedIn):
    """401: unknown user, wrong password and inactive user, with the same text and in the same time."""

    code = "credentials_invalid"
    message = (
        "The username, e-mail address or password is wrong, or the user cannot sign in."
        " Check `client_id` too if you send one."
    )


class InsufficientAuthentication(errors.NotSignedIn):
    """401: the session is too old for a sensitive action, or has not proven the user's second factor (RFC 9470)."""

    code = "insufficient_user_authentication"
    audited = True
    challenge = 'Bearer error="insufficient_user_authentication", max_age=900, acr_values="aal2"'
    message = (
        "Recent authentication is required. Call /authmgr/step-up with your password, or with your second factor if you"
        " have one, and repeat the request with the new access token within 15 minutes."
    )


class ClientNotAuthenticated(errors.NotSignedIn):
    """401: sign-in through a confidential client that did not authenticate (RFC 6749 section 5.2, `invalid_client`)."""

    code = "invalid_client"
    challenge = 'Basic realm="clients", charset="UTF-8"'
    message = "Client authentication failed. Send the current secret as `client_secret`; send none for a public client."
    BOUND_ONLY: ClassVar[str] = (
        "This client gets tokens that are bound to a key only. Sign its users in by OpenID Connect."
    )


class DirectSignInDisabled(errors.NotAllowed):
    """403: sign-in by JSON through a client that may not have the whole account of its users."""

    code = "direct_sign_in_disabled"
    message = (
        "This client cannot sign users in by JSON. Send them to the hosted sign-in (OpenID Connect), or let an admin make "
        "the client first-party with `direct_sign_in`."
    )


class FactorRequired(InsufficientAuthentication):
    implied_by = "policy"
    challenge = 'Bearer error="insufficient_user_authentication", acr_values="aal2"'
    message = "A second factor is required. Enroll one if you have none, then sign in again with it."


class EmailNotVerified(errors.NotAllowed):
    code = "email_not_verified"
    implied_by = "policy"
    message = "Verify your e-mail address first. Follow the link in the mail, or request a new one at /uflow/user/email/resend."


class HashersBusy(errors.Unavailable):
    code = "password_check_busy"
    message = "The server is busy checking passwords. Try again in a moment."


class ClientKeysBusy(errors.Unavailable):
    code = "client_keys_busy"
    message = "The server is busy fetching keys of clients. Try again in a moment."


class AssertionsUnavailable(errors.Unavailable):
    code = "client_assertions_unavailable"
    message = "Client assertions cannot be checked at the moment. Try again soon."


class AttemptsLocked(errors.TooManyRequests):
    """429: too many failed attempts at this factor of this user; other users and factors are not locked."""

    code = "attempts_locked"
    message = "Too many failed attempts. Retry after the time in `Retry-After`."


class TooManyFromAddress(errors.TooManyRequests):
    code = "address_rate_limited"
    message = "Too many requests from your IP address. Retry after the time in `Retry-After`."


class AdminNameTaken(errors.Conflict):
    """409: another admin user has this username or e-mail address.

    The message does not tell which of the two: the other user may be an operator or belong to another tenant.
    """

    code = "admin_name_taken"
    message = "This username or e-mail address is already in use. Choose another one."


class EmailTaken(errors.Conflict):
    code = "email_taken"
    message = "A user with this e-mail address already exists. Sign in as that user or use another address."


class ExternalIdTaken(errors.Conflict):
    code = "external_id_taken"
    message = "Another user of this tenant has this external id. Send another one, or change that user first."


class UnknownUser(errors.NotFound):
    code = "user_not_found"
    message = "No user with this id exists in this tenant. Check `user_id`."


class UnknownClient(errors.NotFound):
    code = "client_not_found"
    message = "No client with this id exists in this tenant. Check `client_id`."


class UnknownRole(errors.ApiError):
    code = "role_not_grantable"
    message = "A role does not exist or cannot be granted here. See `details`."


class TooManyNames(errors.ValidationFailed):
    code = "too_many_names"
    message = (
        "One request can use at most 200 different groups and roles."
        " An operator can import larger files with import_users."
    )


class TooManyRows(errors.ValidationFailed):
    code = "too_many_rows"
    message = "One request can import at most 1000 rows. An operator can import larger files with import_users."


class UnknownUsers(errors.NotFound):
    code = "users_not_found"
    message = "Some users do not exist in this tenant. Nothing was changed. See `details`."


class UnknownRoleId(errors.NotFound):
    code = "role_not_found"
    message = "No role with this id exists in this tenant."


class RoleNameTaken(errors.Conflict):
    code = "role_name_taken"
    message = "A role with this name already exists. Choose another name."


class BuiltInRole(errors.NotAllowed):
    code = "built_in_role"
    message = "Built-in roles cannot be deleted or renamed."


class UnknownAdminRole(errors.NotFound):
    code = "admin_role_not_found"
    message = "No role of admin users has this id."


class BuiltInAdminRole(errors.NotAllowed):
    code = "built_in_admin_role"
    message = "Built-in roles cannot be changed or deleted. Create a role of your own."


class AdminRoleInUse(errors.Conflict):
    code = "admin_role_in_use"
    message = (
        "Admin users or pending invitations have this role. Give them other roles or cancel the invitations first."
    )


class UnknownGroup(errors.NotFound):
    code = "group_not_found"
    message = "No group with this id exists in this tenant."


class GroupNameTaken(errors.Conflict):
    code = "group_name_taken"
    message = "A group with this name already exists. Choose another name."


class GrantsMoreThanHeld(errors.NotAllowed):
    code = "grant_exceeds_permissions"
    message = "You cannot grant permissions that you do not hold. Ask an admin who holds them."


class LastAdmin(errors.NotAllowed):
    code = "last_admin"
    message = "The last active admin cannot be deactivated. Create another admin first."


class NotYourself(errors.NotAllowed):
    code = "cannot_deactivate_yourself"
    message = "You cannot deactivate yourself. Ask another admin."


class LastActiveUser(errors.ApiError):
    code = "last_active_user"
    message = "The last active user of a tenant cannot be erased. Register or activate another user first."


class RegistrationClosed(errors.NotSignedIn):
    """401: the client does not allow self-registration; callers with endusers:write can register users."""

    code = "registration_closed"
    message = "Self-registration is disabled for this client. Send an access token with the permission endusers:write."


class ForeignProvider(errors.NotAllowed):
    code = "provider_not_allowed"
    message = (
        "Users can register themselves only with the provider `local`. For other providers, send an access token with the"
        " permission endusers:write."
    )


class WeakPassword(errors.ValidationFailed):
    code = "password_too_weak"
    message = "The password is too weak. See `details`."


class WrongCurrentPassword(errors.ApiError):
    code = "current_password_wrong"
    message = "The current password is wrong."


class FactorNeeded(errors.ApiError):
    """400: a password as the proof of a user who has a second factor; `details` says what to send."""

    code = "factor_required"
    message = "A password is not enough because you have a second factor. Use that factor. See `details`."

    def __init__(self, methods: Iterable[str], *, field: str = "password") -> None:
        fields = [_PROOF_OF_METHOD[method] for method in methods if method in _PROOF_OF_METHOD]
        super().__init__(details={field: [f"Send one of {', '.join(fields)}."]})


class ProofTooNew(errors.ApiError):
    """400: the factor, the backup codes or the password were set after the last verification of the session."""

    code = "proof_too_new"
    message = (
        "This was set up or changed after the session was last verified, so it cannot prove the session yet. Use an older"
        " factor or your password at /authmgr/step-up first, or sign in again."
    )


class ProofTokenInvalid(errors.ApiError):
    code = "proof_token_invalid"
    message = "The proof token is invalid, used or expired. Call /authmgr/step-up to get a new one."


class NoPasswordHere(errors.NotAllowed):
    code = "no_local_password"
    message = "This user has no password on this platform. Change it at the identity provider."


class UserDeactivated(errors.Conflict):
    code = "user_deactivated"
    message = "This user is deactivated. Activate the user first."


class AlreadyVerified(errors.Conflict):
    code = "email_already_verified"
    message = "The e-mail address of this user is verified already, and no new address waits for verification."


class ResetTokenInvalid(errors.ApiError):
    """400: a reset token that is unknown, used, expired or another user's kind."""

    code = "reset_token_invalid"
    message = "The link is invalid or has expired. Request a new one."


class UnknownSession(errors.NotFound):
    """404: no such session, or one that the caller may not see."""

    code = "session_not_found"
    message = "No session with this id exists."


class DefaultClientStays(errors.NotAllowed):
    code = "default_client"
    message = "The default client of a tenant cannot be deleted. Deactivate it instead."


class NoClientSecret(errors.ApiError):
    code = "client_without_secret"
    message = "A client has a secret if it is confidential and does not authenticate with a key."


class PermissionsMissing(errors.InsufficientScope):
    """403 of the validation endpoints: the caller does not hold what was asked for."""

    code = "permissions_missing"
    message = "The token lacks the requested permissions or roles. See `details`."


class NotSignedInByTicket(errors.NotSignedIn):
    """401: a ticket that is unknown, used, expired, revoked after too many attempts, or of another user."""

    code = "ticket_invalid"
    message = "The ticket is invalid or has expired. Sign in again."


class EmailProofInvalid(errors.ApiError):
    """400: a link or code that is unknown, wrong, used or expired; the same for addresses without a user."""

    code = "email_proof_invalid"
    message = "The link or code is invalid or has expired. Request a new one at /uflow/user/email/resend."


class EmailUndoInvalid(errors.ApiError):
    code = "email_undo_invalid"
    message = "The link is invalid or has expired. Ask your administrator if you have lost your account."


class InvitationInvalid(errors.ApiError):
    code = "invitation_invalid"
    message = "The invitation is invalid or has expired. Ask for a new invitation."


class UnknownInvitation(errors.NotFound):
    code = "invitation_not_found"
    message = "No invitation with this id exists in this tenant."


class AlreadyInvited(errors.Conflict):
    code = "already_invited"
    message = "This address has a pending invitation. Resend or cancel it first."

    def __init__(self, invitation_id: UUID | None) -> None:
        super().__init__(details={"invitation_id": str(invitation_id)} if invitation_id else None)


class InvitationClosed(errors.Conflict):
    code = "invitation_closed"
    message = "This invitation has been accepted or cancelled. Create a new one if needed."


class ImportsBusy(errors.Unavailable):
    code = "imports_busy"
    message = "Too many imports are running. Try again in a moment, or use import_users."


class NameServersBusy(errors.Unavailable):
    code = "name_servers_busy"
    message = "Too many DNS lookups are running. Try again in a moment."


class InvalidCode(errors.ApiError):
    """400: the code is wrong or was used before, or the user has no such factor. The text is that of the specification."""

    code = "code_invalid"
    message = "Invalid verification code"


class CodeExpired(errors.NotSignedIn):
    """401: the five minutes of an SMS code are over. The text is that of the specification."""

    code = "code_expired"
    message = "Verification code has expired"


class AttemptsExceeded(errors.ApiError):
    """400: five attempts were made at this SMS code. A new code does not reset the attempts of the last 15 minutes."""

    code = "attempts_exceeded"
    message = "Maximum verification attempts exceeded"


class PasskeyNotVerified(errors.NotSignedIn):
    code = "passkey_not_verified"
    message = "The passkey could not be verified. Call beginAuthentication again and send the response to its options."


# Errors of a request that needs a proof in its body (userflow.signin.proofs); the last four are those of a wrong factor.
PROOF_ERRORS: Final[tuple[type[errors.ApiError], ...]] = (
    InsufficientAuthentication,
    WrongCurrentPassword,
    NoPasswordHere,
    ProofTokenInvalid,
    FactorNeeded,
    ProofTooNew,
    AttemptsLocked,
    TooManyFromAddress,
    HashersBusy,
    InvalidCode,
    AttemptsExceeded,
    CodeExpired,
    PasskeyNotVerified,
)


class UnknownEndpoint(errors.NotFound):
    code = "webhook_endpoint_not_found"
    message = "No webhook endpoint with this id exists in this tenant."


class UnknownMessage(errors.NotFound):
    code = "webhook_message_not_found"
    message = "This endpoint has no message with this number. Sent messages are deleted after some days."


class TooManyEndpoints(errors.Conflict):
    code = "too_many_webhook_endpoints"
    message = "This tenant has reached its maximum number of webhook endpoints. Delete one first."


class EndpointOff(errors.Conflict):
    code = "webhook_endpoint_disabled"
    message = 'This webhook endpoint is disabled. Enable it first with {"enabled": true}.'


class UnknownDomain(errors.NotFound):
    code = "domain_not_found"
    message = "No domain with this id exists in this tenant."


class DomainExists(errors.Conflict):
    code = "domain_exists"
    message = "This tenant has this domain already."


class TooManyDomains(errors.Conflict):
    code = "too_many_domains"
    message = "This tenant has reached its maximum number of domains. Delete one first."


class DomainNotVerified(errors.Conflict):
    """409: the TXT record was not found; `details` says what was."""

    code = "domain_record_not_found"
    message = "The TXT record was not found. Changes of DNS can take an hour: check the record and try again."


class UnknownDirectory(errors.NotFound):
    code = "directory_not_found"
    message = "No directory with this id exists in this tenant."


class DirectoryNameTaken(errors.Conflict):
    """409: another directory of the tenant has this name, in any case."""

    code = "directory_name_taken"
    message = "A directory with this name already exists. Choose another name."


class TooManyDirectories(errors.Conflict):
    code = "too_many_directories"
    message = "This tenant has reached its maximum number of directories. Delete one first."


class DirectoryAddressRejected(errors.ValidationFailed):
    code = "directory_address_rejected"
    message = (
        "This address is private, local or reserved. An operator can allow networks in DIRECTORY_ALLOWED_NETWORKS."
    )

    def __init__(self, field: str = "server") -> None:
        super().__init__(details={field: [self.message]})


class DirectoryBusy(errors.Conflict):
    code = "directory_busy"
    message = "A synchronization of this directory is running. Wait until it has finished."


class DirectoryFailed(errors.ApiError):
    """502: the directory is unreachable, has an invalid certificate, rejects the request or returns an invalid response."""

    status = 502
    code = "directory_failed"
    message = "The directory cannot be reached or returned an invalid response."


class LdapNotInstalled(errors.ApiError):
    status = 501
    code = "ldap_not_installed"
    message = f"LDAP support is not installed. For an operator: {how_to_install('ldap')} and restart the server."


class DirectoriesBusy(errors.Unavailable):
    code = "directories_busy"
    message = "Too many directories are being read. Try again in a moment, or use sync_directory."


class DirectorySecretLocked(errors.Unavailable):
    """503: the stored secret of the directory was altered or belongs to another row."""

    code = "directory_secret_locked"
    message = "The directory's secret cannot be decrypted and must be entered again."


class SigningKeyNotPublished(errors.Unavailable):
    """503: a tenant's key for an algorithm is so new that verifiers may have cached the tenant's keys without it."""

    code = "signing_key_not_published"
    implied_by = "tenant"
    message = (
        "The tenant's key for this algorithm is not published long enough. Try again after the time in Retry-After."
    )

    def __init__(self, algorithm: str, *, signs_from: datetime) -> None:
        seconds = max(1, math.ceil((signs_from - now()).total_seconds()))
        super().__init__(
            f"The tenant's {algorithm} key is new and signs in {seconds} seconds: verifiers may have cached the keys without "
            "it. Try again then.",
            retry_after=seconds,
        )
