from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _

from console.frame.access import staff_at
from console.frame.labels import STATES, factors, labelled
from console.frame.lists import (
    ActiveFilter,
    AddressSearch,
    ChoiceFilter,
    ChosenTenantModelAdmin,
    ConsoleModelAdmin,
    column,
)
from console.frame.records import NOTHING, Text, with_encoded_form
from console.frame.scope import chosen_tenant
from console.platform import admin_roles, admins, clients, invitations
from userflow.accounts.models import AdminRole, AdminUser, Client
from userflow.invitations.models import ACCEPTED, CANCELLED, EXPIRED, PENDING, AdminInvitation
from userflow.invitations.queries import with_status

_STATE = column(
    _("State"),
    lambda row: labelled("active" if row.active else "deactivated"),
    badges={"active": "success", "deactivated": "danger"},
)
_SCOPE = column(_("Scope"), lambda row: row.tenant.name if row.tenant else _("the platform"))


class WorksFor(ChoiceFilter):
    """Operators, tenant admins, or those of the chosen tenant. Tenant admins see their own tenant only."""

    title = _("scope")
    parameter_name = "side"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, Text]]:
        self.chosen = chosen_tenant(request)
        sides: list[tuple[str, Text]] = [("platform", _("the platform")), ("tenants", _("a tenant"))]
        if self.chosen:
            sides.append(("chosen", _("the chosen tenant")))
        return sides if staff_at(request).is_operator else []

    def matching(self, rows: QuerySet[Model], value: str) -> QuerySet[Model]:
        if value == "chosen":
            return rows.filter(tenant=self.chosen)
        return rows.filter(tenant__isnull=value == "platform")


@admin.register(AdminUser)
class AdminUserAdmin(AddressSearch, ConsoleModelAdmin):
    view_permission = "admins:read"
    of_tenant = "tenant_id"
    list_title = _("Admin users")
    empty_title = _("No admin users")
    empty_text = _("Invite an admin by mail, or add one with a first password.")
    list_display = ("username", "address", "works_for", "shown_roles", "second_factors", "state")
    list_filter = (WorksFor, ActiveFilter)
    list_select_related = ("tenant",)
    search_fields = ("username", "email")
    search_help_text = _("Part of a username or an address")
    sortable_by = ("username",)
    ordering = ("-created_at", "id")
    key = "user_id"
    add = staticmethod(admins.CreateAdmin.as_view())
    add_needs = ("admins:write",)
    show = staticmethod(admins.show)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        return super().get_queryset(request).prefetch_related("roles")

    address = column(_("E-mail"), lambda row: with_encoded_form(row.email))
    works_for = _SCOPE
    shown_roles = column(_("Roles"), lambda user: ", ".join(sorted(role.name for role in user.roles.all())) or NOTHING)
    second_factors = column(_("Second factors"), lambda user: factors(user.mfa_methods))
    state = _STATE


class InvitationStatus(ChoiceFilter):
    title = _("state")
    parameter_name = "state"
    options = tuple((state, STATES[state]) for state in (PENDING, EXPIRED, ACCEPTED, CANCELLED))

    def matching(self, rows: QuerySet[AdminInvitation], value: str) -> QuerySet[AdminInvitation]:  # type: ignore[override]  # of invitations only
        return with_status(rows, value)


@admin.register(AdminInvitation)
class AdminInvitationAdmin(AddressSearch, ConsoleModelAdmin):
    view_permission = "invitations:read"
    of_tenant = "tenant_id"
    list_title = _("Admin invitations")
    empty_title = _("No invitations")
    empty_text = _("Invite an admin: the link in the mail leads to a password and a second factor.")
    list_display = ("address", "works_for", "shown_roles", "state", "created_at", "expires_at")
    list_filter = (WorksFor, InvitationStatus)
    list_select_related = ("tenant",)
    search_fields = ("email",)
    search_help_text = _("Part of an address")
    ordering = ("-created_at", "-id")
    key = "invitation_id"
    add = staticmethod(invitations.Invite.as_view())
    add_needs = ("invitations:write", "admins:write")
    show = staticmethod(invitations.show)

    address = column(_("E-mail"), lambda row: with_encoded_form(row.email))
    works_for = _SCOPE
    shown_roles = column(_("Roles"), lambda row: ", ".join(row.roles) or NOTHING)
    state = column(_("State"), lambda row: labelled(row.status(now())), badges=invitations.TONES)


@admin.register(AdminRole)
class AdminRoleAdmin(ConsoleModelAdmin):
    """Roles of admin users, the same for all tenants."""

    view_permission = "admins:read"
    list_title = _("Admin roles")
    list_display = ("name", "permission_names")
    ordering = ("name",)
    add = staticmethod(admin_roles.CreateRole.as_view())
    add_needs = ("admins:read", "admins:write")

    permission_names = column(_("Permissions"), lambda role: ", ".join(sorted(role.permissions)))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        return admin_roles.visible_roles(request)

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return super().has_add_permission(request) and staff_at(request).is_operator

    def change_view(self, request: HttpRequest, object_id: str, *args: object) -> HttpResponse:
        return admin_roles.show(request, object_id)


@admin.register(Client)
class ClientAdmin(ChosenTenantModelAdmin):
    view_permission = "clients:read"
    list_title = _("Clients")
    empty_title = _("No clients")
    empty_text = _("Add a client for each application that signs users in or calls the platform.")
    list_display = ("name", "type", "default", "state", "last_used_at", "created_at")
    sortable_by = ("name", "last_used_at", "created_at")
    list_filter = (ActiveFilter,)
    search_fields = ("name",)
    search_help_text = _("Part of a name")
    ordering = ("-created_at", "id")
    key = "client_id"
    add = staticmethod(clients.choose_kind)
    add_needs = ("clients:write",)
    show = staticmethod(clients.show)
    delete = staticmethod(clients.DeleteClient.as_view())

    default = column(_("Default"), lambda client: _("yes") if client.is_default else NOTHING)
    state = _STATE
