"""Invitations of the tenant: the list, and pages that create, resend and cancel them."""

from typing import ClassVar, Final
from uuid import UUID

from django.forms import ChoiceField, Form, IntegerField
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame import labels
from console.frame.access import Context, staff_at
from console.frame.confirm import TenantConfirmView
from console.frame.records import Text, render_page
from console.frame.tenant_pages import reading_purpose, tenant_page
from console.people import forms
from console.platform import invitations as platform
from identity_platform.audit.writer import record_for_tenant
from identity_platform.postgresql.row_errors import first_or
from tenants.models import Tenant
from userflow.errors import UnknownInvitation
from userflow.invitations import actions
from userflow.invitations.models import ACCEPTED, ADMIN, CANCELLED, EXPIRED, PENDING, AdminInvitation, EndUserInvitation
from userflow.sessions.assurance import Action

ON_A_PAGE: Final = 50
LIST: Final = "admin:invitations"
PERMISSIONS: Final = ("invitations:read", "invitations:write")
STATES: Final = [(state, labels.STATES[state]) for state in (PENDING, ACCEPTED, EXPIRED, CANCELLED)]


class InvitationListForm(Form):
    status = ChoiceField(choices=STATES, required=False)
    page = IntegerField(required=False, min_value=1, max_value=1000)


@tenant_page("invitations:read")
def listed(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """List the invitations of both kinds, newest first."""
    form = InvitationListForm(request.GET)
    form.is_valid()
    status, page = form.cleaned_data.get("status") or None, form.cleaned_data.get("page") or 1
    record_for_tenant("invitation.listed", details={"console": True, "filters": ["status"] if status else []})
    invitations = actions.list_invitations(
        tenant_id=tenant.pk, page=page, limit=ON_A_PAGE, status=status, purpose=reading_purpose(request)
    )
    return render_page(
        request,
        "console/people/invitations.html",
        _("Invitations"),
        {
            "rows": invitations.rows,
            "states": STATES,
            "status": status or "",
            "page": page,
            "more": page * ON_A_PAGE < invitations.total,
            "may_write": staff_at(request).may("invitations:write"),
            "tenant": tenant,
        },
    )


class Invite(TenantConfirmView):
    permissions = PERMISSIONS
    list_page = LIST
    action = Action.GRANT_ROLES
    title = _("Invite end user")
    text = _("The user receives a mail with a link that is valid for seven days, and chooses a password there.")
    submit = _("Send invitation")
    dangerous = False
    form_class = forms.InviteForm

    def get_form_kwargs(self) -> Context:
        return {**super().get_form_kwargs(), "tenant_id": self.tenant.pk}

    def act(self, form: Form) -> Text:
        created = actions.invite(**self.arguments(), **form.cleaned_data)
        return _("The invitation is sent to %(email)s.") % {"email": created.row.email}


class InvitationView(TenantConfirmView):
    """A page that changes one invitation of either kind, and goes back to the list."""

    permissions: ClassVar[tuple[str, ...]] = PERMISSIONS
    list_page = LIST
    row: AdminInvitation | EndUserInvitation

    def find(self) -> AdminInvitation | EndUserInvitation:
        return _find(self.tenant, self.kwargs["invitation_id"])

    def get_back_url(self) -> str:
        return reverse(LIST)


class Resend(InvitationView, platform.Resend):
    action = None

    def load(self) -> None:
        super().load()
        if self.row.kind == ADMIN or self.row.roles:
            self.action = Action.GRANT_ROLES


class Cancel(InvitationView, platform.Cancel):
    """Cancel an invitation."""


def _find(tenant: Tenant, invitation_id: UUID) -> AdminInvitation | EndUserInvitation:
    """Return the tenant's invitation of either kind. Raises UnknownInvitation."""
    of_end_user = EndUserInvitation.objects.filter(pk=invitation_id).first()
    of_admin = AdminInvitation.objects.filter(pk=invitation_id, tenant_id=tenant.pk)
    return of_end_user or first_or(of_admin, UnknownInvitation)
