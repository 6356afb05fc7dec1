"""ID tokens and logout tokens that identity providers of tenants have signed (OpenID Connect Core, Back-Channel Logout).

PyJWT checks the signature only: the payload is read here, strictly, and every claim is checked here. Keys come from the
connection, never from the header of a token.
"""

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import jwt
import orjson

from userflow.accounts.principals import is_numeric_date
from userflow.sessions.client_keys import SIGNING_ALGORITHMS, ClientKey
from userflow.sessions.id_tokens import LOGOUT_EVENT

# Clocks of providers may differ by so many seconds.
SKEW_SECONDS: Final = 60
# Entra ID lists up to 200 groups in a token.
LONGEST: Final = 32_768
LONGEST_SUBJECT: Final = 255
# A logout token is delivered at once, or again within minutes. Callers remember its `jti` for twice this time.
LOGOUT_TOKEN_SECONDS: Final = 300
# In the issuer of applications that take users of any Entra ID (Microsoft identity platform, "Validate the issuer").
TENANT_PLACEHOLDER: Final = "{tenantid}"
GUID: Final = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# The compact form only. RFC 7515 section 7.2 has two JSON forms, which several signatures and unsigned headers make unsafe.
_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
# The key that a token brings along proves nothing, and what `crit` names is not understood. `jku`, `x5u` and `x5c` are
# ignored: some providers send them for other readers.
_NEVER_IN_HEADER: Final = ("jwk", "crit")
_ID_TOKEN_TYPES: Final = frozenset({None, "jwt"})
_LOGOUT_TOKEN_TYPES: Final = frozenset({None, "jwt", "logout+jwt"})
# OpenID Connect Core section 3.1.3.6: the hash of the signature's algorithm. That of Ed25519 is SHA-512.
_HASHES: Final[Mapping[str, str]] = {
    "RS256": "sha256",
    "PS256": "sha256",
    "ES256": "sha256",
    "ES384": "sha384",
    "EdDSA": "sha512",
}


class TokenProblem(StrEnum):
    """Why a token is rejected."""

    FORMAT = "token_format"
    TYPE = "token_type"
    ALGORITHM = "algorithm_not_allowed"
    HEADER = "header_not_allowed"
    KEY_UNKNOWN = "key_unknown"
    SIGNATURE = "signature_invalid"
    ISSUER = "issuer_mismatch"
    AUDIENCE = "audience_mismatch"
    AUTHORIZED_PARTY = "authorized_party_mismatch"
    CLAIM_MISSING = "claim_missing"
    EXPIRED = "token_expired"
    CLOCK_SKEW = "clock_skew"
    NONCE = "nonce_mismatch"
    SUBJECT_EMPTY = "subject_empty"
    SUBJECT_INVALID = "subject_invalid"
    ACCESS_TOKEN_HASH = "access_token_hash_mismatch"
    AUTHENTICATION_TOO_OLD = "authentication_too_old"
    EVENT_MISSING = "logout_event_missing"
    NONCE_PRESENT = "logout_nonce_present"
    TOKEN_ID = "token_id_invalid"


class ForeignTokenInvalid(Exception):
    """The token proves nothing. `expected` and `received` are for the tenant's admins and contain no secret."""

    def __init__(self, problem: TokenProblem, *, expected: object = "", received: object = "") -> None:
        super().__init__(problem.value)
        self.problem = problem
        self.expected = expected
        self.received = received


class ForeignKeyUnknown(ForeignTokenInvalid):
    """None of the keys can have signed the token: the provider may have replaced its keys since they were fetched."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What tokens of a provider must say.

    `issuer` may contain `{tenantid}`, in place of which the issuer must have the value of the claim `tid`. `algorithms` are
    those that the provider may sign with, a subset of SIGNING_ALGORITHMS.
    """

    issuer: str
    client_id: str
    algorithms: frozenset[str] = frozenset(SIGNING_ALGORITHMS)


@dataclass(frozen=True, slots=True)
class ForeignLogout:
    """Whose sessions a provider has ended: those of the subject, of the provider's session, or of both."""

    issuer: str
    subject: str | None
    session: str | None
    # Together with the connection, the token's identity: it counts once.
    token_id: str
    issued_at: float


@dataclass(frozen=True, slots=True)
class _Header:
    algorithm: str
    kid: str | None


def verify_id_token(
    token: str,
    *,
    keys: Collection[ClientKey],
    expected: Expected,
    nonce: str,
    access_token: str | None = None,
    max_age: int | None = None,
    moment: float | None = None,
) -> dict[str, object]:
    """Return the claims of an ID token (OpenID Connect Core section 3.1.3.7).

    `nonce` is that of the request. `access_token` is the one of the same response, compared with `at_hash` if the token has
    one. With `max_age` the token says when the user has signed in. `moment` is now unless it is given.
    Raises ForeignKeyUnknown, after which callers fetch the keys again once, and ForeignTokenInvalid.
    """
    moment = time.time() if moment is None else moment
    header, claims = _signed_claims(token, keys, expected.algorithms, types=_ID_TOKEN_TYPES)
    _check_issuer(claims, expected.issuer)
    _check_audience(claims, expected.client_id)
    _check_dates(claims, moment, required=("exp", "iat"))
    received_nonce = claims.get("nonce")
    if not isinstance(received_nonce, str) or not _equal(received_nonce, nonce):
        raise ForeignTokenInvalid(
            TokenProblem.NONCE, expected="the nonce of the request", received=_presence(received_nonce)
        )
    check_subject(claims.get("sub"))
    if access_token is not None and "at_hash" in claims:
        at_hash = claims["at_hash"]
        if not isinstance(at_hash, str) or not _equal(at_hash, _left_half(access_token, header.algorithm)):
            raise ForeignTokenInvalid(TokenProblem.ACCESS_TOKEN_HASH)
    if max_age is not None:
        auth_time = claims.get("auth_time")
        if not is_numeric_date(auth_time):
            raise ForeignTokenInvalid(TokenProblem.CLAIM_MISSING, expected="auth_time", received=_presence(auth_time))
        if auth_time < moment - max_age - SKEW_SECONDS:
            raise ForeignTokenInvalid(
                TokenProblem.AUTHENTICATION_TOO_OLD, expected=f"within {max_age} seconds", received=auth_time
            )
    return claims


def verify_logout_token(
    token: str, *, keys: Collection[ClientKey], expected: Expected, moment: float | None = None
) -> ForeignLogout:
    """Return whose sessions a logout token ends (OpenID Connect Back-Channel Logout section 2.6).

    Callers take each `token_id` once. `exp` may be missing, which drafts allowed: the token is of the last minutes anyway.
    Raises ForeignKeyUnknown, after which callers fetch the keys again once, and ForeignTokenInvalid.
    """
    moment = time.time() if moment is None else moment
    _, claims = _signed_claims(token, keys, expected.algorithms, types=_LOGOUT_TOKEN_TYPES)
    issuer = _check_issuer(claims, expected.issuer)
    _check_audience(claims, expected.client_id)
    issued_at = _check_dates(claims, moment, required=("iat",))
    if issued_at < moment - LOGOUT_TOKEN_SECONDS - SKEW_SECONDS:
        raise ForeignTokenInvalid(
            TokenProblem.EXPIRED, expected=f"iat within {LOGOUT_TOKEN_SECONDS} seconds", received=issued_at
        )
    events = claims.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(LOGOUT_EVENT), dict):
        raise ForeignTokenInvalid(TokenProblem.EVENT_MISSING, expected=LOGOUT_EVENT, received=_presence(events))
    # An ID token of the provider has a nonce: it must not serve as a logout token.
    if "nonce" in claims:
        raise ForeignTokenInvalid(TokenProblem.NONCE_PRESENT, expected="no nonce", received="a nonce")
    subject = check_subject(claims["sub"]) if "sub" in claims else None
    session = check_subject(claims["sid"]) if "sid" in claims else None
    if subject is None and session is None:
        raise ForeignTokenInvalid(TokenProblem.SUBJECT_EMPTY, expected="sub or sid", received="neither")
    token_id = claims.get("jti")
    if not isinstance(token_id, str) or not 0 < len(token_id) <= LONGEST_SUBJECT or not token_id.isprintable():
        raise ForeignTokenInvalid(TokenProblem.TOKEN_ID, expected="jti", received=_presence(token_id))
    return ForeignLogout(issuer, subject, session, token_id, issued_at)


def check_subject(value: object) -> str:
    """Return a claim that identifies a user or a session: text of 1 to 255 visible characters. Raises ForeignTokenInvalid.

    A provider that sends null or an empty string for several users would make them one user here.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ForeignTokenInvalid(TokenProblem.SUBJECT_EMPTY, expected="text", received=_presence(value))
    if not isinstance(value, str) or len(value) > LONGEST_SUBJECT or not value.isprintable():
        raise ForeignTokenInvalid(
            TokenProblem.SUBJECT_INVALID,
            expected=f"text of at most {LONGEST_SUBJECT} visible characters",
            received=_presence(value),
        )
    return value


def issuer_matches(template: str, issuer: str) -> bool:
    """Return whether an issuer is the expected one, with any tenant in place of `{tenantid}`."""
    before, placeholder, after = template.partition(TENANT_PLACEHOLDER)
    if not placeholder:
        return issuer == template
    return re.fullmatch(re.escape(before) + GUID.pattern + re.escape(after), issuer) is not None


def _signed_claims(
    token: str, keys: Collection[ClientKey], algorithms: Collection[str], *, types: Collection[str | None]
) -> tuple[_Header, dict[str, object]]:
    if len(token) > LONGEST or not _COMPACT.fullmatch(token):
        raise ForeignTokenInvalid(TokenProblem.FORMAT, expected="a JWS in compact form", received=_form(token))
    header = _read_header(token, algorithms, types)
    candidates = [
        key
        for key in keys
        if header.algorithm in key.algorithms and (header.kid is None or key.kid is None or key.kid == header.kid)
    ]
    for key in candidates:
        payload = _payload(token, key, header.algorithm)
        if payload is not None:
            return header, _read_payload(payload)
    if header.kid is None:
        raise ForeignKeyUnknown(TokenProblem.SIGNATURE, expected="a signature by a key of the provider")
    if not any(key.kid == header.kid for key in keys):
        known = ", ".join(_short(key.kid) for key in keys)
        raise ForeignKeyUnknown(TokenProblem.KEY_UNKNOWN, expected=known, received=_short(header.kid))
    raise ForeignTokenInvalid(TokenProblem.SIGNATURE, expected=f"a signature by the key {_short(header.kid)}")


def _read_header(token: str, algorithms: Collection[str], types: Collection[str | None]) -> _Header:
    encoded = token.partition(".")[0]
    try:
        header = orjson.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except ValueError as problem:  # those of base64 and orjson are ValueErrors
        raise ForeignTokenInvalid(TokenProblem.FORMAT, expected="a JSON object as header") from problem
    if not isinstance(header, dict):
        raise ForeignTokenInvalid(TokenProblem.FORMAT, expected="a JSON object as header", received=_presence(header))
    algorithm, kid, token_type = header.get("alg"), header.get("kid"), header.get("typ")
    # The second condition holds also for a connection with a wrong list: `none` and HMAC are never verified.
    if not isinstance(algorithm, str) or algorithm not in algorithms or algorithm not in SIGNING_ALGORITHMS:
        raise ForeignTokenInvalid(
            TokenProblem.ALGORITHM, expected=", ".join(sorted(algorithms)), received=_short(algorithm)
        )
    for name in _NEVER_IN_HEADER:
        if name in header:
            raise ForeignTokenInvalid(TokenProblem.HEADER, expected=f"no {name} in the header", received=name)
    if "kid" in header and not isinstance(kid, str):
        raise ForeignTokenInvalid(TokenProblem.HEADER, expected="kid as text", received=_presence(kid))
    if not isinstance(token_type, str | None) or _media_type(token_type) not in types:
        allowed = ", ".join(sorted(name for name in types if name))
        raise ForeignTokenInvalid(TokenProblem.TYPE, expected=allowed, received=_short(token_type))
    return _Header(algorithm, kid)


def _payload(token: str, key: ClientKey, algorithm: str) -> bytes | None:
    """Return the payload if this key has signed it, else None."""
    try:
        payload = jwt.PyJWS().decode_complete(token, key.key.key, algorithms=[algorithm])["payload"]
    except jwt.InvalidSignatureError:
        return None
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as problem:
        raise ForeignTokenInvalid(TokenProblem.FORMAT, expected="a JWS in compact form") from problem
    return payload if isinstance(payload, bytes) else None


def _read_payload(payload: bytes) -> dict[str, object]:
    # orjson takes no NaN and no lone surrogate, which the standard library's reader does.
    try:
        claims = orjson.loads(payload)
    except orjson.JSONDecodeError as problem:
        raise ForeignTokenInvalid(TokenProblem.FORMAT, expected="a JSON object as payload") from problem
    if not isinstance(claims, dict):
        raise ForeignTokenInvalid(TokenProblem.FORMAT, expected="a JSON object as payload", received=_presence(claims))
    return claims


def _check_issuer(claims: Mapping[str, object], template: str) -> str:
    issuer = claims.get("iss")
    expected = template
    if TENANT_PLACEHOLDER in template:
        tenant_id = claims.get("tid")
        if not isinstance(tenant_id, str) or not GUID.fullmatch(tenant_id):
            raise ForeignTokenInvalid(TokenProblem.ISSUER, expected="tid, a GUID", received=_short(tenant_id))
        expected = template.replace(TENANT_PLACEHOLDER, tenant_id)
    # A list compares unequal, too: it would satisfy a check that only searches for the issuer in it.
    if not isinstance(issuer, str) or issuer != expected:
        raise ForeignTokenInvalid(TokenProblem.ISSUER, expected=expected, received=_short(issuer))
    return issuer


def _check_audience(claims: Mapping[str, object], client_id: str) -> None:
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if not all(isinstance(entry, str) for entry in audiences) or client_id not in audiences:
        received = ", ".join(_short(entry) for entry in audiences[:5])
        raise ForeignTokenInvalid(TokenProblem.AUDIENCE, expected=client_id, received=received)
    # OpenID Connect Core section 3.1.3.7, 4 and 5.
    if ("azp" in claims or len(audiences) > 1) and claims.get("azp") != client_id:
        raise ForeignTokenInvalid(TokenProblem.AUTHORIZED_PARTY, expected=client_id, received=_short(claims.get("azp")))


def _check_dates(claims: Mapping[str, object], moment: float, *, required: Collection[str]) -> float:
    """Check `exp`, `nbf` and `iat`; return `iat`. Raises ForeignTokenInvalid."""
    dates: dict[str, float] = {}
    for name in ("exp", "nbf", "iat"):
        if name not in claims and name not in required:
            continue
        value = claims.get(name)
        if not is_numeric_date(value):
            raise ForeignTokenInvalid(
                TokenProblem.CLAIM_MISSING, expected=f"{name}, a number", received=_presence(value)
            )
        dates[name] = value
    if "exp" in dates and dates["exp"] < moment - SKEW_SECONDS:
        raise ForeignTokenInvalid(
            TokenProblem.EXPIRED, expected=f"exp after {int(moment)}", received=f"{dates['exp']:.0f}"
        )
    for name in ("nbf", "iat"):
        if dates.get(name, moment) > moment + SKEW_SECONDS:
            raise ForeignTokenInvalid(
                TokenProblem.CLOCK_SKEW, expected=f"{name} until {int(moment)}", received=f"{dates[name]:.0f}"
            )
    return dates["iat"]


def _left_half(access_token: str, algorithm: str) -> str:
    digest = hashlib.new(_HASHES[algorithm], access_token.encode()).digest()
    return base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=").decode()


def _equal(received: str, expected: str) -> bool:
    return hmac.compare_digest(received.encode(), expected.encode())


def _media_type(token_type: str | None) -> str | None:
    """Return a `typ` in lower case, without "application/" (RFC 7515 section 4.1.9)."""
    return None if token_type is None else token_type.lower().removeprefix("application/")


def _short(value: object) -> str:
    """Return a value that is no secret as text for the log of attempts."""
    if not isinstance(value, str):
        return _presence(value)
    # NUL and lone surrogates, which JSON can contain, are not storable.
    return "".join(character if character.isprintable() else "\ufffd" for character in value[:200])


def _presence(value: object) -> str:
    """Return what kind of value was received, without the value."""
    if value is None:
        return "nothing"
    if value == "":
        return "empty text"
    return {str: "text", bool: "a boolean", list: "a list", dict: "an object"}.get(type(value), "a number")


def _form(token: str) -> str:
    if len(token) > LONGEST:
        return f"{len(token)} characters"
    return "a JSON object" if token.lstrip().startswith("{") else f"{token.count('.') + 1} parts"
