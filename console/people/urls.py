"""Paths of the pages inside a tenant. They do not name the tenant: it is the chosen one."""

from typing import Final

from django.contrib.admin import AdminSite
from django.urls import URLPattern, path

from console.frame.access import Page
from console.people import audit_logs, chooser, end_user, groups, invitations, roles
from console.people import end_user_changes as changes

_USER: Final = "people/<uuid:user_id>/"
_GROUP: Final = "groups/<uuid:group_id>/"
_ROLE: Final = "roles/<uuid:role_id>/"
_INVITATION: Final = "invitations/<uuid:invitation_id>/"
# Path, name, page.
PAGES: Final[tuple[tuple[str, str, Page], ...]] = (
    ("", "choose_tenant", chooser.chooser),
    ("people/register/", "register_person", changes.Register.as_view()),
    (_USER, "person", end_user.show),
    (f"{_USER}edit/", "edit_person", changes.Edit.as_view()),
    (f"{_USER}activity/", "person_activity", changes.SetActive.as_view()),
    (f"{_USER}erase/", "erase_person", changes.Erase.as_view()),
    (f"{_USER}factors/reset/", "reset_person_factors", changes.ResetFactors.as_view()),
    (f"{_USER}enrollment-pass/", "issue_person_pass", changes.IssuePass.as_view()),
    (f"{_USER}sessions/end/", "end_person_sessions", changes.EndSessions.as_view()),
    (f"{_USER}sessions/<uuid:session_id>/end/", "end_person_session", changes.EndSession.as_view()),
    (f"{_USER}groups/", "person_groups", groups.EndUserGroups.as_view()),
    (f"{_USER}roles/", "person_roles", roles.EndUserRoles.as_view()),
    (f"{_USER}{_GROUP}leave/", "leave_group", groups.RemoveMember.as_view()),
    (f"{_USER}{_ROLE}take/", "take_role", roles.RemoveHolder.as_view()),
    ("groups/new/", "new_group", groups.CreateGroup.as_view()),
    (_GROUP, "group", groups.show),
    (f"{_GROUP}edit/", "edit_group", groups.EditGroup.as_view()),
    (f"{_GROUP}delete/", "delete_group", groups.DeleteGroup.as_view()),
    (f"{_GROUP}members/", "add_to_group", groups.AddMembers.as_view()),
    ("roles/new/", "new_role", roles.CreateRole.as_view()),
    (_ROLE, "role", roles.show),
    (f"{_ROLE}edit/", "edit_role", roles.EditRole.as_view()),
    (f"{_ROLE}delete/", "delete_role", roles.DeleteRole.as_view()),
    (f"{_ROLE}members/", "give_role", roles.AddHolders.as_view()),
    ("invitations/", "invitations", invitations.listed),
    ("invitations/new/", "invite_person", invitations.Invite.as_view()),
    (f"{_INVITATION}resend/", "resend_invitation", invitations.Resend.as_view()),
    (f"{_INVITATION}cancel/", "cancel_invitation", invitations.Cancel.as_view()),
    ("trail/", "tenant_trail", audit_logs.listed),
)


def pages(site: AdminSite) -> list[URLPattern]:
    """Return the pages beside the lists."""
    return [path(f"inside/{route}", site.admin_view(page), name=name) for route, name, page in PAGES]
