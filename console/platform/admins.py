"""One admin user: the record, the sessions, the latest events, and the pages that change it."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame.access import Staff, needs, staff_at
from console.frame.confirm import ConfirmView
from console.frame.forms import Fields, Reason
from console.frame.records import BAD, GOOD, NOTHING, Button, Cell, Record, Table, Text, moment, record_page
from console.frame.scope import chosen_tenant
from console.platform.audit_logs import of_target
from console.platform.forms import AdminForm, NewAdminForm, OwnRecordForm, roles_for
from console.signin.enrollment_passes import IssuePassView
from console.signin.proofs import ProofConfirmView, proof_in
from console.signin.views import agent
from mfa.factors import reset_factors
from userflow.accounts.lookups import find_admin_user
from userflow.accounts.models import AdminUser
from userflow.accounts.realms import ADMINS
from userflow.accounts.session_models import AdminSession
from userflow.admins import actions
from userflow.sessions import actions as sessions
from userflow.sessions.assurance import Action

MOST_SESSIONS = 20
_FIELDS = ("username", "email", "first_name", "last_name")


def _find(staff: Staff, user_id: UUID) -> AdminUser:
    """Return the admin user: any for an operator, one of the own tenant for a tenant admin. Raises UnknownUser."""
    return find_admin_user(user_id=user_id, within=staff.user.tenant_id)


def _page_of(user: AdminUser) -> str:
    return reverse("admin:userflow_adminuser_change", args=[user.pk])


@needs("admins:read")
def show(request: HttpRequest, user_id: UUID) -> HttpResponse:
    """An admin user."""
    staff = staff_at(request)
    user = _find(staff, user_id)
    roles = sorted(role.name for role in user.roles.all())
    facts = (
        (_("State"), Cell(_("active"), tone=GOOD) if user.active else Cell(_("deactivated"), tone=BAD)),
        (_("E-mail address"), Cell(user.email)),
        (_("Name"), Cell(f"{user.first_name} {user.last_name}".strip() or NOTHING)),
        (_("Works for"), Cell(user.tenant.name if user.tenant else _("the platform"))),
        (_("Roles"), Cell(", ".join(roles) or NOTHING)),
        (_("Second factors"), Cell(", ".join(user.mfa_methods) or _("none"))),
        (_("Last sign-in"), Cell(moment(user.last_login))),
        (_("Created"), Cell(moment(user.created_at))),
        (_("Id"), Cell(user.pk, mono=True)),
    )
    tables = [_sessions(user)] if staff.may("sessions:read") or user.pk == staff.user.pk else []
    if staff.may("audit:read"):
        tables.append(of_target(user.pk, within=staff.user.tenant_id))
    return record_page(
        request,
        Record(
            title=user.username,
            facts=facts,
            tables=tables,
            buttons=_buttons(staff, user),
            back=reverse("admin:userflow_adminuser_changelist"),
        ),
    )


def _buttons(staff: Staff, user: AdminUser) -> list[Button]:
    if not staff.may("admins:write"):
        return []

    def button(title: Text, name: str) -> Button:
        return Button(title, reverse(f"admin:admin_{name}", args=[user.pk]))

    buttons = [button(_("Edit"), "edit")]
    if not user.active:
        return [*buttons, button(_("Activate"), "activate")]
    if user.pk != staff.user.pk:
        buttons.append(
            button(_("Reset factors"), "reset_factors")
            if user.mfa_methods
            else button(_("Issue enrollment pass"), "issue_pass")
        )
    if staff.may("sessions:write"):
        buttons.append(button(_("End sessions"), "end_sessions"))
    if user.pk != staff.user.pk:
        buttons.append(button(_("Deactivate"), "deactivate"))
    return buttons


def _sessions(user: AdminUser) -> Table:
    found = AdminSession.objects.filter(user=user, ended_at=None, expires_at__gt=now()).order_by("-created_at", "id")
    return Table(
        title=_("Sessions"),
        headers=(_("Created"), _("Expires"), _("Address"), _("Signed in with"), _("User agent")),
        rows=[
            (
                Cell(moment(row.created_at)),
                Cell(moment(row.expires_at)),
                Cell(row.address or NOTHING, mono=True),
                Cell(", ".join(row.amr) or NOTHING),
                Cell(row.user_agent or NOTHING),
            )
            for row in found[:MOST_SESSIONS]
        ],
        empty=_("This user has no active session."),
    )


class CreateAdmin(ConfirmView):
    """Create an admin user with a first password."""

    permissions = ("admins:write",)
    action = Action.GRANT_ROLES
    title = _("Add admin user")
    text = _("Operators work for the platform. A tenant admin sees only that tenant.")
    submit = _("Save")
    dangerous = False
    form_class = NewAdminForm

    created: AdminUser

    def get_back_url(self) -> str:
        return reverse("admin:userflow_adminuser_changelist")

    def get_form_kwargs(self) -> Fields:
        return {**super().get_form_kwargs(), "staff": self.staff, "tenant": chosen_tenant(self.request)}

    def act(self, fields: Fields) -> Text:
        self.created, _ticket = actions.create_admin_user(**{"tenant_id": None, **fields}, by=self.staff.principal)
        return _("The admin user is created. A second factor is enrolled at the first sign-in.")

    def get_success_url(self) -> str:
        return _page_of(self.created)


class AdminConfirmView(ConfirmView):
    """A page that changes one admin user."""

    permissions = ("admins:write",)
    user: AdminUser

    def load(self) -> None:
        self.user = _find(self.staff, self.kwargs["user_id"])

    def names(self) -> Fields:
        return {"name": self.user.username}

    def get_back_url(self) -> str:
        return _page_of(self.user)


def edit(request: HttpRequest, user_id: UUID) -> HttpResponse:
    """Change the record and the roles; of the own record a new e-mail address needs a proof, and roles stay."""
    view = EditOwnRecord if user_id == staff_at(request).user.pk else EditAdmin
    return view.as_view()(request, user_id=user_id)


class EditAdmin(AdminConfirmView):
    """Change another admin user's record and roles."""

    action = Action.CHANGE_EMAIL_OF_OTHERS
    title = _("Edit %(name)s")
    text = _("Roles apply from the next request on. You can give only permissions that you hold yourself.")
    submit = _("Save")
    dangerous = False
    form_class = AdminForm

    def get_initial(self) -> Fields:
        roles = sorted(role.name for role in self.user.roles.all())
        return {**{name: getattr(self.user, name) for name in _FIELDS}, "roles": roles}

    def get_form_kwargs(self) -> Fields:
        choices = roles_for(self.staff, self.user.tenant_id, self.get_initial()["roles"])
        return {**super().get_form_kwargs(), "choices": choices}

    def proof(self, fields: Fields, changes: Fields) -> dict[str, str]:
        """Return the proof that the changes need."""
        return {}

    def act(self, fields: Fields) -> Text:
        initial = self.get_initial()
        asked = {**fields, "roles": sorted(fields["roles"])} if "roles" in fields else fields
        changes = {name: value for name, value in asked.items() if name in initial and value != initial[name]}
        if changes:
            changed = actions.update_admin_user(
                user_id=self.user.pk,
                by=self.staff.principal,
                changes=changes,
                proof=self.proof(fields, changes),
                user_agent=agent(self.request),
            )
            if changes.get("email", changed.email) != changed.email:
                return _("The new address applies once it is verified by the mail that was sent to it.")
        return _("The admin user is saved.")


class EditOwnRecord(ProofConfirmView, EditAdmin):
    """Change the own record."""

    action = Action.CHANGE_OWN_EMAIL
    text = _("A new e-mail address needs your password or another proof.")
    form_class = OwnRecordForm

    def get_form_kwargs(self) -> Fields:
        return {name: value for name, value in super().get_form_kwargs().items() if name != "choices"}

    def proof(self, fields: Fields, changes: Fields) -> dict[str, str]:
        return proof_in(self.request, fields) if "email" in changes else {}


class Activate(AdminConfirmView):
    """Activate a deactivated admin user."""

    title = _("Activate %(name)s")
    text = _("The user can sign in again, with the password and the factors from before.")

    def act(self, fields: Fields) -> Text:
        actions.set_admin_active(user_id=self.user.pk, active=True, by=self.staff.principal)
        return _("The admin user is active.")


class Deactivate(AdminConfirmView):
    """Deactivate an admin user; all sessions end."""

    action = Action.END_SESSIONS_OF_OTHERS
    title = _("Deactivate %(name)s")
    text = _("All sessions end at once and the user cannot sign in. The record stays and can be activated again.")

    def act(self, fields: Fields) -> Text:
        actions.set_admin_active(user_id=self.user.pk, active=False, by=self.staff.principal)
        return _("The admin user is deactivated.")


class ResetFactors(AdminConfirmView):
    """Remove the factors of an admin user who has lost them."""

    action = Action.RESET_FACTORS
    title = _("Reset the factors of %(name)s")
    text = _(
        "Passkeys, authenticator app, backup codes and all sessions of this user end. Make sure that it is the user "
        "who asks. The user receives an enrollment pass by mail, to add a new factor within an hour."
    )
    submit = _("Reset factors")
    form_class = Reason

    def act(self, fields: Fields) -> Text:
        reset_factors(
            realm=ADMINS, tenant_id=None, user_id=self.user.pk, reason=fields["reason"], by=self.staff.principal
        )
        return _("The factors are removed. The user receives an enrollment pass by mail.")


class IssuePass(IssuePassView, AdminConfirmView):
    """Let an admin user without a second factor add one."""

    realm = ADMINS

    def names(self) -> Fields:
        return {"email": self.user.email}

    def recipient(self) -> AdminUser:
        return self.user


class EndAllSessions(AdminConfirmView):
    """Sign an admin user out everywhere."""

    title = _("End all sessions of %(name)s")
    text = _("The user is signed out everywhere from the next request on and can sign in again.")
    submit = _("End sessions")

    def load(self) -> None:
        super().load()
        self.action = None if self.user.pk == self.staff.user.pk else Action.END_SESSIONS_OF_OTHERS

    def act(self, fields: Fields) -> Text:
        ended = sessions.end_all_sessions(
            by=self.staff.principal, user_id=self.user.pk, tenant_id=self.staff.user.tenant_id
        )
        return ngettext("%(number)d session has ended.", "%(number)d sessions have ended.", ended) % {"number": ended}
