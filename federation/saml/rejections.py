"""Why a SAML response is rejected: a closed list, for the log of a connection's attempts."""

from enum import StrEnum
from typing import Final

LONGEST_VALUE: Final = 200


class Reason(StrEnum):
    """The reasons of AssertionRejected. Only the log of attempts shows them; a browser sees one text for all."""

    ALGORITHM_NOT_ALLOWED = "algorithm_not_allowed"
    AUDIENCE_MISMATCH = "audience_mismatch"
    AUTHENTICATION_MISSING = "authentication_missing"
    CERTIFICATE_UNKNOWN = "certificate_unknown"
    CLOCK_SKEW = "clock_skew"
    CONDITION_UNKNOWN = "condition_unknown"
    CONDITIONS_MISSING = "conditions_missing"
    DECRYPTION_FAILED = "decryption_failed"
    DESTINATION_MISMATCH = "destination_mismatch"
    ENCRYPTION_NOT_ALLOWED = "encryption_not_allowed"
    ISSUER_MISMATCH = "issuer_mismatch"
    MALFORMED = "malformed"
    RECIPIENT_MISMATCH = "recipient_mismatch"
    REQUEST_MISMATCH = "request_mismatch"
    SIGNATURE_INVALID = "signature_invalid"
    SIGNATURE_MISSING = "signature_missing"
    STATUS_NOT_SUCCESS = "status_not_success"
    SUBJECT_CONFIRMATION = "subject_confirmation"
    SUBJECT_EMPTY = "subject_empty"
    UNSOLICITED = "unsolicited"


class AssertionRejected(Exception):
    """The response does not sign a user in.

    `expected` and `received` are for the log of attempts: identifiers, times, algorithms and fingerprints, cut to 200
    printable characters, never a subject, an attribute or key material.
    """

    def __init__(self, reason: Reason, *, expected: str = "", received: str = "") -> None:
        self.reason = reason
        self.expected = _printable(expected)
        self.received = _printable(received)
        super().__init__(reason.value)


def _printable(value: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in value[:LONGEST_VALUE])
