"""What can be done to one end user; each a page that asks and then calls the API's own action."""

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.frame.access import staff_at
from console.frame.confirm import TypedName, confirmed
from console.frame.tenant_pages import inside
from console.people import forms
from console.people.end_user import of_person, path_of
from console.signin import enrollment_passes
from mfa import factors
from tenants.context import tenant_atomic
from tenants.models import Tenant
from userflow.accounts.models import EndUser, GroupMembership, RoleBinding
from userflow.accounts.permissions_catalogue import FACTORS
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.endusers import actions
from userflow.errors import UnknownSession
from userflow.groups.actions import add_members, remove_members
from userflow.roles.actions import bind_users, unbind_users
from userflow.sessions import actions as sessions
from userflow.sessions.assurance import Action


@inside("endusers:read", "endusers:write")
def register(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Register a person with a first password."""
    made: list[EndUser] = []

    def act(fields: dict[str, Any]) -> str:
        user, _ticket = actions.register_end_user(**fields, by=staff_at(request).principal)
        made.append(user)
        return _("%(email)s is registered.") % {"email": user.email}

    return confirmed(
        request,
        title=_("Register a person"),
        text=_("The person can sign in at once with the password that you choose here."),
        back=reverse("admin:userflow_enduser_changelist"),
        action=None,
        act=act,
        form_class=forms.RegisterForm,
        form_options={"clients": forms.clients_of(tenant.pk), "tenant_id": tenant.pk},
        submit=_("Register"),
        onward=lambda: path_of(made[0]),
        dangerous=False,
        tenant=tenant,
    )


@of_person("endusers:write")
def edit(request: HttpRequest, tenant: Tenant, user: EndUser) -> HttpResponse:
    """Change name, e-mail address or metadata."""

    def act(fields: dict[str, Any]) -> str:
        changes = {name: value for name, value in fields.items() if value != getattr(user, name)}
        if not changes:
            return _("Nothing was changed.")
        changed = actions.update_end_user(
            tenant_id=tenant.pk, user_id=user.pk, by=staff_at(request).principal, changes=changes
        )
        if changes.get("email", changed.email) != changed.email:
            return _("The new address counts once it is proven by the mail that was sent there.")
        return _("The record is changed.")

    return confirmed(
        request,
        title=_("Change the record"),
        text=_("A new e-mail address is what the person signs in with; the old address is told of the change."),
        back=path_of(user),
        action=Action.CHANGE_EMAIL_OF_OTHERS,
        act=act,
        form_class=forms.PersonForm,
        form_options={"initial": {"name": user.name, "email": user.email, "metadata": user.metadata}},
        submit=_("Save"),
        dangerous=False,
        tenant=tenant,
    )


@of_person("endusers:write")
def activity(request: HttpRequest, tenant: Tenant, user: EndUser) -> HttpResponse:
    """Deactivate a person who is active, or activate one who is not."""
    active = request.POST.get("active", "" if user.active else "yes") == "yes"

    def act(_fields: dict[str, Any]) -> str:
        changed = actions.set_end_user_active(
            tenant_id=tenant.pk, user_id=user.pk, active=active, by=staff_at(request).principal
        )
        return _("The person is active.") if changed.active else _("The person is deactivated.")

    if active:
        title, text = _("Activate"), _("%(email)s can sign in again.")
    else:
        title, text = (
            _("Deactivate"),
            _("%(email)s cannot sign in any more and is signed out everywhere. Everything is kept."),
        )
    return confirmed(
        request,
        title=title,
        text=text % {"email": user.email},
        back=path_of(user),
        action=None if active else Action.END_SESSIONS_OF_OTHERS,
        act=act,
        dangerous=not active,
        tenant=tenant,
        # What was asked is done, whatever somebody else has done meanwhile.
        context={"hidden": {"active": "yes" if active else "no"}},
    )


@of_person("endusers:delete")
def erase(request: HttpRequest, tenant: Tenant, user: EndUser) -> HttpResponse:
    """Remove a person and everything bound to them for good."""

    def act(_fields: dict[str, Any]) -> str:
        actions.erase_end_user(tenant_id=tenant.pk, user_id=user.pk, by=staff_at(request).principal)
        return _("The person and everything bound to them is erased.")

    return confirmed(
        request,
        title=_("Erase"),
        text=_("%(email)s is removed with factors, sessions, groups and roles. This cannot be undone.")
        % {"email": user.email},
        back=path_of(user),
        action=Action.END_SESSIONS_OF_OTHERS,
        act=act,
        form_class=TypedName,
        form_options={"wanted": user.email},
        submit=_("Erase for good"),
        onward=lambda: reverse("admin:userflow_enduser_changelist"),
        tenant=tenant,
    )


@of_person(FACTORS)
def reset_factors(request: HttpRequest, tenant: Tenant, user: EndUser) -> HttpResponse:
    """Remove all second factors of a person who has lost them."""

    def act(fields: dict[str, Any]) -> str:
        factors.reset_factors(
            realm=END_USERS,
            tenant_id=tenant.pk,
            user_id=user.pk,
            reason=fields["reason"],
            by=staff_at(request).principal,
        )
        return _("All second factors are removed. The user receives an enrollment pass by mail.")

    return confirmed(
        request,
        title=_("Reset second factors"),
        text=_(
            "All passkeys, authenticator apps, phones and backup codes of %(email)s are removed, and all sessions end. "
            "Make sure that it is the user who asks. The user receives an enrollment pass by mail, to add a new factor "
            "within an hour."
        )
        % {"email": user.email},
        back=path_of(user),
        action=Action.RESET_FACTORS,
        act=act,
        form_class=forms.ReasonForm,
        submit=_("Remove all factors"),
        tenant=tenant,
    )


@of_person(FACTORS)
def issue_pass(request: HttpRequest, tenant: Tenant, user: EndUser) -> HttpResponse:
    """Let an end user without a second factor add one."""
    return enrollment_passes.issue_pass(
        request, realm=END_USERS, user_id=user.pk, email=user.email, back=path_of(user), tenant=tenant
    )


@of_person("sessions:write")
def end_sessions(request: HttpRequest, tenant: Tenant, user: EndUser) -> HttpResponse:
    """Sign a person out everywhere."""

    def act(_fields: dict[str, Any]) -> str:
        ended = sessions.end_all_sessions(by=staff_at(request).principal, tenant_id=tenant.pk, user_id=user.pk)
        return ngettext("%(number)s session is ended.", "%(number)s sessions are ended.", ended) % {"number": ended}

    return confirmed(
        request,
        title=_("End all sessions"),
        text=_("%(email)s is signed out everywhere and can sign in again.") % {"email": user.email},
        back=path_of(user),
        action=Action.END_SESSIONS_OF_OTHERS,
        act=act,
        dangerous=False,
        tenant=tenant,
    )


@of_person("sessions:write")
def end_session(request: HttpRequest, tenant: Tenant, user: EndUser, *, session_id: UUID) -> HttpResponse:
    """End one session of a person."""
    if not EndUserSession.objects.filter(pk=session_id, user=user).exists():
        raise UnknownSession

    def act(_fields: dict[str, Any]) -> str:
        sessions.end_one_session(
            by=staff_at(request).principal, session_id=session_id, user_id=user.pk, tenant_id=tenant.pk
        )
        return _("The session is ended.")

    return confirmed(
        request,
        title=_("End this session"),
        text=_("%(email)s is signed out there at the next request.") % {"email": user.email},
        back=path_of(user),
        action=Action.END_SESSIONS_OF_OTHERS,
        act=act,
        dangerous=False,
        tenant=tenant,
    )


@of_person("groups:read", "groups:write")
def groups(request: HttpRequest, tenant: Tenant, user: EndUser) -> HttpResponse:
    """Take a person into groups and out of groups."""
    by, one = staff_at(request).principal, [user.pk]
    return _chosen(
        request,
        tenant,
        user,
        title=_("Groups"),
        text=_("The groups of %(email)s. What they change counts from the next request on."),
        done=_("The groups are changed."),
        choices=forms.group_choices(),
        had=GroupMembership.objects.filter(user=user).values_list("group_id", flat=True),
        add=lambda key: add_members(tenant_id=tenant.pk, by=by, group_id=key, user_ids=one),
        remove=lambda key: remove_members(tenant_id=tenant.pk, by=by, group_id=key, user_ids=one),
    )


@of_person("roles:read", "roles:write")
def roles(request: HttpRequest, tenant: Tenant, user: EndUser) -> HttpResponse:
    """Give a person roles and take them away; those that come by groups stay."""
    by, one = staff_at(request).principal, [user.pk]
    return _chosen(
        request,
        tenant,
        user,
        title=_("Roles"),
        text=_("The roles of %(email)s's own; those that come by groups are changed at the groups."),
        done=_("The roles are changed."),
        choices=forms.role_choices(),
        had=RoleBinding.objects.filter(user=user).values_list("role_id", flat=True),
        add=lambda key: bind_users(tenant_id=tenant.pk, by=by, role_id=key, user_ids=one),
        remove=lambda key: unbind_users(tenant_id=tenant.pk, by=by, role_id=key, user_ids=one),
    )


def _chosen(
    request: HttpRequest,
    tenant: Tenant,
    user: EndUser,
    *,
    title: str,
    text: str,
    done: str,
    choices: list[tuple[str, str]],
    had: Iterable[UUID],
    add: Callable[[UUID], int],
    remove: Callable[[UUID], int],
) -> HttpResponse:
    """Ask which of the choices the person shall have, `had` so far; `text` takes the address."""

    def act(fields: dict[str, Any]) -> str:
        # All of it or nothing: half a change would be nobody's wish.
        with tenant_atomic():
            for key in fields["added"]:
                add(UUID(key))
            for key in fields["removed"]:
                remove(UUID(key))
        return done if fields["added"] or fields["removed"] else _("Nothing was changed.")

    return confirmed(
        request,
        title=title,
        text=text % {"email": user.email},
        back=path_of(user),
        action=Action.GRANT_ROLES,
        act=act,
        form_class=forms.ChosenForm,
        form_options={"label": title, "choices": choices, "had": [str(key) for key in had]},
        submit=_("Save"),
        dangerous=False,
        tenant=tenant,
    )
