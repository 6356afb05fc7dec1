"""Names and pages of what audit events are about, for one page of events: one statement for each kind of object on it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import F, Model, Value
from django.db.models.functions import Concat
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, Staff
from console.frame.records import Cell, Text, mono
from registry.models import Service, ServiceCredential
from tenants.models import DatabaseServer, Tenant
from userflow.accounts.models import AdminRole, AdminUser, Client, EndUser, Group, Role
from userflow.accounts.principals import ADMIN, CLIENT, END_USER, OPERATOR
from userflow.accounts.session_models import AdminSession, EndUserSession
from userflow.directory.models import DirectoryConfig
from userflow.domains.models import TenantDomain
from userflow.events.models import WebhookEndpoint
from userflow.invitations.models import AdminInvitation, EndUserInvitation


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Objects of one model: what they are called, and where their page is."""

    label: Text
    model: type[Model]
    name: F | Concat
    # What comes before the name, where it is that of the object's user.
    of: Text = ""
    # What the reader needs to see the name, and to open the page.
    sees: str = ""
    opens: str = ""
    page: str = ""
    # The field with the id that the page takes.
    page_of: str = "pk"
    # The field with the tenant, of rows in the global database: tenant admins see names of their own tenant only.
    tenant: str = ""
    # Whether the page opens only while the object's tenant is the open one.
    in_open_tenant: bool = False


def _of_tenant(label: Text, model: type[Model], name: str, right: str, page: str) -> Kind:
    return Kind(label, model, F(name), sees=right, opens=right, page=f"admin:{page}")


def _application(label: Text, model: type[Model], name: F | Concat, right: str, page: str, page_of: str = "pk") -> Kind:
    return Kind(
        label,
        model,
        name,
        sees=right,
        opens=right,
        page=f"admin:{page}",
        page_of=page_of,
        tenant="tenant_id",
        in_open_tenant=True,
    )


_ADMIN_PAGE: Final = "admin:userflow_adminuser_change"
_ADMIN: Final = Kind(
    _("admin user"), AdminUser, F("username"), opens="admins:read", page=_ADMIN_PAGE, tenant="tenant_id"
)
_OPERATOR: Final = Kind(
    _("operator"), AdminUser, F("username"), opens="admins:read", page=_ADMIN_PAGE, tenant="tenant_id"
)
_PERSON: Final = _of_tenant(_("end user"), EndUser, "email", "endusers:read", "person")
_TENANT: Final = Kind(
    _("tenant"), Tenant, F("name"), opens="tenants:read", page="admin:tenants_tenant_change", tenant="pk"
)
_SERVER: Final = Kind(
    _("database server"), DatabaseServer, F("name"), sees="tenants:read", opens="tenants:read", page="admin:server"
)
_ANYWHERE: Final[dict[str, Kind]] = {
    ADMIN: _ADMIN,
    OPERATOR: _OPERATOR,
    "admin_user": _ADMIN,
    "admin_role": Kind(
        _("admin role"),
        AdminRole,
        F("name"),
        sees="admins:read",
        opens="admins:read",
        page="admin:userflow_adminrole_change",
    ),
    "tenant": _TENANT,
    "database_server": _SERVER,
    CLIENT: _application(_("client"), Client, F("name"), "clients:read", "userflow_client_change"),
    "service": _application(_("service"), Service, F("name"), "services:read", "registry_service_change"),
    "service_credential": _application(
        _("credential"),
        ServiceCredential,
        Concat("service__name", Value(" / "), "name"),
        "services:read",
        "registry_service_change",
        "service_id",
    ),
    "directory": _application(_("directory"), DirectoryConfig, F("name"), "directory:read", "directory"),
}
# By the kinds of actors and targets in the events of the platform's log, and of a tenant's own.
IN_PLATFORM: Final[Mapping[str, Kind]] = {
    **_ANYWHERE,
    "user": _ADMIN,
    "session": Kind(
        _("session"),
        AdminSession,
        F("user__username"),
        of=_("session of"),
        opens="admins:read",
        page=_ADMIN_PAGE,
        page_of="user_id",
        tenant="user__tenant_id",
    ),
    "invitation": Kind(
        _("invitation"),
        AdminInvitation,
        F("email"),
        of=_("invitation of"),
        sees="invitations:read",
        opens="invitations:read",
        page="admin:userflow_admininvitation_change",
        tenant="tenant_id",
    ),
}
IN_TENANT: Final[Mapping[str, Kind]] = {
    **_ANYWHERE,
    "user": _PERSON,
    END_USER: _PERSON,
    "group": _of_tenant(_("group"), Group, "name", "groups:read", "group"),
    "role": _of_tenant(_("role"), Role, "name", "roles:read", "role"),
    "session": Kind(
        _("session"),
        EndUserSession,
        F("user__email"),
        of=_("session of"),
        sees="endusers:read",
        opens="endusers:read",
        page="admin:person",
        page_of="user_id",
    ),
    "invitation": Kind(_("invitation"), EndUserInvitation, F("email"), of=_("invitation of"), sees="invitations:read"),
    "domain": _of_tenant(_("domain"), TenantDomain, "domain", "domains:read", "domain"),
    "webhook_endpoint": _of_tenant(_("webhook"), WebhookEndpoint, "url", "webhooks:read", "webhook"),
}
# Kinds without names of their own.
OTHERS: Final[dict[str, Text]] = {
    END_USER: _("end user"),
    "anonymous": _("anonymous"),
    "system": _("the platform"),
    "signing_key": _("signing key"),
    "ring_key": _("encryption key"),
    "database": _("database"),
    "trail": _("audit log"),
    "end_user_import": _("import"),
    "service_import": _("import"),
}
# Fields of `details` that hold an id, by the kind of what it names.
DETAILS: Final[dict[str, str]] = {
    "user_id": "user",
    "by": "user",
    "group_id": "group",
    "role_id": "role",
    "client_id": CLIENT,
    "service_id": "service",
    "directory_id": "directory",
    "session_id": "session",
}


class Names:
    """The names of the objects on one page of events, as far as the reader may see them."""

    def __init__(self, staff: Staff, kinds: Mapping[str, Kind], open_tenant: UUID | None) -> None:
        self.staff, self.kinds, self.open_tenant = staff, kinds, open_tenant
        self.cells: dict[tuple[type[Model], str], Cell] = {}

    def look_up(self, references: Iterable[tuple[str, str]]) -> None:
        """Read the names of these objects, given by kind and id."""
        kinds: dict[type[Model], Kind] = {}
        keys: defaultdict[type[Model], set[str]] = defaultdict(set)
        for kind_name, key in references:
            kind = self.kinds.get(kind_name)
            if key and kind is not None and self._may(kind.sees):
                # Operators and admins of tenants are rows of one model.
                kinds[kind.model] = kind
                keys[kind.model].add(key)
        for model, kind in kinds.items():
            self._read(kind, _keys_of(model, keys[model]))

    def _read(self, kind: Kind, keys: list[object]) -> None:
        rows = kind.model._default_manager.filter(pk__in=keys) if keys else kind.model._default_manager.none()
        if kind.tenant and not self.staff.is_operator:
            rows = rows.filter(**{kind.tenant: self.staff.user.tenant_id})
        fields = {kind.page_of, *([kind.tenant] if kind.tenant else [])} - {"pk"}
        for row in rows.annotate(shown_as=kind.name).values("pk", "shown_as", *fields):
            self.cells[kind.model, str(row["pk"])] = Cell(row["shown_as"], link=self._link(kind, row))

    def _link(self, kind: Kind, row: Context) -> str:
        # Tenant admins open their own tenant's page without a permission.
        may = self._may(kind.opens) or (kind is _TENANT and not self.staff.is_operator)
        elsewhere = kind.in_open_tenant and row[kind.tenant] != self.open_tenant
        return reverse(kind.page, args=[row[kind.page_of]]) if kind.page and may and not elsewhere else ""

    def _may(self, permission: str) -> bool:
        return not permission or self.staff.may(permission)

    def cell(self, kind_name: str, key: str) -> Cell:
        """Return the name with its link, or the id of what has no name here any more."""
        if kind_name == OPERATOR and not self.staff.is_operator:
            return Cell(_("an operator"))
        return self._cell(kind_name, key) or mono(key)

    def label(self, kind_name: str, key: str) -> Text:
        """Return what comes before the name: the kind of the object."""
        kind = self.kinds.get(kind_name)
        if kind is None:
            return OTHERS.get(kind_name, kind_name)
        return kind.of if kind.of and self._cell(kind_name, key) else kind.label

    def _cell(self, kind_name: str, key: str) -> Cell | None:
        kind = self.kinds.get(kind_name)
        return self.cells.get((kind.model, key)) if kind else None


def _keys_of(model: type[Model], texts: Iterable[str]) -> list[object]:
    """Return the texts that can be ids of the model, as its primary keys."""
    column = model._meta.pk
    assert column is not None  # every model has one
    keys: list[object] = []
    for text in texts:
        with suppress(ValidationError):
            keys.append(column.to_python(text))
    return keys
