"""Errors of the second factors. The SMS texts are those of the specification, word for word."""

from identity_platform.api import errors
from userflow.errors import PasskeyNotVerified


class UnknownEmail(errors.NotFound):
    """404: no active user has this e-mail address. The specification has this error for TOTP and WebAuthn calls."""

    code = "email_not_found"
    message = "No active user has this e-mail address. Check it, and `tenant_id` if you send one."


class NoProof(errors.NotSignedIn):
    """401: the caller has not proven to be allowed to enroll this factor for this user. Nothing was stored or sent."""

    code = "enrollment_proof_required"
    message = (
        "Sign in first: send an access token of this user that is at most 15 minutes old, or the enrollment ticket of the "
        "user's registration or last sign-in (header X-Enrollment-Ticket or field enrollment_ticket)."
    )


class TokenOfAnotherUser(errors.NotAllowed):
    code = "token_of_another_user"
    message = (
        "Your access token belongs to another user. An administrator cannot enroll a factor for a user: issue an enrollment "
        "pass to a user without a factor (/webauthn/enrollment-passes), or reset the factors (/webauthn/factors/reset)."
    )


class NotForYourself(errors.NotAllowed):
    code = "not_for_yourself"
    message = (
        "You cannot do this for yourself. Remove your own factors one by one at /webauthn/factors/{factor_id}, and enroll "
        "with your own access token."
    )


class PassNotPossible(errors.Conflict):
    code = "enrollment_pass_not_possible"
    message = (
        "This user has a second factor. If it is lost, reset the user's factors (/webauthn/factors/reset): the reset mails "
        "an enrollment pass to the user."
    )


class NotFirstFactor(errors.Conflict):
    """409: the general finishRegistration signs a user in with the first factor only."""

    code = "not_first_factor"
    message = (
        "This user has a second factor. Sign in with it, and add the passkey at /webauthn/enduser/finishRegistration."
    )


class AccountDeletionOff(errors.NotAllowed):
    code = "account_deletion_disabled"
    message = "This tenant does not let users delete their own account. Ask an administrator to delete it."


class PhoneTaken(errors.ApiError):
    code = "phone_taken"
    message = "Phone number already registered"


class PhoneRejected(errors.ValidationFailed):
    """400: not a mobile number, or of a country that the tenant does not send to."""

    code = "phone_rejected"
    message = "This phone number cannot receive codes. See `details`."


class NoPhone(errors.ApiError):
    """400: the user has no phone, or no user has this address. The response is the same for both."""

    code = "phone_not_enrolled"
    message = "No phone is enrolled for this user. Enroll one with sms/beginSetup."


class SecretNotIssued(errors.ApiError):
    code = "secret_not_issued"
    message = "This secret was not issued to this user, or its ten minutes are over. Call beginSetup again."


class TooManyPending(errors.TooManyRequests):
    """429: the user has three unconfirmed secrets. None of them is invalidated for a fourth."""

    code = "too_many_pending_setups"
    message = "Three setups are waiting for confirmation. Confirm one of them, or retry after {retry_after} seconds."


class NotEnrolled(errors.ApiError):
    code = "factor_not_enrolled"
    message = "This factor is not enrolled. Enroll it first with beginSetup and confirmSetup."


class LastFactor(errors.Conflict):
    code = "last_factor"
    message = "A second factor is required here: add another one before you remove this one."


class UnknownFactor(errors.NotFound):
    code = "factor_not_found"
    message = "None of your factors has this id."


class SmsBudgetSpent(errors.TooManyRequests):
    """429: a limit of messages per user, phone number, network address or tenant is reached."""

    code = "sms_limit_reached"
    message = "Too many messages. Retry after the time in `Retry-After`."


class SmsReserved(SmsBudgetSpent):
    code = "sms_reserved"
    message = (
        "The last messages of the day are reserved for callers who prove who they are, for a phone that is enrolled: send "
        "the `mfa_token` of a sign-in or an access token."
    )


class SmsUnavailable(errors.Unavailable):
    """503: the gateway did not take the message, or its counters cannot be read. Nothing was sent."""

    code = "sms_unavailable"
    message = "The message could not be sent. Try again in a moment."


class PasskeyRejected(errors.ApiError):
    """400: the response proves no new passkey of this registration, or the passkey is enrolled already."""

    code = "passkey_rejected"
    message = "This response does not complete the registration. Call beginRegistration again and use its options."


class PasskeyNeedsPassword(PasskeyNotVerified):
    """401: the passkey was enrolled without a proof of the user's own and was not used after the password yet."""

    code = "passkey_needs_password"
    message = "Sign in once with your password and this passkey. After that the passkey signs you in alone."


class NoPasskey(errors.ApiError):
    code = "passkey_not_enrolled"
    message = "No passkey is enrolled for this user. Enroll one with beginRegistration."


class PasskeysElsewhere(NoPasskey):
    """400: the sign-in domain or `webauthn_rp_id` has changed since the user's passkeys were created."""

    code = "passkeys_of_another_domain"
    message = (
        "The passkeys of this user were created for another RP ID and cannot be used with the present one. Use another "
        "factor. They work again when their RP ID is in force again."
    )


class TooManyPasskeys(errors.ApiError):
    code = "too_many_passkeys"
    message = "This user has the maximum number of passkeys. Remove one first."


class NoRelyingParty(errors.ApiError):
    code = "passkeys_not_configured"
    message = (
        "Passkeys are not configured: the tenant needs webauthn_rp_id and webauthn_origins in its settings, the console "
        "CONSOLE_RP_ID and CONSOLE_ORIGINS."
    )
