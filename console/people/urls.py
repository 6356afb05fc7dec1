"""Paths of the pages inside a tenant. They do not name the tenant: it is the chosen one."""

from django.contrib.admin import AdminSite
from django.urls import URLPattern, path

from console.people import audit_logs, chooser, end_user, end_user_changes, groups, invitations, roles


def pages(site: AdminSite) -> list[URLPattern]:
    """Return the pages beside the lists."""
    views = {
        "inside/": ("choose_tenant", chooser.chooser),
        "inside/people/register/": ("register_person", end_user_changes.Register.as_view()),
        "inside/people/<uuid:user_id>/": ("person", end_user.show),
        "inside/people/<uuid:user_id>/edit/": ("edit_person", end_user_changes.Edit.as_view()),
        "inside/people/<uuid:user_id>/activity/": ("person_activity", end_user_changes.SetActive.as_view()),
        "inside/people/<uuid:user_id>/erase/": ("erase_person", end_user_changes.Erase.as_view()),
        "inside/people/<uuid:user_id>/factors/reset/": (
            "reset_person_factors",
            end_user_changes.ResetFactors.as_view(),
        ),
        "inside/people/<uuid:user_id>/enrollment-pass/": ("issue_person_pass", end_user_changes.IssuePass.as_view()),
        "inside/people/<uuid:user_id>/sessions/end/": ("end_person_sessions", end_user_changes.EndSessions.as_view()),
        "inside/people/<uuid:user_id>/sessions/<uuid:session_id>/end/": (
            "end_person_session",
            end_user_changes.EndSession.as_view(),
        ),
        "inside/people/<uuid:user_id>/groups/": ("person_groups", groups.EndUserGroups.as_view()),
        "inside/people/<uuid:user_id>/roles/": ("person_roles", roles.EndUserRoles.as_view()),
        "inside/people/<uuid:user_id>/groups/<uuid:group_id>/leave/": ("leave_group", groups.RemoveMember.as_view()),
        "inside/people/<uuid:user_id>/roles/<uuid:role_id>/take/": ("take_role", roles.RemoveHolder.as_view()),
        "inside/groups/new/": ("new_group", groups.CreateGroup.as_view()),
        "inside/groups/<uuid:group_id>/": ("group", groups.show),
        "inside/groups/<uuid:group_id>/edit/": ("edit_group", groups.EditGroup.as_view()),
        "inside/groups/<uuid:group_id>/delete/": ("delete_group", groups.DeleteGroup.as_view()),
        "inside/groups/<uuid:group_id>/members/": ("add_to_group", groups.AddMembers.as_view()),
        "inside/roles/new/": ("new_role", roles.CreateRole.as_view()),
        "inside/roles/<uuid:role_id>/": ("role", roles.show),
        "inside/roles/<uuid:role_id>/edit/": ("edit_role", roles.EditRole.as_view()),
        "inside/roles/<uuid:role_id>/delete/": ("delete_role", roles.DeleteRole.as_view()),
        "inside/roles/<uuid:role_id>/members/": ("give_role", roles.AddHolders.as_view()),
        "inside/invitations/": ("invitations", invitations.listed),
        "inside/invitations/new/": ("invite_person", invitations.Invite.as_view()),
        "inside/invitations/<uuid:invitation_id>/resend/": ("resend_invitation", invitations.Resend.as_view()),
        "inside/invitations/<uuid:invitation_id>/cancel/": ("cancel_invitation", invitations.Cancel.as_view()),
        "inside/trail/": ("tenant_trail", audit_logs.listed),
    }
    return [path(route, site.admin_view(view), name=name) for route, (name, view) in views.items()]
