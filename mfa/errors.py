"""Errors of the second factors. The SMS texts are the specification's, word for word."""

from identity_platform.api import errors


class UnknownEmail(errors.NotFound):
    """404: no active user has this address here. The specification tells such users apart at TOTP and WebAuthn calls."""

    message = "No active user has this e-mail address here: check it, and tenant_id where one is sent."


class NoProof(errors.NotSignedIn):
    """401: nothing proves that the caller may enrol this factor for this user; nothing was stored or sent."""

    message = (
        "Sign in first: send an access token of this user that is at most 15 minutes old, or the enrollment ticket of the "
        "user's registration or last sign-in (header X-Enrollment-Ticket or field enrollment_ticket)."
    )


class TokenOfAnotherUser(errors.NotAllowed):
    """403: the access token is not this user's. Admins enroll no factor on behalf of a user."""

    message = (
        "Your access token is not this user's. An administrator cannot enroll a factor for a user: issue an enrollment "
        "pass to a user without a factor (/webauthn/enrollment-passes), or reset the factors (/webauthn/factors/reset)."
    )


class OwnFactors(errors.NotAllowed):
    """403: resets and enrollment passes are for other users."""

    message = (
        "This is for other users. Remove your own factors one by one at /webauthn/factors/{factor_id}, and enroll with "
        "your own access token."
    )


class PassNotPossible(errors.Conflict):
    """409: the user has a second factor, or may not enroll one yet."""

    message = (
        "This user has a second factor. If it is lost, reset the user's factors (/webauthn/factors/reset): the reset mails "
        "an enrollment pass to the user."
    )


class NotFirstFactor(errors.Conflict):
    """409: the general finishRegistration signs a user in with the first factor only."""

    message = (
        "This user has a second factor. Sign in with it, and add the passkey at /webauthn/enduser/finishRegistration."
    )


class AccountDeletionOff(errors.NotAllowed):
    """403: the tenant does not let its users delete their own account."""

    message = "This tenant does not let users delete their own account: ask an administrator to delete it."


class InvalidCode(errors.ApiError):
    """400: the code is wrong, used before, or there is none to compare it with."""

    message = "Invalid verification code"


class CodeExpired(errors.NotSignedIn):
    """401: the SMS code was right for five minutes."""

    message = "Verification code has expired"


class AttemptsExceeded(errors.ApiError):
    """400: this SMS code has been tried five times; a new one does not reset the tries of the last 15 minutes."""

    message = "Maximum verification attempts exceeded"


class PhoneTaken(errors.ApiError):
    """400: another user of the tenant has confirmed this number."""

    message = "Phone number already registered"


class PhoneRejected(errors.ValidationFailed):
    """400: not a mobile number, or of a country that the tenant does not send to."""

    message = "This phone number cannot receive codes: see details."


class NoPhone(errors.ApiError):
    """400: no phone is enrolled, or nobody has this address; the same answer for both."""

    message = "No phone is enrolled for this user: enrol one by sms/beginSetup."


class SecretNotIssued(errors.ApiError):
    """400: not a secret that this server issued to this user in the last ten minutes."""

    message = "This secret was not issued to this user, or its ten minutes are over: call beginSetup again."


class TooManyPending(errors.TooManyRequests):
    """429: three unconfirmed secrets stand already; none of them is voided for a fourth."""

    message = "Three setups are open already: confirm one of them, or wait as long as Retry-After says."


class NotEnrolled(errors.ApiError):
    """400: there is no such factor to change."""

    message = "This factor is not enrolled: enrol it first, by beginSetup and confirmSetup."


class LastFactor(errors.Conflict):
    """409: the policy in force requires a second factor, and this is the last one."""

    message = "A second factor is required here: add another one before you remove this one."


class UnknownFactor(errors.NotFound):
    """404: none of the caller's factors has this id."""

    message = "None of your factors has this id."


class SmsBudgetSpent(errors.TooManyRequests):
    """429: a limit of messages per user, phone number, address or tenant."""

    message = "Too many messages: wait as long as Retry-After says."


class SmsReserved(SmsBudgetSpent):
    """429: what is left of the tenant's messages for the day is kept for callers with a proof."""

    message = (
        "The last messages of the day are kept for callers who prove who they are: send the `mfa_token` of a sign-in, an "
        "X-Enrollment-Ticket or an access token."
    )


class SmsUnavailable(errors.Unavailable):
    """503: the message could not be handed over, or its counters cannot be read; nothing was sent."""

    message = "The message could not be sent: try again in a moment."


class PasskeyRejected(errors.ApiError):
    """400: the response proves no new passkey of this registration, or the passkey is enrolled already."""

    message = "This response does not complete the registration: call beginRegistration again and answer its options."


class PasskeyNotVerified(errors.NotSignedIn):
    """401: the response does not prove a passkey of this user, whatever the reason."""

    message = "The passkey could not be verified: call beginAuthentication again and answer its options."


class PasskeyNeedsPassword(PasskeyNotVerified):
    """401: the passkey was enrolled without a proof of the user's own and has not been used after the password yet."""

    message = "Sign in once with your password and this passkey. After that the passkey signs you in alone."


class NoPasskey(errors.ApiError):
    """400: the user has no passkey to authenticate with."""

    message = "No passkey is enrolled for this user: enrol one by beginRegistration."


class TooManyPasskeys(errors.ApiError):
    """400: as many passkeys are enrolled as one user may have."""

    message = "This user has as many passkeys as one may have: remove one first."


class NoRelyingParty(errors.ApiError):
    """400: neither the tenant nor the platform says for which domain passkeys are made."""

    message = (
        "Passkeys are not set up here: the tenant needs webauthn_rp_id and webauthn_origins in its settings, the console "
        "CONSOLE_RP_ID and CONSOLE_ORIGINS."
    )


class RelyingPartyInUse(errors.ValidationFailed):
    """400: the relying party's id cannot change while passkeys exist: each of them would be lost."""

    message = "Passkeys exist for the present webauthn_rp_id: it cannot change before they are removed."
