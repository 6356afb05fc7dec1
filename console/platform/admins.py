"""One admin user: the record, the sessions, the latest events, and the pages that change it."""

from functools import partial
from uuid import UUID

from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.audit_logs.events import of_target
from console.frame.access import Context, Staff, needs, staff_at
from console.frame.confirm import CreateView, EmailEditView, RowView
from console.frame.labels import factors, methods
from console.frame.records import Button, Cell, Table, Text, Tone, buttons_to, mono, record_page, with_encoded_form
from console.frame.scope import act_on
from console.platform.forms import AdminForm, NewAdminForm, OwnAccountForm, RecordForm, roles_for
from console.platform.scope_of_admins import ScopedView
from console.signin.lost_factors import IssuePassView, ResetFactorsView
from console.signin.proofs import ProofConfirmView, proof_in
from identity_platform.api.views import Arguments
from openid.account.devices import device_in_words
from userflow.accounts.lookups import find_admin_user
from userflow.accounts.models import AdminUser
from userflow.accounts.realms import ADMINS
from userflow.accounts.session_models import AdminSession
from userflow.admins import actions
from userflow.sessions import actions as sessions
from userflow.sessions.assurance import Action

LIST = "admin:userflow_adminuser_changelist"
PAGE = "admin:userflow_adminuser_change"
MOST_SESSIONS = 20


def _find(request: HttpRequest, user_id: UUID) -> AdminUser:
    """Return the admin user: any for an operator, one of the own tenant for a tenant admin. Raises UnknownUser."""
    user = find_admin_user(user_id=user_id, within=staff_at(request).user.tenant_id)
    if user.tenant is not None:
        act_on(request, user.tenant)
    return user


@needs("admins:read")
def show(request: HttpRequest, user_id: UUID) -> HttpResponse:
    staff = staff_at(request)
    user = _find(request, user_id)
    roles = sorted(role.name for role in user.roles.all())
    facts = (
        (_("State"), Cell(_("active"), tone=Tone.GOOD) if user.active else Cell(_("deactivated"), tone=Tone.BAD)),
        (_("E-mail address"), with_encoded_form(user.email)),
        (_("Name"), f"{user.first_name} {user.last_name}".strip()),
        (_("Scope"), user.tenant.name if user.tenant else _("the platform")),
        (_("Roles"), roles),
        (_("Second factors"), factors(user.mfa_methods)),
        (_("Last sign-in"), user.last_login),
        (_("Created"), user.created_at),
        (_("Id"), mono(user.pk)),
    )
    tables = [_sessions(user)] if staff.may("sessions:read") or user.pk == staff.user.pk else []
    if staff.may("audit:read"):
        tables.append(of_target(user.pk, staff=staff))
    buttons = _buttons(staff, user)
    return record_page(request, user.username, facts=facts, tables=tables, buttons=buttons, back=reverse(LIST))


def _buttons(staff: Staff, user: AdminUser) -> list[Button]:
    if not staff.may("admins:write"):
        return []
    titles: dict[str, Text] = {"edit": _("Edit")}
    other = user.pk != staff.user.pk
    if not user.active:
        titles["activate"] = _("Activate")
    elif other and user.mfa_methods:
        titles["reset_factors"] = _("Reset factors")
    elif other:
        titles["issue_pass"] = _("Issue enrollment pass")
    if user.active and staff.may("sessions:write"):
        titles["end_sessions"] = _("End sessions")
    if user.active and other:
        titles["deactivate"] = _("Deactivate")
    return buttons_to("admin", user.pk, **titles)


def _sessions(user: AdminUser) -> Table:
    sessions = AdminSession.objects.filter(user=user, ended_at=None, expires_at__gt=now()).order_by("-created_at", "id")
    return Table(
        title=_("Sessions"),
        headers=(_("Created"), _("Expires"), _("IP address"), _("Method"), _("Browser")),
        rows=[
            (row.created_at, row.expires_at, mono(row.address), methods(row.amr), device_in_words(row.user_agent))
            for row in sessions[:MOST_SESSIONS]
        ],
        empty=_("This user has no active session."),
    )


class CreateAdmin(ScopedView, CreateView[AdminUser]):
    permissions = ("admins:write",)
    page = PAGE
    list_page = LIST
    action = Action.GRANT_ROLES
    submit = ""
    title = _("Add an admin of %(tenant)s")
    title_of_operator = _("Add an operator of the platform")
    text = _("A tenant admin sees only that tenant.")
    form_class = NewAdminForm
    call = staticmethod(actions.create_admin_user)
    done = _("The admin user is created. A second factor is enrolled at the first sign-in.")


class AdminConfirmView(RowView[AdminUser]):
    permissions = ("admins:write",)
    page = PAGE
    key = "user_id"
    named_by = "username"
    lookup = staticmethod(_find)


def edit(request: HttpRequest, user_id: UUID) -> HttpResponse:
    """Change the record and the roles; of the own record a new e-mail address needs a proof, and roles stay."""
    view = EditOwnRecord if user_id == staff_at(request).user.pk else EditAdmin
    return view.as_view()(request, user_id=user_id)


class EditRecord(EmailEditView[AdminUser], AdminConfirmView):
    call = staticmethod(actions.update_admin_user)
    title = _("Edit %(name)s")
    done = _("The admin user is saved.")
    proof: dict[str, str] | None = None

    def get_initial(self) -> Context:
        return {name: getattr(self.row, name) for name in RecordForm.base_fields}

    def arguments(self) -> Arguments:
        return {**super().arguments(), "proof": self.proof}


class EditAdmin(EditRecord):
    action = Action.CHANGE_EMAIL_OF_OTHERS
    text = _("Roles apply from the next request on. You can give only permissions that you hold yourself.")
    form_class = AdminForm

    def roles(self) -> list[str]:
        return sorted(role.name for role in self.row.roles.all())

    def get_initial(self) -> Context:
        return {**super().get_initial(), "roles": self.roles()}

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "choices": roles_for(self.staff, self.row.tenant_id, self.roles())}


class EditOwnRecord(ProofConfirmView, EditRecord):
    action = Action.CHANGE_OWN_EMAIL
    text = _("A new e-mail address needs your password or another proof.")
    form_class = OwnAccountForm

    def act(self, form: Form) -> Text:
        if form.cleaned_data["email"] != self.row.email:
            self.proof = proof_in(self.request, form.cleaned_data)
        return super().act(form)


class Activate(AdminConfirmView):
    title = _("Activate %(name)s")
    text = _("The user can sign in again, with the password and the factors from before.")
    call = staticmethod(partial(actions.set_admin_active, active=True))
    done = _("The admin user is active.")


class Deactivate(AdminConfirmView):
    action = Action.END_SESSIONS_OF_OTHERS
    title = _("Deactivate %(name)s")
    text = _("All sessions end at once and the user cannot sign in. The record stays and can be activated again.")
    call = staticmethod(partial(actions.set_admin_active, active=False))
    done = _("The admin user is deactivated.")


class ResetFactors(ResetFactorsView[AdminUser], AdminConfirmView):
    realm = ADMINS
    title = _("Reset the factors of %(name)s")
    text = _(
        "Passkeys, authenticator app, backup codes and all sessions of this user end. Make sure that it is the user "
        "who asks. The user receives an enrollment pass by mail, to add a new factor within an hour."
    )
    submit = _("Reset factors")
    done = _("The factors are removed. The user receives an enrollment pass by mail.")


class IssuePass(IssuePassView[AdminUser], AdminConfirmView):
    realm = ADMINS


class EndAllSessions(AdminConfirmView):
    title = _("End all sessions of %(name)s")
    text = _("The user is signed out everywhere from the next request on and can sign in again.")
    submit = _("End sessions")

    def load(self) -> None:
        super().load()
        self.action = None if self.row.pk == self.staff.user.pk else Action.END_SESSIONS_OF_OTHERS

    def act(self, form: Form) -> Text:
        ended = sessions.end_all_sessions(**self.arguments(), tenant_id=self.staff.user.tenant_id)
        return ngettext("%(number)d session has ended.", "%(number)d sessions have ended.", ended) % {"number": ended}
