"""Invitations of the tenant: the list, and pages that create, resend and cancel them."""

from typing import Final
from uuid import UUID

from django import forms as django_forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame.access import staff_at
from console.frame.confirm import TenantConfirmView
from console.frame.forms import Fields
from console.frame.records import Text
from console.frame.tenant_pages import reading_purpose, tenant_page
from console.people import forms
from identity_platform.audit.writer import record_for_tenant
from tenants.models import Tenant
from userflow.errors import UnknownInvitation
from userflow.invitations import actions
from userflow.invitations.models import (
    ACCEPTED,
    ADMIN,
    CANCELLED,
    EXPIRED,
    PENDING,
    AdminInvitation,
    EndUserInvitation,
)
from userflow.sessions.assurance import Action

ON_A_PAGE: Final = 50
STATES: Final = (
    (PENDING, _("pending")),
    (ACCEPTED, _("accepted")),
    (EXPIRED, _("expired")),
    (CANCELLED, _("cancelled")),
)


class Asked(django_forms.Form):
    """Which invitations to show."""

    status = django_forms.ChoiceField(choices=STATES, required=False)
    page = django_forms.IntegerField(required=False, min_value=1, max_value=1000)


@tenant_page("invitations:read")
def listed(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Invitations of both kinds, newest first."""
    asked = Asked(request.GET)
    asked.is_valid()
    status, page = asked.cleaned_data.get("status") or None, asked.cleaned_data.get("page") or 1
    record_for_tenant("invitation.listed", details={"console": True, "filters": ["status"] if status else []})
    found = actions.list_invitations(
        tenant_id=tenant.pk, page=page, limit=ON_A_PAGE, status=status, purpose=reading_purpose(request)
    )
    context = {
        **admin.site.each_context(request),
        "title": _("Invitations"),
        "rows": found.rows,
        "states": STATES,
        "status": status or "",
        "page": page,
        "more": page * ON_A_PAGE < found.total,
        "may_write": staff_at(request).may("invitations:write"),
        "tenant": tenant,
    }
    return TemplateResponse(request, "console/people/invitations.html", context)


class InvitationView(TenantConfirmView):
    """A page about the tenant's invitations."""

    permissions = ("invitations:read", "invitations:write")
    dangerous = False

    def get_back_url(self) -> str:
        return reverse("admin:invitations")


class Invite(InvitationView):
    """Invite an end user."""

    action = Action.GRANT_ROLES
    title = _("Invite an end user")
    text = _("The user receives a mail with a link that is valid for seven days, and chooses a password there.")
    submit = _("Send invitation")
    form_class = forms.InviteForm

    def get_form_kwargs(self) -> Fields:
        return {**super().get_form_kwargs(), "clients": forms.clients_of(self.tenant.pk)}

    def act(self, fields: Fields) -> Text:
        created = actions.invite(by=self.staff.principal, tenant_id=self.tenant.pk, **fields)
        return _("The invitation is sent to %(email)s.") % {"email": created.row.email}


class OneInvitationView(InvitationView):
    """A page that changes one invitation."""

    invitation: AdminInvitation | EndUserInvitation

    def load(self) -> None:
        self.invitation = _find(self.tenant, self.kwargs["invitation_id"])

    def names(self) -> Fields:
        return {"email": self.invitation.email}


class Resend(OneInvitationView):
    """Send an invitation again."""

    title = _("Send again")
    text = _("%(email)s receives a new link that is valid for seven days. The earlier link stops working.")

    def load(self) -> None:
        super().load()
        if self.invitation.kind == ADMIN or self.invitation.roles:
            self.action = Action.GRANT_ROLES

    def act(self, fields: Fields) -> Text:
        again = actions.resend_invitation(
            by=self.staff.principal, tenant_id=self.tenant.pk, invitation_id=self.invitation.pk
        )
        return _("The invitation is sent to %(email)s again.") % {"email": again.row.email}


class Cancel(OneInvitationView):
    """Cancel an invitation."""

    title = _("Cancel invitation")
    text = _("The link in the mail to %(email)s stops working.")

    def act(self, fields: Fields) -> Text:
        actions.cancel_invitation(by=self.staff.principal, tenant_id=self.tenant.pk, invitation_id=self.invitation.pk)
        return _("The invitation is cancelled.")


def _find(tenant: Tenant, invitation_id: UUID) -> AdminInvitation | EndUserInvitation:
    """Return the tenant's invitation of either kind. Raises UnknownInvitation."""
    row = (
        EndUserInvitation.objects.filter(pk=invitation_id).first()
        or AdminInvitation.objects.filter(pk=invitation_id, tenant_id=tenant.pk).first()
    )
    if row is None:
        raise UnknownInvitation
    return row
