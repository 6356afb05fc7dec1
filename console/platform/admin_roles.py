"""Roles of admin users: the page of one, and the pages by which operators create, change and delete their own."""

from typing import Unpack

from django import forms
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame.access import Context, Staff, needs, staff_at
from console.frame.confirm import ConfirmView, CreateView, EditView, RowView, TypedDeleteView
from console.frame.forms import Boxes, FormOptions, Line, set_choices
from console.frame.records import Button, Cell, Table, Text, buttons_to, mono, record_page, with_encoded_form
from identity_platform.api.views import Arguments
from userflow.accounts.models import AdminRole, AdminUser
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION, EXPORT_HASHES, OPERATOR_PERMISSIONS
from userflow.admin_roles import actions
from userflow.sessions.assurance import Action

LIST = "admin:userflow_adminrole_changelist"
PAGE = "admin:userflow_adminrole_change"
MOST_HOLDERS = 50


def visible_roles(request: HttpRequest) -> QuerySet[AdminRole]:
    """Return all roles for an operator, else those that a tenant admin can have."""
    roles = AdminRole.objects.order_by("name")
    if staff_at(request).is_operator:
        return roles
    for permission in OPERATOR_PERMISSIONS:
        roles = roles.exclude(permissions__contains=[permission])
    return roles


def _find(request: HttpRequest, role_id: int) -> AdminRole:
    # Greater numbers are no ids of the table.
    role = visible_roles(request).filter(pk=role_id).first() if role_id < 2**63 else None
    if role is None:
        raise Http404
    return role


@needs("admins:read")
def show(request: HttpRequest, role_id: str) -> HttpResponse:
    """Show the permissions and the holders of a role."""
    # int() rejects very many digits.
    if not (role_id.isascii() and role_id.isdigit() and len(role_id) < 19):
        raise Http404
    role, staff = _find(request, int(role_id)), staff_at(request)
    permissions = Table(
        title=_("Permissions"),
        headers=(_("Permission"),),
        rows=[(mono(permission),) for permission in sorted(role.permissions)],
        empty=_("This role has no permissions."),
    )
    facts = [(_("Kind"), _("built-in") if actions.is_built_in(role) else _("custom"))]
    tables = [permissions, _holders(role, staff)]
    return record_page(
        request, role.name, facts=facts, tables=tables, buttons=_buttons(staff, role), back=reverse(LIST)
    )


def _holders(role: AdminRole, staff: Staff) -> Table:
    holders = AdminUser.objects.filter(roles=role).order_by("username")
    if staff.user.tenant_id is not None:
        holders = holders.filter(tenant_id=staff.user.tenant_id)
    return Table(
        title=_("Holders"),
        headers=(_("Username"), _("E-mail address"), _("Active")),
        rows=[
            (
                Cell(user.username, link=reverse("admin:userflow_adminuser_change", args=[user.pk])),
                with_encoded_form(user.email),
                user.active,
            )
            for user in holders[:MOST_HOLDERS]
        ],
        note=_("At most %(most)d are shown.") % {"most": MOST_HOLDERS},
        empty=_("No holders. Roles are given on the page of an admin user."),
    )


def _buttons(staff: Staff, role: AdminRole) -> list[Button]:
    if not (staff.is_operator and staff.may("admins:write")) or actions.is_built_in(role):
        return []
    return buttons_to("admin_role", role.pk, edit=_("Edit"), remove=_("Delete"))


class PermissionsForm(forms.Form):
    permissions = Boxes(
        label=_("Permissions"),
        help_text=_(
            "You can give only permissions that you hold. endusers:history shows the events of one user on the user's page; "
            "audit:read opens the whole audit log."
        ),
    )

    def __init__(self, *, staff: Staff, **options: Unpack[FormOptions]) -> None:
        super().__init__(**options)
        set_choices(
            self,
            "permissions",
            [(name, name) for name in EVERY_PERMISSION if staff.may(name) and name != EXPORT_HASHES],
        )

    def clean_permissions(self) -> list[str]:
        """Return the permissions in the order of the initial value."""
        return sorted(self.cleaned_data["permissions"])


class RoleForm(PermissionsForm):
    name = Line(
        label=_("Name"), max_length=63, help_text=_("a-z, 0-9 and dashes, such as support-desk. It cannot be changed.")
    )
    field_order = ("name", "permissions")


class RolesView(ConfirmView):
    permissions = ("admins:read", "admins:write")
    operators_only = True
    page = PAGE
    list_page = LIST
    action = Action.GRANT_ROLES


class CreateRole(RolesView, CreateView[AdminRole]):
    title = _("Add admin role")
    text = _("Admin users of the platform and of all tenants can be given the role.")
    form_class = RoleForm
    call = staticmethod(actions.create_admin_role)
    done = _("The role is created. Give it to users on their pages.")

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "staff": self.staff}


class ChangedRoleView(RolesView, RowView[AdminRole]):
    key = "role_id"
    lookup = staticmethod(_find)

    def load(self) -> None:
        super().load()
        if actions.is_built_in(self.row):
            raise PermissionDenied(_("Built-in roles cannot be changed or deleted. Create a role of your own."))


class EditRole(ChangedRoleView, EditView[AdminRole]):
    title = _("Edit %(name)s")
    text = _("Added and removed permissions apply to all holders from their next request on.")
    form_class = PermissionsForm
    call = staticmethod(actions.update_admin_role)
    done = _("The role is saved.")

    def get_initial(self) -> Context:
        return {"permissions": sorted(self.row.permissions)}

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "staff": self.staff}

    def update(self, changes: Arguments) -> Text:
        self.call_action(**changes)
        return self.done


class DeleteRole(ChangedRoleView, TypedDeleteView[AdminRole]):
    title = _("Delete %(name)s")
    text = _("Only a role that no admin user and no pending invitation has can be deleted.")
    submit = _("Delete")
    call = staticmethod(actions.delete_admin_role)
    done = _("The role is deleted.")
