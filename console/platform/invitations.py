"""Invitations of admin users. The token is in the mail only."""

from uuid import UUID

from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.timezone import now
from django.utils.translation import gettext_lazy as _

from console.frame import labels
from console.frame.access import Context, needs, staff_at
from console.frame.confirm import ConfirmView, RowView
from console.frame.records import BAD, GOOD, MIND, NOTHING, PLAIN, Cell, Record, Text, buttons_to, moment, record_page
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


@needs("invitations:read")
def show(request: HttpRequest, invitation_id: UUID) -> HttpResponse:
    """An invitation and its status."""
    row = _find(request, invitation_id)
    status = row.status(now())
    buttons = []
    if staff_at(request).may("invitations:write") and status in (PENDING, EXPIRED):
        buttons = buttons_to("invitation", row.pk, resend=_("Send again"), cancel=_("Cancel"))
    facts = [
        (_("State"), Cell(labels.state(status), tone=TONES[status])),
        (_("Scope"), Cell(row.tenant.name if row.tenant else _("the platform"))),
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
    list_page = LIST
    action = Action.GRANT_ROLES
    title = _("Invite admin user")
    text = _("The link in the mail lets the invited admin choose a password and enroll a second factor.")
    submit = _("Invite")
    dangerous = False
    form_class = InvitationForm

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "staff": self.staff, "chosen": chosen_tenant(self.request)}

    def act(self, form: Form) -> Text:
        actions.invite(by=self.staff.principal, **{"tenant_id": None, **form.cleaned_data})
        return _("The invitation is sent. It is valid for seven days.")


class InvitationView(RowView[AdminInvitation]):
    """A page that changes one invitation."""

    permissions = ("invitations:write",)
    page = "admin:userflow_admininvitation_change"
    named_by = "email"
    dangerous = False

    def find(self) -> AdminInvitation:
        return _find(self.request, self.kwargs["invitation_id"])

    def names(self) -> Context:
        return {"email": self.row.email}


class Resend(InvitationView):
    """Send the mail again with a new link."""

    action = Action.GRANT_ROLES
    title = _("Send the invitation again")
    text = _("%(email)s receives a new link that is valid for seven days. The earlier link stops working.")
    submit = _("Send again")

    def act(self, form: Form) -> Text:
        actions.resend_invitation(by=self.staff.principal, tenant_id=self.row.tenant_id, invitation_id=self.row.pk)
        return _("The invitation is sent to %(email)s again.") % self.names()


class Cancel(InvitationView):
    """Cancel the invitation."""

    title = _("Cancel the invitation")
    text = _("The link in the mail to %(email)s stops working.")

    def act(self, form: Form) -> Text:
        actions.cancel_invitation(by=self.staff.principal, tenant_id=self.row.tenant_id, invitation_id=self.row.pk)
        return _("The invitation is cancelled.")
