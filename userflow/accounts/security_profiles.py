"""Security profiles of clients (FAPI 2.0): what a profile demands of settings, algorithms, assertions, tokens and messages.

The settings hold because every write of a client is checked (`clients.registration.missing_settings`). The endpoints ask the
profile for what no field of a client says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Demand:
    """The value that a field of the client has to have, and what to do about another one."""

    value: object
    problem: str
    # Other values that do as well, and another field that does when it is true.
    others: tuple[object, ...] = ()
    unless: str = ""

    def is_met(self, value: object, *, alternative: object = None) -> bool:
        """Return whether a field with this value meets the demand. `alternative` is the value of the field `unless`."""
        return value == self.value or value in self.others or bool(alternative)


@dataclass(frozen=True, slots=True)
class SecurityProfile:
    """What a profile demands. The defaults demand nothing."""

    # By the field of the client.
    settings: Mapping[str, Demand] = field(default_factory=dict)
    # That assertions and DPoP proofs may be signed with; empty for all that the platform knows.
    algorithms: tuple[str, ...] = ()
    # The audience of an assertion is the issuer as a string: no list, and not the address of an endpoint.
    issuer_is_only_audience: bool = False
    # A token without a key is not valid.
    bound_tokens_only: bool = False
    # Request objects say since when they are valid (FAPI 2.0 Message Signing section 5.3.1).
    dated_request_objects: bool = False
    # Authorization requests are request objects that the client has signed, and responses are signed (FAPI 2.0 Message Signing
    # sections 5.3.1 and 5.4.1).
    signed_messages_only: bool = False
    # Redirect URIs have https, or http on loopback, and no scheme of an application.
    web_redirects_only: bool = False

    def allows(self, algorithm: str) -> bool:
        """Return whether the client may sign with this algorithm."""
        return not self.algorithms or algorithm in self.algorithms


NO_PROFILE: Final = ""
FAPI2: Final = "fapi2"
FAPI2_MESSAGE_SIGNING: Final = "fapi2_message_signing"
# FAPI 2.0 Security Profile (Final), sections 5.3.2 and 5.4.1. What holds for every client is not named: codes last 60 seconds,
# and responses have `iss`.
_FAPI2: Final = SecurityProfile(
    settings={
        "token_endpoint_auth_method": Demand(
            "private_key_jwt",
            "FAPI 2.0 allows no secret. Send private_key_jwt with jwks or jwks_uri, or leave it out.",
            # RFC 8705, which section 5.3.2.1 allows too.
            others=("tls_client_auth", "self_signed_tls_client_auth"),
        ),
        "require_par": Demand(True, "FAPI 2.0 allows pushed authorization requests only. Send true or leave it out."),
        "require_pkce": Demand(True, "FAPI 2.0 needs PKCE. Send true or leave it out."),
        "require_nonce": Demand(True, "FAPI 2.0 does not allow requests without PKCE. Send true or leave it out."),
        "dpop_bound_access_tokens": Demand(
            True,
            "FAPI 2.0 allows tokens that are bound to a key only. Send true or leave it out.",
            unless="tls_client_certificate_bound_access_tokens",
        ),
        "refresh_token_rotation": Demand(
            False, "FAPI 2.0 allows no rotation of refresh tokens. Send false or leave it out."
        ),
        "id_token_signed_response_alg": Demand("ES256", "FAPI 2.0 does not allow RS256. Send ES256 or leave it out."),
        "access_token_signed_response_alg": Demand(
            "ES256", "FAPI 2.0 does not allow RS256. Send ES256 or leave it out."
        ),
    },
    algorithms=("PS256", "ES256", "EdDSA"),
    issuer_is_only_audience=True,
    bound_tokens_only=True,
    dated_request_objects=True,
    web_redirects_only=True,
)
PROFILES: Final[Mapping[str, SecurityProfile]] = {
    NO_PROFILE: SecurityProfile(),
    FAPI2: _FAPI2,
    FAPI2_MESSAGE_SIGNING: replace(_FAPI2, signed_messages_only=True),
}
SECURITY_PROFILES: Final = tuple(name for name in PROFILES if name)


def profile_of(name: str | None) -> SecurityProfile:
    """Return the profile that a client has stored, or the one that demands nothing. Raises KeyError for an unknown name."""
    return PROFILES[name or NO_PROFILE]
