"""Why a sign-in through an identity provider fails. The closed list of reasons is that of a connection's attempts."""

from enum import StrEnum
from typing import Final

from userflow.sessions.foreign_tokens import ForeignTokenInvalid

LONGEST_VALUE: Final = 300


class Reason(StrEnum):
    """The reason of a failed attempt. Those about tokens have the values of `TokenProblem`."""

    # Calls to the provider.
    ADDRESS_NOT_ALLOWED = "address_not_allowed"
    NAME_NOT_RESOLVED = "name_not_resolved"
    TIMED_OUT = "timed_out"
    TLS_FAILED = "tls_failed"
    CONNECTION_FAILED = "connection_failed"
    REDIRECTED = "redirected"
    STATUS_UNEXPECTED = "status_unexpected"
    RESPONSE_TOO_LONG = "response_too_long"
    RESPONSE_NOT_JSON = "response_not_json"
    RESPONSE_INVALID = "response_invalid"
    SERVER_BUSY = "server_busy"
    # Discovery and keys.
    METADATA_ISSUER_MISMATCH = "metadata_issuer_mismatch"
    METADATA_INVALID = "metadata_invalid"
    KEYS_INVALID = "keys_invalid"
    # The callback.
    CALLBACK_INVALID = "callback_invalid"
    STATE_MISMATCH = "state_mismatch"
    CALLBACK_ISSUER_MISMATCH = "callback_issuer_mismatch"
    ACCESS_DENIED = "access_denied"
    PROVIDER_ERROR = "provider_error"
    # The token request.
    TOKEN_ENDPOINT_CHANGED = "token_endpoint_changed"
    TOKEN_REQUEST_REJECTED = "token_request_rejected"
    CREDENTIAL_INVALID = "credential_invalid"
    # ID tokens and logout tokens.
    TOKEN_FORMAT = "token_format"
    TOKEN_TYPE = "token_type"
    ALGORITHM_NOT_ALLOWED = "algorithm_not_allowed"
    HEADER_NOT_ALLOWED = "header_not_allowed"
    KEY_UNKNOWN = "key_unknown"
    SIGNATURE_INVALID = "signature_invalid"
    ISSUER_MISMATCH = "issuer_mismatch"
    AUDIENCE_MISMATCH = "audience_mismatch"
    AUTHORIZED_PARTY_MISMATCH = "authorized_party_mismatch"
    CLAIM_MISSING = "claim_missing"
    TOKEN_EXPIRED = "token_expired"
    CLOCK_SKEW = "clock_skew"
    NONCE_MISMATCH = "nonce_mismatch"
    SUBJECT_EMPTY = "subject_empty"
    SUBJECT_INVALID = "subject_invalid"
    ACCESS_TOKEN_HASH_MISMATCH = "access_token_hash_mismatch"
    AUTHENTICATION_TOO_OLD = "authentication_too_old"
    LOGOUT_EVENT_MISSING = "logout_event_missing"
    LOGOUT_NONCE_PRESENT = "logout_nonce_present"
    TOKEN_ID_INVALID = "token_id_invalid"
    # The identity.
    SUBJECT_MISMATCH = "subject_mismatch"
    ORGANIZATION_NOT_ALLOWED = "organization_not_allowed"


class UpstreamError(Exception):
    """The provider proves no identity. `expected` and `received` are for the connection's log and contain no secret."""

    def __init__(self, reason: Reason, *, expected: object = "", received: object = "") -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.expected = _loggable(expected)
        self.received = _loggable(received)

    @classmethod
    def of_token(cls, problem: ForeignTokenInvalid) -> "UpstreamError":
        """Return the error for a token that was rejected."""
        return cls(Reason(problem.problem.value), expected=problem.expected, received=problem.received)


def _loggable(value: object) -> str:
    """Return a value as text of bounded length that every log and column takes: without NUL and lone surrogates."""
    return "".join(character if character.isprintable() else "\ufffd" for character in str(value)[:LONGEST_VALUE])
