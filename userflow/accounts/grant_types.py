"""The grant types of clients (RFC 7591 section 2)."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from django.utils.translation import gettext_lazy as _

from userflow.accounts.client_fields import CONFIDENTIAL

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

AUTHORIZATION_CODE = "authorization_code"
REFRESH_TOKEN = "refresh_token"
CLIENT_CREDENTIALS = "client_credentials"
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
# What they let an application do, for the console and the API document.
LABELS: Final[Mapping[str, "StrOrPromise"]] = {
    AUTHORIZATION_CODE: _("Sign users in with a browser"),
    REFRESH_TOKEN: _("Renew tokens"),
    CLIENT_CREDENTIALS: _("Act for itself"),
    DEVICE_CODE: _("Sign users in on devices without a browser"),
}
GRANT_TYPES: Final = tuple(LABELS)


def listed() -> str:
    """Return every grant type with its label."""
    return "; ".join(f"{label}: {name}" for name, label in LABELS.items())


def grant_types_in_force(stored: Sequence[str], *, type_: str, scopes: Collection[str]) -> tuple[str, ...]:
    """Return the grant types that a client may use: those stored or, if there are none, the default of its type.

    The default is what clients could do before they had this field: sign users in and, with a secret and scopes, act for
    themselves.
    """
    if stored:
        return tuple(stored)
    machine_grant_types = (CLIENT_CREDENTIALS,) if type_ == CONFIDENTIAL and scopes else ()
    return (AUTHORIZATION_CODE, REFRESH_TOKEN, *machine_grant_types)


class Registered(Protocol):
    """What is known of a client here, as a model or as a row."""

    @property
    def type(self) -> str: ...
    @property
    def scopes(self) -> Collection[str]: ...
    @property
    def grant_types(self) -> Sequence[str]: ...


def may_use(client: Registered, grant_type: str) -> bool:
    """Return whether the client may use this grant type."""
    return grant_type in grant_types_in_force(client.grant_types, type_=client.type, scopes=client.scopes)


def rotates_refresh_tokens(stored: bool | None, *, type_: str, bound: bool, by_key: bool) -> bool:
    """Return whether a refresh replaces the refresh token of a client (RFC 9700 section 4.14.2).

    Always for a public client whose tokens are not `bound` to a key or certificate: nothing else would betray a stolen one.
    Otherwise as `stored`, or by default unless the client proves a key: so, or `by_key` when it authenticates.
    """
    if type_ != CONFIDENTIAL and not bound:
        return True
    return stored if stored is not None else not (bound or by_key)
