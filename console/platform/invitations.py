"""Invitations of admin users: made, sent again, cancelled. The token is in the mail only."""

from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext as _

from console.frame import labels
from console.frame.access import needs, require, staff_at
from console.frame.confirm import confirmed
from console.frame.lists import uuid_or_none
from console.frame.records import BAD, GOOD, MIND, NOTHING, PLAIN, Button, Cell, Record, moment, record_page
from console.frame.scope import chosen_tenant
from console.platform.forms import InvitationForm
from userflow.invitations import actions
from userflow.invitations.models import ACCEPTED, CANCELLED, EXPIRED, PENDING, AdminInvitation
from userflow.sessions.assurance import Action

TONES = {PENDING: PLAIN, ACCEPTED: GOOD, CANCELLED: BAD, EXPIRED: MIND}
LIST = "admin:userflow_admininvitation_changelist"


def _invitation(request: HttpRequest, invitation_id: UUID | str) -> AdminInvitation:
    found = invitation_id if isinstance(invitation_id, UUID) else uuid_or_none(invitation_id)
    rows = AdminInvitation.objects.select_related("tenant")
    own = staff_at(request).user.tenant_id
    if own is not None:
        rows = rows.filter(tenant_id=own)
    row = rows.filter(pk=found).first() if found else None
    if row is None:
        raise Http404
    return row


def _page_of(row: AdminInvitation) -> str:
    return reverse("admin:userflow_admininvitation_change", args=[row.pk])


@needs("invitations:read")
def show(request: HttpRequest, invitation_id: str) -> HttpResponse:
    """An invitation and what has become of it."""
    row = _invitation(request, invitation_id)
    status = row.status(now())
    buttons = []
    if staff_at(request).may("invitations:write") and status in (PENDING, EXPIRED):
        buttons = [
            Button(_("Send again"), reverse("admin:invitation_resend", args=[row.pk])),
            Button(_("Cancel it"), reverse("admin:invitation_cancel", args=[row.pk])),
        ]
    facts = [
        (_("State"), Cell(labels.state(status), tone=TONES[status])),
        (_("Works for"), Cell(row.tenant.name if row.tenant else _("the platform"))),
        (_("Roles"), Cell(", ".join(row.roles) or NOTHING)),
        (_("Invited"), Cell(moment(row.created_at))),
        (_("Expires"), Cell(moment(row.expires_at))),
        (_("Accepted"), Cell(moment(row.accepted_at))),
        (_("Cancelled"), Cell(moment(row.cancelled_at))),
        (_("Invited by"), Cell(row.invited_by_id, mono=True)),
    ]
    return record_page(request, Record(title=row.email, facts=facts, buttons=buttons, back=reverse(LIST)))


@needs("invitations:write")
def invite(request: HttpRequest) -> HttpResponse:
    """Invite somebody to become an admin user."""
    staff = require(request, "admins:write")

    def act(typed: dict[str, Any]) -> str:
        typed.setdefault("tenant_id", None)
        actions.invite(by=staff.principal, **typed)
        return _("The invitation is on its way; it is good for seven days.")

    return confirmed(
        request,
        title=_("Invite an admin user"),
        text=_("The link in the mail lets this person choose a password and enrol a second factor."),
        back=reverse(LIST),
        action=Action.GRANT_ROLES,
        act=act,
        form_class=InvitationForm,
        form_options={"staff": staff, "tenant": chosen_tenant(request)},
        submit=_("Invite"),
        dangerous=False,
    )


@needs("invitations:write")
def resend(request: HttpRequest, invitation_id: UUID) -> HttpResponse:
    """Send the mail again; the token sent before ends."""
    row = _invitation(request, invitation_id)

    def act(_typed: dict[str, Any]) -> str:
        actions.resend_invitation(by=staff_at(request).principal, tenant_id=row.tenant_id, invitation_id=row.pk)
        return _("The invitation is sent again and good for seven more days.")

    return confirmed(
        request,
        title=_("Send the invitation again"),
        text=_("%(email)s gets a new link, and the one before does not work any more.") % {"email": row.email},
        back=_page_of(row),
        action=Action.GRANT_ROLES,
        act=act,
        submit=_("Send again"),
        dangerous=False,
    )


@needs("invitations:write")
def cancel(request: HttpRequest, invitation_id: UUID) -> HttpResponse:
    """Make the link worthless."""
    row = _invitation(request, invitation_id)

    def act(_typed: dict[str, Any]) -> str:
        actions.cancel_invitation(by=staff_at(request).principal, tenant_id=row.tenant_id, invitation_id=row.pk)
        return _("The invitation is cancelled.")

    return confirmed(
        request,
        title=_("Cancel the invitation"),
        text=_("The link that %(email)s got does not work any more.") % {"email": row.email},
        back=_page_of(row),
        action=None,
        act=act,
        submit=_("Cancel the invitation"),
        dangerous=False,
    )
