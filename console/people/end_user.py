"""One end user: the page, and the pages that change the user by the actions that the API calls too."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console.frame import labels
from console.frame.access import Context, Staff, staff_at
from console.frame.confirm import CreateView, EmailEditView, RowView, TenantConfirmView, TypedDeleteView
from console.frame.labels import methods
from console.frame.records import Text, render_page
from console.frame.tenant_pages import reading_purpose, tenant_page
from console.people import diagnosis, forms
from console.people.source import Source, source_of
from console.people.timeline import FACTORS as FACTOR_KINDS
from console.people.timeline import LOOK, newest_events, timeline
from console.signin.lost_factors import IssuePassView, ResetFactorsView
from identity_platform.api.email_addresses import shown_address
from identity_platform.api.views import Arguments
from identity_platform.audit.writer import record_for_tenant
from identity_platform.postgresql.row_errors import first_or
from mfa import factors
from openid.account.applications import Connected, connected_applications, disconnect_user
from openid.account.devices import device_in_words
from tenants.models import Tenant
from tenants.states import Purpose
from userflow.accounts.models import Client, EndUser, Group, GroupMembership, RoleBinding
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION, FACTORS, HISTORY
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.branding.texts import named_languages
from userflow.credentials.models import EmailProof
from userflow.diagnosis.actions import diagnose_sign_in
from userflow.endusers import actions
from userflow.errors import UnknownClient, UnknownSession, UnknownUser
from userflow.sessions import actions as sessions
from userflow.sessions.assurance import Action

SHOWN_SESSIONS: Final = 20
SHOWN_GROUPS: Final = 100


@dataclass
class EffectiveRole:
    """A role of a user: direct, through groups, or both."""

    id: UUID
    name: str
    permissions: list[str]
    direct: bool = False
    groups: list[str] = field(default_factory=list)


def _record(user: EndUser, *, tenant: Tenant, staff: Staff, purpose: Purpose) -> Context:
    """Return everything about a user of the entered tenant. A part that the reader may not see is None."""
    email_proof = EmailProof.objects.filter(user=user).exclude(email_key=user.email_key).first()
    memberships = GroupMembership.objects.filter(user=user).select_related("group").order_by("group__name")
    roles = effective_roles(user) if staff.may("roles:read") else None
    sessions = _sessions(user) if staff.may("sessions:read") else None
    clients = _client_names([user.client_id, *(session.client_id for session in sessions or ())], tenant)
    events = newest_events(user) if staff.may("audit:read") or staff.may(HISTORY) else None
    return {
        "client": clients.get(user.client_id, ""),
        "pending_email": email_proof.email if email_proof is not None else "",
        "source": source_of(user, tenant=tenant, staff=staff),
        "factors": _factors(user, tenant, purpose),
        "groups": list(memberships[:SHOWN_GROUPS]) if staff.may("groups:read") else None,
        "roles": roles,
        "permissions": None if roles is None else effective(roles),
        "sessions": None if sessions is None else [_session(session, clients) for session in sessions],
        "applications": _applications(user) if staff.may("sessions:read") else None,
        "events": None if events is None else timeline(events, user=user, tenant=tenant, staff=staff),
        "language": dict(named_languages()).get(user.language, ""),
        "metadata": json.dumps(user.metadata, indent=2, ensure_ascii=False),
        "app_metadata": json.dumps(user.app_metadata, indent=2, ensure_ascii=False),
    }


def _factors(user: EndUser, tenant: Tenant, purpose: Purpose) -> Context:
    """Return the second factors, each with its kind in words."""
    listing = factors.list_factors(realm=END_USERS, tenant_id=tenant.pk, user_id=user.pk, purpose=purpose)
    described_factors = [
        {**factor, "kind": FACTOR_KINDS.get(str(factor["kind"]), factor["kind"])} for factor in listing["factors"]
    ]
    return {**listing, "factors": described_factors}


def _sessions(user: EndUser) -> list[EndUserSession]:
    active = EndUserSession.objects.filter(user=user, ended_at=None, expires_at__gt=now())
    return list(active.order_by("-created_at")[:SHOWN_SESSIONS])


def _client_names(ids: Iterable[UUID | None], tenant: Tenant) -> dict[UUID | None, str]:
    client_ids = {key for key in ids if key is not None}
    client_names = Client.objects.filter(tenant_id=tenant.pk, pk__in=client_ids).values_list("pk", "name")
    return dict(client_names) if client_ids else {}


def _session(session: EndUserSession, clients: dict[UUID | None, str]) -> Context:
    return {
        "row": session,
        "device": device_in_words(session.user_agent),
        "methods": methods(session.amr),
        "application": clients.get(session.client_id, ""),
    }


def _applications(user: EndUser) -> list[tuple[Connected, list[str]]]:
    """Return the connected applications, each with what it may have."""
    applications = connected_applications(user.pk)
    return [
        (application, labels.grants([*application.scopes, *application.audiences, *application.claims]))
        for application in applications
    ]


def effective_roles(user: EndUser) -> list[EffectiveRole]:
    """Return the user's roles by name, each with where it comes from."""
    roles_by_id: dict[UUID, EffectiveRole] = {}
    for binding in RoleBinding.objects.filter(user=user).select_related("role"):
        role = binding.role
        roles_by_id[role.pk] = EffectiveRole(role.pk, role.name, role.permissions, direct=True)
    carried = Group.roles.through.objects.filter(group__memberships__user=user).select_related("role", "group")
    for group_role in carried.order_by("group__name"):
        role = group_role.role
        known = roles_by_id.setdefault(role.pk, EffectiveRole(role.pk, role.name, role.permissions))
        known.groups.append(group_role.group.name)
    return sorted(roles_by_id.values(), key=lambda role: role.name.lower())


def effective(roles: Iterable[EffectiveRole]) -> list[tuple[str, list[str], bool]]:
    """Return each permission that the roles give, which of them give it, and whether it is one of the platform."""
    given: dict[str, list[str]] = {}
    for role in roles:
        for permission in role.permissions:
            given.setdefault(permission, []).append(role.name)
    return [(permission, given[permission], permission in EVERY_PERMISSION) for permission in sorted(given)]


def _load(request: HttpRequest, user_id: UUID) -> EndUser:
    """Return the end user and audit the view of the record. Raises UnknownUser."""
    user = first_or(EndUser.objects.filter(pk=user_id), UnknownUser)
    if request.method != "POST":
        record_for_tenant(LOOK, target=("end_user", user.pk), details={"console": True})
    return user


class EndUserConfirmView(RowView[EndUser], TenantConfirmView):
    """A page that changes one end user. Its permissions include endusers:read."""

    list_page = "admin:userflow_enduser_changelist"
    key = "user_id"
    named_by = "email"
    lookup = staticmethod(_load)

    def get_back_url(self) -> str:
        return reverse("admin:person", args=[self.row.pk])


@tenant_page("endusers:read")
def show(request: HttpRequest, tenant: Tenant, user_id: UUID) -> HttpResponse:
    """Show why a sign-in fails; record, groups, roles and permissions, factors, sessions and events of an end user."""
    user = _load(request, user_id)
    staff = staff_at(request)
    record = _record(user, tenant=tenant, staff=staff, purpose=reading_purpose(request))
    sign_in_diagnosis = diagnose_sign_in(tenant_id=tenant.pk, user_id=user.pk, by=staff.principal)
    source = record["source"]
    by_directory = isinstance(source, Source) and source.has_deactivated
    reader = diagnosis.Reader(user, tenant, staff, sign_in_diagnosis, bool(record["pending_email"]), by_directory)
    remarks = diagnosis.remarks(reader)
    return render_page(
        request,
        "console/people/end_user.html",
        user.name or shown_address(user.email),
        {
            "show_back_button": False,
            "record": record,
            "user_": user,
            "tenant": tenant,
            "may": _allowed(staff),
            "remarks": remarks,
            "rejections": list(diagnosis.rejections(sign_in_diagnosis)),
            "button_groups": diagnosis.button_groups(reader, remarks),
        },
    )


def _allowed(staff: Staff) -> dict[str, bool]:
    return {
        "sessions": staff.may("sessions:write"),
        "groups": staff.may("groups:write") and staff.may("groups:read"),
        "roles": staff.may("roles:write") and staff.may("roles:read"),
        "see_trail": staff.may("audit:read"),
    }


class Register(CreateView[EndUser], TenantConfirmView):
    permissions = ("endusers:read", "endusers:write")
    page = "admin:person"
    list_page = EndUserConfirmView.list_page
    title = _("Add end user")
    text = _("The user can sign in at once with the password that you choose here.")
    submit = _("Register")
    form_class = forms.RegisterForm

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "tenant_id": self.tenant.pk}

    def act(self, form: Form) -> Text:
        # The form adds the tenant.
        self.row, _ticket = actions.register_end_user(**form.cleaned_data, by=self.staff.principal)
        return _("%(email)s is registered.") % {"email": self.row.email}


class Edit(EmailEditView[EndUser], EndUserConfirmView):
    permissions = ("endusers:read", "endusers:write")
    action = Action.CHANGE_EMAIL_OF_OTHERS
    title = _("Edit end user")
    text = _("The user signs in with the e-mail address. The old address is notified of a change.")
    form_class = forms.EndUserForm
    done = _("The end user is saved.")
    call = staticmethod(actions.update_end_user)


class SetActive(EndUserConfirmView):
    """Deactivate an active end user, or activate a deactivated one.

    The form carries what was asked for, so that a change made by someone else meanwhile does not turn it around.
    """

    permissions = ("endusers:read", "endusers:write")

    def load(self) -> None:
        super().load()
        self.activate = self.request.POST.get("active", "" if self.row.active else "yes") == "yes"
        self.dangerous = not self.activate
        if self.activate:
            self.title, self.text = _("Activate"), _("%(email)s can sign in again.")
        else:
            self.title = _("Deactivate")
            self.text = _("%(email)s is signed out everywhere and cannot sign in any more. All data is kept.")
            self.action = Action.END_SESSIONS_OF_OTHERS

    def hidden_fields(self) -> dict[str, str]:
        return {"active": "yes" if self.activate else "no"}

    def act(self, form: Form) -> Text:
        changed = actions.set_end_user_active(**self.arguments(), active=self.activate)
        return _("The user is active.") if changed.active else _("The user is deactivated.")


class Erase(TypedDeleteView[EndUser], EndUserConfirmView):
    permissions = ("endusers:read", "endusers:delete")
    action = Action.END_SESSIONS_OF_OTHERS
    call = staticmethod(actions.erase_end_user)
    title = _("Erase")
    text = _("%(email)s is removed with all factors, sessions, groups and roles. This cannot be undone.")
    submit = _("Erase permanently")
    done = _("The user and all data of the user are erased.")


class ResetFactors(ResetFactorsView[EndUser], EndUserConfirmView):
    permissions = ("endusers:read", FACTORS)
    realm = END_USERS
    title = _("Reset second factors")
    text = _(
        "All passkeys, authenticator apps, phones and backup codes of %(email)s are removed, and all sessions end. "
        "Make sure that it is the user who asks. The user receives an enrollment pass by mail, to add a new factor "
        "within an hour."
    )
    submit = _("Remove all factors")
    done = _("All second factors are removed. The user receives an enrollment pass by mail.")


class IssuePass(IssuePassView[EndUser], EndUserConfirmView):
    permissions = ("endusers:read", FACTORS)
    realm = END_USERS


class EndSessions(EndUserConfirmView):
    permissions = ("endusers:read", "sessions:write")
    action = Action.END_SESSIONS_OF_OTHERS
    title = _("End all sessions")
    text = _("%(email)s is signed out everywhere and can sign in again.")
    dangerous = False

    def act(self, form: Form) -> Text:
        ended = sessions.end_all_sessions(**self.arguments())
        return ngettext("%(number)s session is ended.", "%(number)s sessions are ended.", ended) % {"number": ended}


class EndSession(EndUserConfirmView):
    permissions = ("endusers:read", "sessions:write")
    action = Action.END_SESSIONS_OF_OTHERS
    title = _("End this session")
    text = _("%(email)s is signed out there from the next request on.")
    dangerous = False
    call = staticmethod(sessions.end_one_session)
    done = _("The session is ended.")

    def load(self) -> None:
        super().load()
        if not EndUserSession.objects.filter(pk=self.kwargs["session_id"], user=self.row).exists():
            raise UnknownSession

    def arguments(self) -> Arguments:
        return {**super().arguments(), "session_id": self.kwargs["session_id"]}


class Disconnect(EndUserConfirmView):
    """Disconnect an application, as the user can at the account page."""

    permissions = ("endusers:read", "sessions:write")
    action = Action.END_SESSIONS_OF_OTHERS
    title = _("Disconnect %(application)s")
    text = _(
        "%(email)s is signed out of %(application)s, whose codes and tokens become invalid, and is asked for consent again "
        "at the next sign-in through it."
    )
    submit = _("Disconnect")
    done = _("The application is disconnected.")
    call = staticmethod(disconnect_user)

    def load(self) -> None:
        super().load()
        connected = {application.id: application for application in connected_applications(self.row.pk)}
        if self.kwargs["client_id"] not in connected:
            raise UnknownClient
        self.application = connected[self.kwargs["client_id"]]

    def names(self) -> Context:
        return {**super().names(), "application": self.application.name}

    def arguments(self) -> Arguments:
        return {**super().arguments(), "client_id": self.application.id}
