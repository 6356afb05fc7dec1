"""Invitations of admin users. The token is in the mail only."""

from typing import ClassVar
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _

from console.frame import labels
from console.frame.access import needs, staff_at
from console.frame.confirm import RowView
from console.frame.records import Cell, Tone, buttons_to, mono, record_page, with_encoded_form
from console.frame.scope import act_on
from console.platform.forms import InvitationForm
from console.platform.scope_of_admins import ScopedView
from identity_platform.api.email_addresses import shown_address
from identity_platform.api.views import Arguments
from userflow.accounts.principals import OPERATOR
from userflow.invitations import actions
from userflow.invitations.models import ACCEPTED, CANCELLED, EXPIRED, PENDING, AdminInvitation, EndUserInvitation
from userflow.sessions.assurance import Action

TONES = {PENDING: Tone.PLAIN, ACCEPTED: Tone.GOOD, CANCELLED: Tone.BAD, EXPIRED: Tone.WARNING}
LIST = "admin:userflow_admininvitation_changelist"


def _find(request: HttpRequest, invitation_id: UUID) -> AdminInvitation:
    rows = AdminInvitation.objects.select_related("tenant__database")
    tenant_id = staff_at(request).user.tenant_id
    if tenant_id is not None:
        rows = rows.filter(tenant_id=tenant_id)
    invitation = get_object_or_404(rows, pk=invitation_id)
    if invitation.tenant is not None:
        act_on(request, invitation.tenant)
    return invitation


def _inviter(request: HttpRequest, row: AdminInvitation) -> Cell:
    """Return who has invited; only operators see the id of an operator."""
    if row.invited_by_kind == OPERATOR and not staff_at(request).is_operator:
        return Cell(_("an operator"))
    return mono(row.invited_by_id)


@needs("invitations:read")
def show(request: HttpRequest, invitation_id: UUID) -> HttpResponse:
    row = _find(request, invitation_id)
    status = row.status(now())
    buttons = []
    if staff_at(request).may("invitations:write") and status in (PENDING, EXPIRED):
        buttons = buttons_to("invitation", row.pk, resend=_("Send again"), cancel=_("Cancel"))
    facts = [
        (_("E-mail address"), with_encoded_form(row.email)),
        (_("State"), Cell(labels.state(status), tone=TONES[status])),
        (_("Scope"), row.tenant.name if row.tenant else _("the platform")),
        (_("Roles"), row.roles),
        (_("Invited"), row.created_at),
        (_("Expires"), row.expires_at),
        (_("Accepted"), row.accepted_at),
        (_("Cancelled"), row.cancelled_at),
        (_("Invited by"), _inviter(request, row)),
    ]
    return record_page(request, shown_address(row.email), facts=facts, buttons=buttons, back=reverse(LIST))


class Invite(ScopedView):
    permissions = ("invitations:write", "admins:write")
    list_page = LIST
    action = Action.GRANT_ROLES
    title = _("Invite an admin of %(tenant)s")
    title_of_operator = _("Invite an operator of the platform")
    text = _("The link in the mail lets the invited admin choose a password and enroll a second factor.")
    dangerous = False
    form_class = InvitationForm
    call = staticmethod(actions.invite)
    done = _("The invitation is sent. It is valid for seven days.")


class InvitationView(RowView[AdminInvitation | EndUserInvitation]):
    permissions: ClassVar[tuple[str, ...]] = ("invitations:write",)
    page = "admin:userflow_admininvitation_change"
    key = "invitation_id"
    named_by = "email"
    dangerous = False
    lookup = staticmethod(_find)

    def arguments(self) -> Arguments:
        return {"tenant_id": getattr(self.row, "tenant_id", None), **super().arguments()}


class Resend(InvitationView):
    action: Action | None = Action.GRANT_ROLES
    title = _("Send the invitation again")
    text = _("%(email)s receives a new link that is valid for seven days. The earlier link stops working.")
    submit = _("Send again")
    call = staticmethod(actions.resend_invitation)
    done = _("The invitation is sent to %(email)s again.")


class Cancel(InvitationView):
    title = _("Cancel the invitation")
    text = _("The link in the mail to %(email)s stops working.")
    call = staticmethod(actions.cancel_invitation)
    done = _("The invitation is cancelled.")
