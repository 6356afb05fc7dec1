"""What a provider proves about a user: the subject, and the address if the provider's word about it counts.

The subject is what the provider never gives to another user. Addresses and names that users or admins of the provider can
change identify no one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from federation.upstream.clients import Rules, UpstreamClient
from federation.upstream.errors import Reason, UpstreamError
from identity_platform.api.display_name import is_misleading
from identity_platform.api.email_addresses import AddressInvalid, email_address
from userflow.accounts.principals import is_numeric_date
from userflow.sessions.foreign_tokens import GUID, LONGEST_SUBJECT, ForeignTokenInvalid, check_subject

LONGEST_NAME: Final = 200
LONGEST_CLAIM: Final = 16_384
MOST_METHODS: Final = 20
_GMAIL: Final = "gmail.com"
# GitHub numbers its users.
_LARGEST_GITHUB_ID: Final = 2**63 - 1
# About the token and the session, not about the user.
PROTOCOL_CLAIMS: Final = frozenset(
    {
        *("iss", "aud", "azp", "exp", "nbf", "iat", "jti", "nonce", "nonce_supported", "at_hash", "c_hash", "s_hash"),
        *("sid", "amr", "acr", "auth_time", "typ", "ver", "uti", "rh", "aio"),
    }
)


@dataclass(frozen=True, slots=True)
class UpstreamIdentity:
    """A user as a provider describes them. Together with the connection, `subject` identifies the user, and nothing else does.

    `address` is empty if there is none, and proves nothing without `address_trusted`. `claims` are those that a mapping may
    use; what it does not map is dropped.
    """

    subject: str
    address: str = ""
    address_trusted: bool = False
    name: str = ""
    claims: Mapping[str, object] = field(default_factory=dict, repr=False)
    # How and when the provider has authenticated the user, in its own words.
    amr: tuple[str, ...] = ()
    acr: str = ""
    auth_time: int | None = None
    # The provider's session, which logout tokens name.
    sid: str = ""


def identity_of_claims(
    client: UpstreamClient, claims: Mapping[str, object], *, user_form: str = ""
) -> UpstreamIdentity:
    """Return the identity in the verified claims of an ID token, by the rules of the provider.

    `user_form` is the parameter `user` that Apple sends with the first sign-in. Raises UpstreamError.
    """
    address = _address(claims.get("email"))
    rules = _RULES[client.rules]
    return UpstreamIdentity(
        subject=rules.subject(client, claims),
        address=address,
        address_trusted=bool(address) and rules.trusts(claims, address),
        name=_name(claims) or (apple_name(user_form) if client.rules == Rules.APPLE else ""),
        claims=_mappable(claims),
        amr=_methods(claims.get("amr")),
        acr=_text(claims.get("acr")),
        auth_time=_seconds(claims.get("auth_time")),
        sid=_text(claims.get("sid")),
    )


def identity_of_github(user: object, addresses: object) -> UpstreamIdentity:
    """Return the identity in GitHub's responses to /user and /user/emails (GitHub documentation, REST API).

    The subject is the number of the user: a login name is free again when its user renames it. Raises UpstreamError.
    """
    if not isinstance(user, dict):
        raise UpstreamError(Reason.RESPONSE_INVALID, expected="a JSON object", received=type(user).__name__)
    number = user.get("id")
    if number is None:
        raise UpstreamError(Reason.SUBJECT_EMPTY, expected="id, a number", received="nothing")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= _LARGEST_GITHUB_ID:
        raise UpstreamError(Reason.SUBJECT_INVALID, expected="id, a number", received=type(number).__name__)
    address = _primary_address(addresses)
    return UpstreamIdentity(
        subject=str(number),
        address=address,
        address_trusted=bool(address),
        name=_name(user),
        claims=_mappable({name: user[name] for name in ("login", "name", "company") if name in user}),
    )


def apple_name(user_form: str) -> str:
    """Return the name in the parameter `user` of Apple's callback, or an empty text.

    Apple sends it with the first sign-in only, unsigned, through the browser: it is a proposal of the user for their own
    name. Its address is ignored, that of the ID token counts.
    """
    if not 0 < len(user_form) <= LONGEST_CLAIM:
        return ""
    try:
        document = orjson.loads(user_form.encode("utf-8", "replace"))
    except orjson.JSONDecodeError:
        return ""
    parts = document.get("name") if isinstance(document, dict) else None
    if not isinstance(parts, dict):
        return ""
    return _shown_name(parts.get("firstName"), parts.get("lastName"))


# --- rules of providers ----------------------------------------------------------------------------------------------


def _standard_subject(client: UpstreamClient, claims: Mapping[str, object]) -> str:
    try:
        return check_subject(claims.get("sub"))
    except ForeignTokenInvalid as problem:
        raise UpstreamError.of_token(problem) from problem


def _google_subject(client: UpstreamClient, claims: Mapping[str, object]) -> str:
    # `hd` in the request only chooses the page, and the user can change it there.
    _check_organization(client, claims.get("hd"))
    return _standard_subject(client, claims)


def _microsoft_subject(client: UpstreamClient, claims: Mapping[str, object]) -> str:
    """Return `tid` and `oid`. `sub` differs for each application, and `oid` alone is unique in one directory only."""
    parts = [claims.get(name) for name in ("tid", "oid")]
    for part in parts:
        if part is None or part == "":
            raise UpstreamError(Reason.SUBJECT_EMPTY, expected="tid and oid", received="nothing")
        if not isinstance(part, str) or not GUID.fullmatch(part):
            raise UpstreamError(Reason.SUBJECT_INVALID, expected="tid and oid, GUIDs", received=type(part).__name__)
    directory, user = (str(part).lower() for part in parts)
    # The issuer of every directory has the same keys: only together with it does `tid` say whose user this is.
    if directory not in str(claims.get("iss")).lower().split("/"):
        raise UpstreamError(Reason.ISSUER_MISMATCH, expected=f"the issuer of {directory}", received=claims.get("iss"))
    _check_organization(client, directory)
    return f"{directory}:{user}"


def _check_organization(client: UpstreamClient, value: object) -> None:
    allowed = {organization.lower() for organization in client.organizations}
    if allowed and not (isinstance(value, str) and value.lower() in allowed):
        raise UpstreamError(
            Reason.ORGANIZATION_NOT_ALLOWED,
            expected=", ".join(sorted(allowed)),
            received=value if isinstance(value, str) else "nothing",
        )


def _is_verified(claims: Mapping[str, object], address: str) -> bool:
    # Some providers, Apple among them, send the boolean as text.
    return claims.get("email_verified") is True or claims.get("email_verified") == "true"


def _google_vouches(claims: Mapping[str, object], address: str) -> bool:
    """Return whether Google hosts the address (Google, "Authenticate with a backend server").

    A Google account can have any address, which was verified once and may belong to another person since.
    """
    domain, hosted_domain = address.rpartition("@")[2].lower(), claims.get("hd")
    return _is_verified(claims, address) and (
        domain == _GMAIL or (isinstance(hosted_domain, str) and hosted_domain.lower() == domain)
    )


def _microsoft_vouches(claims: Mapping[str, object], address: str) -> bool:
    """Return whether the owner of the address's domain is verified. Any admin of any directory can set `email`."""
    return claims.get("xms_edov") is True


@dataclass(frozen=True, slots=True)
class _ProviderRules:
    subject: Callable[[UpstreamClient, Mapping[str, object]], str] = _standard_subject
    trusts: Callable[[Mapping[str, object], str], bool] = _is_verified


_RULES: Final[Mapping[Rules, _ProviderRules]] = {
    Rules.GENERIC: _ProviderRules(),
    Rules.GOOGLE: _ProviderRules(_google_subject, _google_vouches),
    Rules.MICROSOFT: _ProviderRules(_microsoft_subject, _microsoft_vouches),
    Rules.APPLE: _ProviderRules(),
    # Only `identity_of_github` reads what GitHub sends; claims under its name are those of another provider.
    Rules.GITHUB: _ProviderRules(trusts=lambda claims, address: False),
}


def _primary_address(addresses: object) -> str:
    """Return the primary address of a GitHub user if it is verified, else an empty text."""
    for entry in addresses if isinstance(addresses, list) else []:
        if isinstance(entry, dict) and entry.get("primary") is True and entry.get("verified") is True:
            return _address(entry.get("email"))
    return ""


# --- values ----------------------------------------------------------------------------------------------------------


def _address(value: object) -> str:
    try:
        return email_address(value) if isinstance(value, str) and len(value) <= LONGEST_SUBJECT else ""
    except AddressInvalid:
        return ""


def _name(claims: Mapping[str, object]) -> str:
    return _shown_name(claims.get("name")) or _shown_name(claims.get("given_name"), claims.get("family_name"))


def _shown_name(*parts: object) -> str:
    """Return a name that other people may be shown, or an empty text: some users name themselves like a link."""
    name = " ".join(part.strip() for part in parts if isinstance(part, str)).strip()
    return "" if len(name) > LONGEST_NAME or is_misleading(name) else name


def _text(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= LONGEST_SUBJECT and value.isprintable() else ""


def _seconds(value: object) -> int | None:
    return int(value) if is_numeric_date(value) else None


def _methods(value: object) -> tuple[str, ...]:
    """Return `amr`, a list of names (RFC 8176). Some providers send one name as text."""
    entries = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(filter(None, map(_text, entries[:MOST_METHODS])))


def _mappable(claims: Mapping[str, object]) -> dict[str, object]:
    """Return the claims about the user that can be stored."""
    return {name: value for name, value in claims.items() if name not in PROTOCOL_CLAIMS and _is_storable(name, value)}


def _is_storable(name: str, value: object) -> bool:
    """Return whether PostgreSQL takes a claim in JSON, and it is not long: NUL and deep nesting are rejected."""
    try:
        encoded = orjson.dumps({name: value})
    except orjson.JSONEncodeError:
        return False
    return len(encoded) <= LONGEST_CLAIM and b"\\u0000" not in encoded
