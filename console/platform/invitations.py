"""Invitations of admin users. The token is in the mail only."""

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _

from console.frame import labels
from console.frame.access import needs, staff_at
from console.frame.confirm import ConfirmView
from console.frame.forms import Fields
from console.frame.records import BAD, GOOD, MIND, NOTHING, PLAIN, Button, Cell, Record, Text, moment, record_page
from console.frame.scope import chosen_tenant
from console.platform.forms import InvitationForm
from userflow.invitations import actions
from userflow.invitations.models import ACCEPTED, CANCELLED, EXPIRED, PENDING, AdminInvitation
from userflow.sessions.assurance import Action

TONES = {PENDING: PLAIN, ACCEPTED: GOOD, CANCELLED: BAD, EXPIRED: MIND}
LIST = "admin:userflow_admininvitation_changelist"


def _find(request: HttpRequest, invitation_id: UUID) -> AdminInvitation:
    rows = AdminInvitation.objects.select_related("tenant")
    own = staff_at(request).user.tenant_id
    if own is not None:
        rows = rows.filter(tenant_id=own)
    row = rows.filter(pk=invitation_id).first()
    if row is None:
        raise Http404
    return row


def _page_of(row: AdminInvitation) -> str:
    return reverse("admin:userflow_admininvitation_change", args=[row.pk])


@needs("invitations:read")
def show(request: HttpRequest, invitation_id: UUID) -> HttpResponse:
    """An invitation and its status."""
    row = _find(request, invitation_id)
    status = row.status(now())
    buttons = []
    if staff_at(request).may("invitations:write") and status in (PENDING, EXPIRED):
        buttons = [
            Button(_("Send again"), reverse("admin:invitation_resend", args=[row.pk])),
            Button(_("Cancel"), reverse("admin:invitation_cancel", args=[row.pk])),
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


class Invite(ConfirmView):
    """Invite an admin user."""

    permissions = ("invitations:write", "admins:write")
    action = Action.GRANT_ROLES
    title = _("Invite an admin user")
    text = _("The link in the mail lets the invited admin choose a password and enroll a second factor.")
    submit = _("Invite")
    dangerous = False
    form_class = InvitationForm

    def get_back_url(self) -> str:
        return reverse(LIST)

    def get_form_kwargs(self) -> Fields:
        return {**super().get_form_kwargs(), "staff": self.staff, "tenant": chosen_tenant(self.request)}

    def act(self, fields: Fields) -> Text:
        actions.invite(by=self.staff.principal, **{"tenant_id": None, **fields})
        return _("The invitation is sent. It is valid for seven days.")


class InvitationConfirmView(ConfirmView):
    """A page that changes one invitation."""

    permissions = ("invitations:write",)
    dangerous = False
    row: AdminInvitation

    def load(self) -> None:
        self.row = _find(self.request, self.kwargs["invitation_id"])

    def names(self) -> Fields:
        return {"email": self.row.email}

    def get_back_url(self) -> str:
        return _page_of(self.row)


class Resend(InvitationConfirmView):
    """Send the mail again with a new link."""

    action = Action.GRANT_ROLES
    title = _("Send the invitation again")
    text = _("%(email)s receives a new link. The earlier link stops working.")
    submit = _("Send again")

    def act(self, fields: Fields) -> Text:
        actions.resend_invitation(by=self.staff.principal, tenant_id=self.row.tenant_id, invitation_id=self.row.pk)
        return _("The invitation is sent again and valid for seven more days.")


class Cancel(InvitationConfirmView):
    """Cancel the invitation."""

    title = _("Cancel the invitation")
    text = _("The link that %(email)s received stops working.")

    def act(self, fields: Fields) -> Text:
        actions.cancel_invitation(by=self.staff.principal, tenant_id=self.row.tenant_id, invitation_id=self.row.pk)
        return _("The invitation is cancelled.")
