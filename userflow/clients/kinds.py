"""Kinds of applications: what a new client of each kind is, and which of its fields the kind needs.

A kind is not stored and is no rule: it fills in what is not sent, and `check_metadata` alone decides what a client may have.
All that is not listed here has the default of the model, which suits every kind: PKCE is required, users are asked for consent,
a secret is accepted in either form, and refresh tokens rotate as `rotates_refresh_tokens` says.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from userflow.accounts.client_fields import CONFIDENTIAL, PUBLIC
from userflow.accounts.grant_types import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    REFRESH_TOKEN,
    grant_types_in_force,
)
from userflow.accounts.models import Client
from userflow.clients.registration import problem_of_origin

SINGLE_PAGE, WEB, NATIVE, DEVICE, MACHINE = "single-page", "web", "native", "device", "machine"
# The scheme of an application, or a loopback address: only a program on the user's machine can listen there.
_NATIVE_URI = re.compile(r"(?!https?:)|http://(?:127\.0\.0\.1|\[::1\])(?:[:/]|\Z)")
_WEB_ORIGIN = re.compile(r"https?://[^/?#]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ClientKind:
    """A kind of application. `fields` are those that its developer decides, apart from the name."""

    name: str
    type: str
    grant_types: tuple[str, ...]
    fields: tuple[str, ...]


_BY_CODE: Final = (AUTHORIZATION_CODE, REFRESH_TOKEN)
_REDIRECTS: Final = ("redirect_uris", "post_logout_redirect_uris")
_USERS: Final = ("self_registration", "first_party")
KINDS: Final[Mapping[str, ClientKind]] = {
    kind.name: kind
    for kind in (
        ClientKind(SINGLE_PAGE, PUBLIC, _BY_CODE, (*_REDIRECTS, "allowed_origins", *_USERS)),
        ClientKind(WEB, CONFIDENTIAL, _BY_CODE, (*_REDIRECTS, "backchannel_logout_uri", *_USERS)),
        ClientKind(NATIVE, PUBLIC, _BY_CODE, (*_REDIRECTS, *_USERS)),
        ClientKind(DEVICE, PUBLIC, (DEVICE_CODE, REFRESH_TOKEN), ("first_party",)),
        ClientKind(MACHINE, CONFIDENTIAL, (CLIENT_CREDENTIALS,), ("scopes", "audiences")),
    )
}


def new_client_fields(kind: ClientKind, sent: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a new client of this kind: those sent, and the defaults of the kind for the others.

    Web pages of a single-page application call the OpenID endpoints, so their origins are those of its redirect URIs unless
    some are sent.
    """
    fields: dict[str, object] = {"type": kind.type, "grant_types": list(kind.grant_types), **sent}
    redirect_uris = fields.get("redirect_uris")
    if kind.name == SINGLE_PAGE and not fields.get("allowed_origins") and isinstance(redirect_uris, list):
        fields["allowed_origins"] = _origins_of(redirect_uris)
    return fields


def _origins_of(uris: Iterable[str]) -> list[str]:
    origins = [match.group().lower() for uri in uris if (match := _WEB_ORIGIN.match(uri))]
    return [origin for origin in dict.fromkeys(origins) if problem_of_origin(origin) is None]


def kind_of(client: Client) -> ClientKind:
    """Return the kind that a stored client looks like, with the client's own type."""
    return replace(KINDS[_name_of(client)], type=client.type)


def _name_of(client: Client) -> str:
    if not signs_in_with_browser(client):
        grant_types = grant_types_in_force(client.grant_types, type_=client.type, scopes=client.scopes)
        return DEVICE if DEVICE_CODE in grant_types else MACHINE
    if client.type == CONFIDENTIAL:
        return WEB
    is_native = not client.allowed_origins and any(_NATIVE_URI.match(uri) for uri in client.redirect_uris)
    return NATIVE if is_native else SINGLE_PAGE


def signs_in_with_browser(client: Client) -> bool:
    """Return whether the client signs users in with a browser.

    A client without stated grant types may do so, but one that acts for itself then has no redirect URI.
    """
    grant_types = grant_types_in_force(client.grant_types, type_=client.type, scopes=client.scopes)
    return AUTHORIZATION_CODE in grant_types and bool(client.redirect_uris or CLIENT_CREDENTIALS not in grant_types)
