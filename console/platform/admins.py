"""One admin user: the record, the sessions, what has befallen it, and everything that is done with it."""

from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.frame.access import Staff, needs, staff_at
from console.frame.confirm import confirmed
from console.frame.forms import Reason
from console.frame.lists import uuid_or_none
from console.frame.records import BAD, GOOD, NOTHING, Button, Cell, Record, Table, moment, record_page
from console.frame.scope import chosen_tenant
from console.platform.audit_logs import of_target
from console.platform.forms import AdminForm, NewAdminForm, OwnRecordForm, roles_for
from console.signin import enrollment_passes
from console.signin.proofs import proof_in, with_proof
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


def _admin(staff: Staff, user_id: UUID | str) -> AdminUser:
    """The admin user, if the person may know of it: an operator of all, a tenant's admin of those of the tenant."""
    found = user_id if isinstance(user_id, UUID) else uuid_or_none(user_id)
    if found is None:
        raise Http404
    return find_admin_user(user_id=found, within=staff.user.tenant_id)


def _page_of(user: AdminUser) -> str:
    return reverse("admin:userflow_adminuser_change", args=[user.pk])


@needs("admins:read")
def show(request: HttpRequest, user_id: str) -> HttpResponse:
    """An admin user."""
    staff = staff_at(request)
    user = _admin(staff, user_id)
    roles = sorted(role.name for role in user.roles.all())
    facts = (
        (_("State"), Cell(_("active"), tone=GOOD) if user.active else Cell(_("deactivated"), tone=BAD)),
        (_("E-mail address"), Cell(user.email)),
        (_("Name"), Cell(f"{user.first_name} {user.last_name}".strip() or NOTHING)),
        (_("Works for"), Cell(user.tenant.name if user.tenant else _("the platform"))),
        (_("Roles"), Cell(", ".join(roles) or NOTHING)),
        (_("Second factors"), Cell(", ".join(user.mfa_methods) or _("none"))),
        (_("Last signed in here"), Cell(moment(user.last_login))),
        (_("Made"), Cell(moment(user.created_at))),
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
            buttons=_doings(staff, user),
            back=reverse("admin:userflow_adminuser_changelist"),
        ),
    )


def _doings(staff: Staff, user: AdminUser) -> list[Button]:
    if not staff.may("admins:write"):
        return []

    def button(title: str, name: str) -> Button:
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
        headers=(_("Since"), _("Until"), _("Address"), _("Signed in with"), _("Program")),
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
        empty=_("Nobody is signed in as this user at the moment."),
    )


@needs("admins:write")
def create(request: HttpRequest) -> HttpResponse:
    """Make an admin user with a first password."""
    staff = staff_at(request)
    made: dict[str, AdminUser] = {}

    def act(typed: dict[str, Any]) -> str:
        typed.setdefault("tenant_id", None)
        made["user"], _ticket = actions.create_admin_user(**typed, by=staff.principal)
        return _("The admin user is made. A second factor is enrolled at the first sign-in.")

    return confirmed(
        request,
        title=_("Add admin user"),
        text=_("Whoever works for the platform is an operator; a tenant's admin sees that tenant only."),
        back=reverse("admin:userflow_adminuser_changelist"),
        action=Action.GRANT_ROLES,
        act=act,
        form_class=NewAdminForm,
        form_options={"staff": staff, "tenant": chosen_tenant(request)},
        submit=_("Save"),
        dangerous=False,
        onward=lambda: _page_of(made["user"]),
    )


@needs("admins:write")
def edit(request: HttpRequest, user_id: UUID) -> HttpResponse:
    """Change the record and the roles."""
    staff = staff_at(request)
    user = _admin(staff, user_id)
    held = sorted(role.name for role in user.roles.all())
    initial = {name: getattr(user, name) for name in ("username", "email", "first_name", "last_name")} | {"roles": held}
    own = user.pk == staff.user.pk
    options = {"initial": initial} if own else {"initial": initial, "choices": roles_for(staff, user.tenant_id, held)}
    form: dict[str, Any] = {"form_class": AdminForm, "form_options": options}
    if own:
        form = with_proof(request, OwnRecordForm, options, back=request.get_full_path())

    def act(typed: dict[str, Any]) -> str:
        asked = {**typed, "roles": sorted(typed["roles"])} if "roles" in typed else typed
        changes = {name: value for name, value in asked.items() if name in initial and value != initial[name]}
        proof = proof_in(request, typed) if own and "email" in changes else {}
        if changes:
            changed = actions.update_admin_user(
                user_id=user.pk, by=staff.principal, changes=changes, proof=proof, user_agent=agent(request)
            )
            if changes.get("email", changed.email) != changed.email:
                return _("The new address counts once it is verified by the mail that was sent there.")
        return _("The admin user is saved.")

    return confirmed(
        request,
        title=_("Edit %(name)s") % {"name": user.username},
        text=_("A new e-mail address needs your password or another proof.")
        if own
        else _("Roles count from the next request on. You can give only permissions that you hold yourself."),
        back=_page_of(user),
        action=Action.CHANGE_OWN_EMAIL if own else Action.CHANGE_EMAIL_OF_OTHERS,
        act=act,
        **form,
        submit=_("Save"),
        dangerous=False,
    )


@needs("admins:write")
def activate(request: HttpRequest, user_id: UUID) -> HttpResponse:
    """Let the user in again."""
    return _activity(
        request,
        user_id,
        active=True,
        title=_("Activate %(name)s"),
        text=_("The user can sign in again, with the password and the factors from before."),
        done=_("The admin user is active."),
    )


@needs("admins:write")
def deactivate(request: HttpRequest, user_id: UUID) -> HttpResponse:
    """Keep the user out; all sessions end."""
    return _activity(
        request,
        user_id,
        active=False,
        title=_("Deactivate %(name)s"),
        text=_("All sessions end at once and the user cannot sign in. The record stays and can be activated again."),
        done=_("The admin user is deactivated."),
    )


def _activity(request: HttpRequest, user_id: UUID, *, active: bool, title: str, text: str, done: str) -> HttpResponse:
    staff = staff_at(request)
    user = _admin(staff, user_id)

    def act(_typed: dict[str, Any]) -> str:
        actions.set_admin_active(user_id=user.pk, active=active, by=staff.principal)
        return done

    return confirmed(
        request,
        title=title % {"name": user.username},
        text=text,
        back=_page_of(user),
        action=None if active else Action.END_SESSIONS_OF_OTHERS,
        act=act,
    )


@needs("admins:write")
def reset(request: HttpRequest, user_id: UUID) -> HttpResponse:
    """Remove the factors of a user who has lost them."""
    staff = staff_at(request)
    user = _admin(staff, user_id)

    def act(typed: dict[str, Any]) -> str:
        reset_factors(realm=ADMINS, tenant_id=None, user_id=user.pk, reason=typed["reason"], by=staff.principal)
        return _("The factors are removed. The user receives an enrollment pass by mail.")

    return confirmed(
        request,
        title=_("Reset the factors of %(name)s") % {"name": user.username},
        text=_(
            "Passkeys, authenticator app, backup codes and all sessions of this user end. Make sure that it is the user "
            "who asks. The user receives an enrollment pass by mail, to add a new factor within an hour."
        ),
        back=_page_of(user),
        action=Action.RESET_FACTORS,
        act=act,
        form_class=Reason,
        submit=_("Reset factors"),
    )


@needs("admins:write")
def issue_pass(request: HttpRequest, user_id: UUID) -> HttpResponse:
    """Let a user without a second factor add one."""
    user = _admin(staff_at(request), user_id)
    return enrollment_passes.issue_pass(request, realm=ADMINS, user_id=user.pk, email=user.email, back=_page_of(user))


@needs("admins:write")
def end_all_sessions(request: HttpRequest, user_id: UUID) -> HttpResponse:
    """Sign the user out everywhere."""
    staff = staff_at(request)
    user = _admin(staff, user_id)

    def act(_typed: dict[str, Any]) -> str:
        ended = sessions.end_all_sessions(by=staff.principal, user_id=user.pk, tenant_id=staff.user.tenant_id)
        return ngettext("%(number)d session has ended.", "%(number)d sessions have ended.", ended) % {"number": ended}

    return confirmed(
        request,
        title=_("End all sessions of %(name)s") % {"name": user.username},
        text=_("The user is signed out everywhere at the next request and can sign in again."),
        back=_page_of(user),
        action=None if user.pk == staff.user.pk else Action.END_SESSIONS_OF_OTHERS,
        act=act,
        submit=_("End sessions"),
    )
