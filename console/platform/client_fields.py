"""The fields of a client on the console's pages: the kinds of applications in words, and fields in groups."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from django.forms import BoundField, Form
from django.utils.translation import gettext_lazy as _

from console.frame.records import Text
from userflow.clients.kinds import DEVICE, MACHINE, NATIVE, SINGLE_PAGE, WEB
from userflow.sessions.certificate_authentication import AUTHORITIES, SUBJECT_FIELDS

# What each kind is called, and what tells it from the others.
KIND_LABELS: Final[dict[str, tuple[Text, Text]]] = {
    SINGLE_PAGE: (
        _("Single-page application"),
        _("JavaScript in the browser without a server of its own, such as React, Vue or Angular. It has no secret."),
    ),
    WEB: (
        _("Web application"),
        _("Pages that a server makes, such as Django, Express, Next.js or ASP.NET Core. The server keeps a secret."),
    ),
    NATIVE: (
        _("Native application"),
        _("An app on a phone or a desktop. It signs users in with the system's browser and has no secret."),
    ),
    DEVICE: (
        _("Device"),
        _("A television, a command line or another device on which users cannot sign in with a browser."),
    ),
    MACHINE: (_("Machine"), _("A service or script that acts for itself, without a user. It keeps a secret.")),
}
# A field that is in none of them is in the last one.
_GROUPS: Final[tuple[tuple[Text, tuple[str, ...]], ...]] = (
    (_("Application"), ("name", "client_uri", "policy_uri", "tos_uri", "logo_uri", "tags")),
    (
        _("Sign-in"),
        (
            "redirect_uris",
            "post_logout_redirect_uris",
            "allowed_origins",
            "backchannel_logout_uri",
            "self_registration",
            "first_party",
            "direct_sign_in",
            "default_max_age",
        ),
    ),
    (_("Access"), ("scopes", "audiences", "grant_types")),
    (
        _("Authentication of the application"),
        (
            "token_endpoint_auth_method",
            "jwks",
            "jwks_uri",
            *SUBJECT_FIELDS,
            AUTHORITIES,
            "require_pkce",
            "require_nonce",
            "require_par",
            "dpop_bound_access_tokens",
            "tls_client_certificate_bound_access_tokens",
        ),
    ),
    (
        _("Tokens"),
        (
            "id_token_signed_response_alg",
            "access_token_signed_response_alg",
            "refresh_token_rotation",
            "access_token_seconds",
        ),
    ),
    (_("Other settings"), ()),
)
_GROUPED: Final = {name for _title, names in _GROUPS for name in names}


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Fields under a heading."""

    title: Text
    fields: list[BoundField]


def field_groups(form: Form, names: Collection[str]) -> list[FieldGroup]:
    """Return these fields of the form in groups, without the empty ones."""
    rest = [name for name in form.fields if name not in _GROUPED]
    groups = [
        FieldGroup(title, [form[name] for name in (known or rest) if name in names and name in form.fields])
        for title, known in _GROUPS
    ]
    return [group for group in groups if group.fields]
