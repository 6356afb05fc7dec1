"""Translated labels of columns, states and kinds of rows.

They are not the models' verbose names, because a changed verbose name is a migration, and a migration is a new version of
every tenant's schema.
"""

from collections.abc import Iterable
from typing import Final

from django.conf import settings
from django.contrib.admin import AdminSite
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Field
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from console.frame.records import NOTHING, Text

COLUMNS: Final[dict[str, Promise]] = {
    "address": _("IP address"),
    "begun by": _("Started by"),
    "created at": _("Created"),
    "description": _("Description"),
    "email": _("E-mail"),
    "expires at": _("Expires"),
    "last used at": _("Last used"),
    "name": _("Name"),
    "provider": _("Provider"),
    "type": _("Type"),
    "updated at": _("Updated"),
    "username": _("Username"),
}
# Authentication methods (RFC 8176) that sessions and events name. `mfa` comes with the passkey that verified its user.
METHODS: Final[dict[str, Text]] = {
    "pwd": _("password"),
    "otp": _("authenticator app"),
    "sms": _("SMS code"),
    "pop": _("passkey"),
}
FACTORS: Final[dict[str, Text]] = {
    "totp": _("authenticator app"),
    "sms": _("SMS code"),
    "webauthn": _("passkey"),
    "backup_code": _("backup code"),
}
STATES: Final[dict[str, Text]] = {
    "accepted": _("accepted"),
    "active": _("active"),
    "cancelled": _("cancelled"),
    "deactivated": _("deactivated"),
    "dead": _("dead"),
    "deleted": _("deleted"),
    "deleting": _("deleting"),
    "delivered": _("delivered"),
    "done": _("done"),
    "expired": _("expired"),
    "failed": _("failed"),
    "inactive": _("inactive"),
    "incomplete": _("incomplete"),
    "interrupted": _("interrupted"),
    "migrating": _("migrating"),
    "moving": _("moving"),
    "next": _("next"),
    "pending": _("pending"),
    "provisioning": _("provisioning"),
    "refused": _("refused"),
    "revoked": _("revoked"),
    "running": _("running"),
    "signing": _("signing"),
    "succeeded": _("succeeded"),
    "suspended": _("suspended"),
    "verifying": _("verifying"),
    "waiting": _("waiting"),
}
# What scopes and audiences let an application have. Those of the tenant's own are shown by their names.
GRANTS: Final[dict[str, Text]] = {
    "openid": _("identifier"),
    "profile": _("name"),
    "email": _("e-mail address"),
    "phone": _("phone number"),
    "groups": _("groups"),
    "roles": _("roles"),
    "offline_access": _("access while the user is away"),
    str(settings.TOKEN_AUDIENCE): _("API of this platform"),
}
# The plural depends on the number of rows.
KINDS: Final = {
    "tenant": ngettext_lazy("tenant", "tenants", "number"),
    "job": ngettext_lazy("job", "jobs", "number"),
    "service": ngettext_lazy("service", "services", "number"),
    "client": ngettext_lazy("client", "clients", "number"),
    "admin user": ngettext_lazy("admin user", "admin users", "number"),
    "admin invitation": ngettext_lazy("admin invitation", "admin invitations", "number"),
    "admin role": ngettext_lazy("admin role", "admin roles", "number"),
    "end user": ngettext_lazy("end user", "end users", "number"),
    "group": ngettext_lazy("group", "groups", "number"),
    "role": ngettext_lazy("role", "roles", "number"),
    "end user session": ngettext_lazy("session", "sessions", "number"),
}


def grants(names: Iterable[str]) -> list[str]:
    """Return what these scopes and audiences stand for, those with words first."""
    granted_names = set(names)
    return [
        *(str(text) for name, text in GRANTS.items() if name in granted_names),
        *sorted(granted_names - GRANTS.keys()),
    ]


def methods(amr: Iterable[str]) -> str:
    """Return authentication methods in words."""
    return ", ".join(str(METHODS[name]) for name in amr if name in METHODS) or str(_("an unknown method"))


def factors(mfa_methods: Iterable[str]) -> str:
    """Return the kinds of a user's second factors in words, or a dash."""
    return ", ".join(str(FACTORS[name]) for name in mfa_methods) or NOTHING


def state(value: str) -> str:
    """Return the translated label of a state."""
    return str(STATES[value])


def labelled(value: str) -> tuple[str, str]:
    """Return a state and its label, for a column of badges that are coloured by state."""
    return value, state(value)


def counted(kind: str, number: int) -> str:
    """Return the plural of a kind of row for the end of a list. Raises KeyError for an unknown kind."""
    return str(KINDS[kind] % {"number": number})


def name_columns(site: AdminSite) -> None:
    """Label the columns of the lists. Raises KeyError at start for a column without a label in COLUMNS."""
    for model, lists in site._registry.items():
        counted(str(model._meta.verbose_name), 1)
        for column in lists.list_display:
            try:
                field = model._meta.get_field(str(column))
            except FieldDoesNotExist:
                continue  # a method, which has a label of its own
            if isinstance(field, Field) and not isinstance(field.verbose_name, Promise):
                field.verbose_name = COLUMNS[field.verbose_name]  # type: ignore[assignment]  # a lazy text is one
