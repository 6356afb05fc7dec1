"""The parameters of authorization requests, validated (OpenID Connect Core section 3.1.2.1, RFC 6749, 7636, 8707, 9449).

Response type and code challenge are checked by Authlib (`openid.server`), everything else here.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from django.conf import settings

from identity_platform.api.errors import MalformedBody
from identity_platform.api.parsers import Ambiguous, form_pairs, json_object
from openid.authorization.responses import FORM_POST, QUERY, RESPONSE_MODES, SIGNED, SIGNED_MODES
from openid.claims import CLAIMS, CLAIMS_OF_SCOPES, claims_of, mapped_claims_of, scope_of_claim
from openid.errors import RequestRejected
from tenants.entering.lookup import TenantContext
from userflow.accounts.models import TenantClient
from userflow.accounts.security_profiles import SecurityProfile, profile_of
from userflow.accounts.session_policy import AAL1, AAL2
from userflow.sessions.id_tokens import Hint, UnverifiedHint, read_hint

OPENID: Final = "openid"
OFFLINE_ACCESS: Final = "offline_access"
SCOPES: Final = (OPENID, *CLAIMS_OF_SCOPES, OFFLINE_ACCESS)

NONE, LOGIN, CONSENT, SELECT_ACCOUNT = "none", "login", "consent", "select_account"
# Initiating User Registration via OpenID Connect 1.0.
CREATE = "create"
PROMPTS: Final = (NONE, LOGIN, CONSENT, SELECT_ACCOUNT, CREATE)

# Each may be sent more than once (RFC 8707 section 2); no other parameter may (RFC 6749 section 3.1).
_REPEATABLE: Final = frozenset({"resource"})
# Code points that a parameter of this kind may have (RFC 6749 appendix A: NQCHAR and blank). Authlib repeats some parameters in
# its messages, which allow no others.
_NQ = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]*")
_NOT_TEXT = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_THUMBPRINT = re.compile(r"[A-Za-z0-9_-]{43}")
_SECONDS = re.compile(r"[0-9]{1,9}")
# By name; any other parameter is ignored with any content (RFC 6749 section 3.1). Servers limit the whole request.
LONGEST: Final = {
    **dict.fromkeys(("client_id", "redirect_uri", "response_type", "response_mode", "resource", "request_uri"), 2048),
    **dict.fromkeys(("code_challenge", "code_challenge_method", "prompt", "max_age", "acr_values", "dpop_jkt"), 2048),
    "state": 2048,
    "nonce": 1024,
    "ui_locales": 255,
    "claims": 4096,
    "scope": 4096,
    "id_token_hint": 8192,
    # Of what is shorter, one that is too long for an address is ignored.
    "login_hint": 65_536,
}
_MOST_RESOURCES: Final = 20
LONGEST_LOGIN_HINT: Final = 254


class Sent:
    """The parameters of a request as sent. One without a value counts as not sent (RFC 6749 section 3.1)."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            if value:
                self._values.setdefault(name, []).append(value)

    @classmethod
    def from_form(cls, encoded: bytes) -> "Sent":
        """Return the parameters of a query string or form body. Raises RequestRejected for what is not well-formed."""
        try:
            return cls(form_pairs(encoded))
        except Ambiguous as problem:
            raise RequestRejected("invalid_request", problem.text) from None

    def get(self, name: str) -> str | None:
        """Return the value of a parameter that was sent once, else None."""
        values = self._values.get(name, ())
        return values[0] if len(values) == 1 else None

    def all(self, name: str) -> list[str]:
        """Return every value of a parameter."""
        return self._values.get(name, [])

    def repeated(self) -> list[str]:
        """Return the names of the parameters that were sent more than once and may not be."""
        return [name for name, values in self._values.items() if len(values) > 1 and name not in _REPEATABLE]

    def names(self) -> Collection[str]:
        """Return the names of the parameters."""
        return self._values.keys()


@dataclass(frozen=True, slots=True)
class Parameters:
    """What an authorization request asks for, after validation. The client is stored beside it."""

    redirect_uri: str
    code_challenge: str
    response_mode: str = QUERY
    state: str | None = None
    nonce: str = ""
    # Those of the requested scopes that the client may have.
    scopes: tuple[str, ...] = ()
    # Audiences of the access token: the requested resources, else the default of the client.
    audiences: tuple[str, ...] = ()
    # The key that the code is bound to (RFC 9449 section 10).
    dpop_jkt: str = ""
    prompts: tuple[str, ...] = ()
    # Seconds since the user was last verified.
    max_age: int | None = None
    # The assurance level that the session needs.
    acr: str = AAL1
    login_hint: str = ""
    # Language tags, preferred first.
    ui_locales: tuple[str, ...] = ()
    # Claims that the request names one by one (OpenID Connect Core section 5.5).
    id_token_claims: tuple[str, ...] = ()
    userinfo_claims: tuple[str, ...] = ()
    # The only user that may complete the request: of `id_token_hint`, or of the claim `sub` with a value (section 5.5.1).
    subject: str = ""
    # Of a device (RFC 8628), which has no redirect URI: hexadecimal digest of its code, and the sealed code to compare.
    device: str = ""
    user_code: str = ""

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Parameters":
        """Return parameters that were stored with `asdict`."""
        fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in stored.items()}
        return cls(**fields)

    @property
    def consent_scopes(self) -> frozenset[str]:
        """The scopes that the user has to consent to: those requested, and those of claims requested by name."""
        return scopes_to_consent(self.scopes, (*self.id_token_claims, *self.userinfo_claims))

    @property
    def mapped_claims(self) -> frozenset[str]:
        """The mapped claims that the user has to consent to."""
        return mapped_to_consent((*self.id_token_claims, *self.userinfo_claims))


def scopes_to_consent(scopes: Iterable[str], claims: Iterable[str]) -> frozenset[str]:
    """Return the scopes that need consent: these, and those of the claims that are requested by name."""
    return frozenset((*scopes, *(scope_of_claim(claim) for claim in claims)))


def mapped_to_consent(claims: Iterable[str]) -> frozenset[str]:
    """Return those of these claims that the tenant maps, which need consent by name."""
    return frozenset(claims).difference(CLAIMS)


def read_parameters(sent: Sent, *, tenant: TenantContext, client: TenantClient, redirect_uri: str) -> Parameters:
    """Return the validated parameters of a request of this client.

    Raises RequestRejected without a redirect URI; the caller knows it.
    """
    for name, longest in LONGEST.items():
        if any(len(value) > longest or _NOT_TEXT.search(value) for value in sent.all(name)):
            raise RequestRejected("invalid_request", f"{name} is too long or contains control characters.")
    max_age = _matching(sent.get("max_age"), _SECONDS, "max_age must be a number of seconds.")
    by_key = "dpop_jkt must be a SHA-256 thumbprint in base64url."
    claims = _Claims.read(sent.get("claims"), tenant)
    acr = _acr((sent.get("acr_values") or "").split(" "))
    scopes = granted_scopes(sent.get("scope"), client.scopes)
    mapped = mapped_claims_of(scopes, tenant)
    hint = _hint(sent.get("id_token_hint"), tenant=tenant, client=client)
    if OPENID in scopes and client.require_nonce and not sent.get("nonce") and not sent.get("code_challenge"):
        # One of the two has to bind the code to the browser (RFC 9700 section 2.1.1), unless the library can send neither.
        raise RequestRejected("invalid_request", "nonce is missing. Send it, or use PKCE.")
    return Parameters(
        redirect_uri=redirect_uri,
        response_mode=requested_response_mode(sent, redirect_uri, profile_of(client.security_profile)),
        code_challenge=sent.get("code_challenge") or "",
        state=sent.get("state"),
        nonce=sent.get("nonce") or "",
        scopes=scopes,
        audiences=granted_audiences(sent.all("resource"), client.audiences),
        dpop_jkt=_matching(sent.get("dpop_jkt"), _THUMBPRINT, by_key) or "",
        prompts=_prompts(sent.get("prompt"), hint),
        max_age=client.default_max_age if max_age is None else int(max_age),
        acr=max(acr, claims.acr),
        login_hint=_login_hint(sent.get("login_hint") or ""),
        ui_locales=tuple((sent.get("ui_locales") or "").split()),
        id_token_claims=tuple(dict.fromkeys((*claims.id_token, *mapped))),
        userinfo_claims=tuple(dict.fromkeys((*claims.userinfo, *mapped))),
        subject=_subject(hint, claims.subject),
    )


def requested_response_mode(sent: Sent, redirect_uri: str, profile: SecurityProfile) -> str:
    """Return how the response comes to the application, by the profile of the client. Raises RequestRejected."""
    mode = sent.get("response_mode") or QUERY
    if mode not in RESPONSE_MODES:
        raise RequestRejected("invalid_request", f"response_mode must be one of: {', '.join(RESPONSE_MODES)}.")
    if profile.signed_messages_only and mode not in SIGNED_MODES:
        problem = f"This client gets signed responses only. Send response_mode={SIGNED} in the request object."
        raise RequestRejected("invalid_request", problem)
    if SIGNED_MODES.get(mode, mode) == FORM_POST and not redirect_uri.startswith(("https://", "http://")):
        problem = f"response_mode={mode} needs an https redirect URI: browsers send no form to an app."
        raise RequestRejected("invalid_request", problem)
    return mode


def is_plain(value: str) -> bool:
    """Return whether a value has only characters that RFC 6749 appendix A allows in response and grant types."""
    return _NQ.fullmatch(value) is not None


def granted_scopes(scope: str | None, of_client: Iterable[str]) -> tuple[str, ...]:
    """Return the requested scopes that the client may have; unknown ones are ignored (OpenID Connect Core 3.1.2.1).

    Raises RequestRejected (`invalid_scope`) if it is malformed or none of them is known.
    """
    if scope is None:
        return ()
    if not is_plain(scope):
        raise RequestRejected("invalid_scope", "scope must be names separated by blanks.")
    known = {*SCOPES, *of_client}
    granted = tuple(name for name in dict.fromkeys(scope.split()) if name in known)
    if not granted:
        raise RequestRejected("invalid_scope", "None of these scopes exists for this client.")
    return granted


def granted_audiences(resources: list[str], of_client: Collection[str]) -> tuple[str, ...]:
    """Return the audiences of access tokens: the requested resources (RFC 8707), else the client's first audience.

    The platform's API is an audience only when it is asked for. None for a client without others: tokens of its users are for
    `/userinfo` only, its own for the platform's API. Raises RequestRejected (`invalid_target`).
    """
    if len(resources) > _MOST_RESOURCES or not set(resources) <= set(of_client):
        raise RequestRejected("invalid_target", "The client may not ask for this resource.")
    others = (name for name in of_client if name != settings.TOKEN_AUDIENCE)
    return tuple(dict.fromkeys(resources)) or tuple(islice(others, 1))


def _login_hint(hint: str) -> str:
    """Return the hint, or "" for one that is longer than an address: it only fills a field in."""
    return "" if len(hint) > LONGEST_LOGIN_HINT else hint


def _matching(value: str | None, form: re.Pattern[str], problem: str) -> str | None:
    if value is not None and not form.fullmatch(value):
        raise RequestRejected("invalid_request", problem)
    return value


def _prompts(prompt: str | None, hint: Hint | UnverifiedHint | None) -> tuple[str, ...]:
    prompts = tuple(dict.fromkeys((prompt or "").split()))
    if not set(prompts) <= set(PROMPTS):
        raise RequestRejected("invalid_request", "prompt must be none, login, consent, select_account or create.")
    if NONE in prompts and len(prompts) > 1:
        raise RequestRejected("invalid_request", "prompt=none excludes other values.")
    if NONE in prompts and isinstance(hint, UnverifiedHint):
        # Nothing may succeed in silence by a hint that cannot be verified (section 3.1.2.2): `login_required`.
        return (NONE, LOGIN)
    return prompts


def _acr(levels: Iterable[object]) -> str:
    """Return the first known level of a list in order of preference; unknown ones are ignored."""
    return next((str(value) for value in levels if value in (AAL1, AAL2)), AAL1)


def _hint(token: str | None, *, tenant: TenantContext, client: TenantClient) -> Hint | UnverifiedHint | None:
    if token is None:
        return None
    hint = read_hint(tenant, token)
    if hint is None or hint.client_id != client.pk:
        raise RequestRejected("invalid_request", "id_token_hint must be an ID token that this client got here.")
    return hint


def _subject(hint: Hint | UnverifiedHint | None, claimed: str) -> str:
    """Return the only user that may complete a request: that of the hint or of the claim `sub`, or "" for any.

    An unverified hint can only exclude users, as the claim `sub` does, which is not verified either.
    """
    if hint is None:
        return claimed
    if claimed not in ("", str(hint.user_id)):
        raise RequestRejected("invalid_request", "id_token_hint and the claim sub name different users.")
    return str(hint.user_id)


@dataclass(frozen=True, slots=True)
class _Claims:
    """The parameter `claims` (OpenID Connect Core section 5.5)."""

    id_token: tuple[str, ...] = ()
    userinfo: tuple[str, ...] = ()
    acr: str = AAL1
    subject: str = ""

    @classmethod
    def read(cls, parameter: str | None, tenant: TenantContext) -> "_Claims":
        if parameter is None:
            return cls()
        try:
            document = json_object(parameter.encode())
        except MalformedBody:
            raise RequestRejected("invalid_request", "claims must be a JSON object.") from None
        id_token, userinfo = (cls._members(document.get(name)) for name in ("id_token", "userinfo"))
        acr = id_token.get("acr") or {}
        values = acr.get("values")
        known = claims_of(tenant)
        subject = (id_token.get("sub") or {}).get("value") or (userinfo.get("sub") or {}).get("value") or ""
        return cls(
            id_token=tuple(name for name in known if name in id_token),
            userinfo=tuple(name for name in known if name in userinfo),
            acr=_acr([acr.get("value"), *(values if isinstance(values, list) else ())]),
            subject=str(subject),
        )

    @staticmethod
    def _members(members: object) -> dict[str, dict[str, object] | None]:
        if members is None:
            return {}
        if not isinstance(members, dict) or not all(
            rule is None or isinstance(rule, dict) for rule in members.values()
        ):
            raise RequestRejected("invalid_request", "claims must map each claim to null or an object.")
        return members
