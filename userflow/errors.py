"""Refusals of userflow."""

from identity_platform.api import errors


class WrongCredentials(errors.NotSignedIn):
    """401: unknown, wrong and inactive alike, with the same text and in the same time."""

    message = "Name or password is not right, or the user may not sign in."


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


class UsernameTaken(errors.Conflict):
    """409: another admin user has this username."""

    message = "Another admin user has this username: choose another one."


class EmailTaken(errors.Conflict):
    """409: another user has this e-mail address, in any spelling."""

    message = "A user with this e-mail address exists."


class UnknownUser(errors.NotFound):
    """404: no such user in this tenant."""

    message = "No user has this id in this tenant."


class UnknownClient(errors.NotFound):
    """404: no such client in this tenant."""

    message = "No client has this id in this tenant: check client_id."


class UnknownRole(errors.ApiError):
    """400: a role that does not exist."""

    message = "A role that you name does not exist."


class GrantsMoreThanHeld(errors.NotAllowed):
    """403: nobody grants what they do not hold."""

    message = "You cannot grant permissions that you do not hold yourself."


class LastAdmin(errors.NotAllowed):
    """403: the last active admin of a tenant, or the last operator, stays."""

    message = "The last active admin cannot be deactivated: make another one first."


class NotYourself(errors.NotAllowed):
    """403: nobody deactivates themselves."""

    message = "You cannot deactivate yourself: ask another admin."


class LastActiveUser(errors.ApiError):
    """400: the last active user of a tenant cannot be erased."""

    message = "The last active user of a tenant cannot be erased."


class RegistrationClosed(errors.NotSignedIn):
    """401: the client does not take self-registration; an admin or a client with endusers:write registers users."""

    message = "This client takes no self-registration: send the token of a caller with endusers:write."


class WeakPassword(errors.ValidationFailed):
    """400: the password does not meet the tenant's rules."""

    message = "The password is not strong enough: see details."


class InvalidGrant(errors.OAuthError):
    """400 `invalid_grant` (RFC 6749 section 5.2): the refresh token is unknown, used, expired or revoked."""

    error = "invalid_grant"
    message = "The refresh token is not valid any more: sign in again."


class UnsupportedGrant(errors.OAuthError):
    """400 `unsupported_grant_type` (RFC 6749 section 5.2)."""

    error = "unsupported_grant_type"
    message = "grant_type must be refresh_token."


class NotSignedInByTicket(errors.NotSignedIn):
    """401: a ticket that is unknown, used, expired, worn out or somebody else's."""

    message = "This ticket is not good any more: sign in again."
