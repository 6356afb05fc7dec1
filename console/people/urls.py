"""Paths inside a tenant. None names the tenant: it is the one that is chosen."""

from django.contrib.admin import AdminSite
from django.urls import URLPattern, path

from console.people import audit_logs, chooser, end_user, end_user_changes, groups, invitations, roles


def pages(site: AdminSite) -> list[URLPattern]:
    """The pages beside the lists."""
    views = {
        "inside/": ("choose_tenant", chooser.chooser),
        "inside/people/register/": ("register_person", end_user_changes.register),
        "inside/people/<uuid:user_id>/": ("person", end_user.person),
        "inside/people/<uuid:user_id>/edit/": ("edit_person", end_user_changes.edit),
        "inside/people/<uuid:user_id>/activity/": ("person_activity", end_user_changes.activity),
        "inside/people/<uuid:user_id>/erase/": ("erase_person", end_user_changes.erase),
        "inside/people/<uuid:user_id>/factors/reset/": ("reset_person_factors", end_user_changes.reset_factors),
        "inside/people/<uuid:user_id>/enrollment-pass/": ("issue_person_pass", end_user_changes.issue_pass),
        "inside/people/<uuid:user_id>/sessions/end/": ("end_person_sessions", end_user_changes.end_sessions),
        "inside/people/<uuid:user_id>/sessions/<uuid:session_id>/end/": (
            "end_person_session",
            end_user_changes.end_session,
        ),
        "inside/people/<uuid:user_id>/groups/": ("person_groups", end_user_changes.groups),
        "inside/people/<uuid:user_id>/roles/": ("person_roles", end_user_changes.roles),
        "inside/people/<uuid:user_id>/groups/<uuid:group_id>/leave/": ("leave_group", groups.take_out),
        "inside/people/<uuid:user_id>/roles/<uuid:role_id>/take/": ("take_role", roles.take_away),
        "inside/groups/new/": ("new_group", groups.create),
        "inside/groups/<uuid:group_id>/": ("group", groups.group),
        "inside/groups/<uuid:group_id>/edit/": ("edit_group", groups.edit),
        "inside/groups/<uuid:group_id>/delete/": ("delete_group", groups.delete),
        "inside/groups/<uuid:group_id>/members/": ("add_to_group", groups.add_members),
        "inside/roles/new/": ("new_role", roles.create),
        "inside/roles/<uuid:role_id>/": ("role", roles.role),
        "inside/roles/<uuid:role_id>/edit/": ("edit_role", roles.edit),
        "inside/roles/<uuid:role_id>/delete/": ("delete_role", roles.delete),
        "inside/roles/<uuid:role_id>/members/": ("give_role", roles.add_members),
        "inside/invitations/": ("invitations", invitations.invitations),
        "inside/invitations/new/": ("invite_person", invitations.invite),
        "inside/invitations/<uuid:invitation_id>/resend/": ("resend_invitation", invitations.resend),
        "inside/invitations/<uuid:invitation_id>/cancel/": ("cancel_invitation", invitations.cancel),
        "inside/trail/": ("tenant_trail", audit_logs.trail),
    }
    return [path(route, site.admin_view(view), name=name) for route, (name, view) in views.items()]
