"""The tenant's invitations: listed, made, sent again and cancelled."""

from typing import Any, Final
from uuid import UUID

from django import forms as django_forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.frame.access import staff_at
from console.frame.confirm import confirmed
from console.frame.tenant_pages import inside, looking
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
    (PENDING, gettext_lazy("pending")),
    (ACCEPTED, gettext_lazy("accepted")),
    (EXPIRED, gettext_lazy("expired")),
    (CANCELLED, gettext_lazy("cancelled")),
)


class Asked(django_forms.Form):
    """Which invitations to show."""

    status = django_forms.ChoiceField(choices=STATES, required=False)
    page = django_forms.IntegerField(required=False, min_value=1, max_value=1000)


@inside("invitations:read")
def invitations(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Invitations of both kinds, newest first."""
    asked = Asked(request.GET)
    asked.is_valid()
    status, page = asked.cleaned_data.get("status") or None, asked.cleaned_data.get("page") or 1
    record_for_tenant("invitation.listed", details={"console": True, "filters": ["status"] if status else []})
    found = actions.list_invitations(
        tenant_id=tenant.pk, page=page, limit=ON_A_PAGE, status=status, purpose=looking(request)
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


@inside("invitations:read", "invitations:write")
def invite(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Invite somebody to become an end user."""

    def act(fields: dict[str, Any]) -> str:
        made = actions.invite(by=staff_at(request).principal, tenant_id=tenant.pk, **fields)
        return _("The invitation is sent to %(email)s.") % {"email": made.row.email}

    return confirmed(
        request,
        title=_("Invite a person"),
        text=_("The person gets a mail with a link, good for seven days, and chooses a password there."),
        back=reverse("admin:invitations"),
        action=Action.GRANT_ROLES,
        act=act,
        form_class=forms.InviteForm,
        form_options={"clients": forms.clients_of(tenant.pk)},
        submit=_("Send the invitation"),
        dangerous=False,
        tenant=tenant,
    )


@inside("invitations:read", "invitations:write")
def resend(request: HttpRequest, tenant: Tenant, invitation_id: UUID) -> HttpResponse:
    """Send an invitation again."""

    row = _found(tenant, invitation_id)

    def act(_fields: dict[str, Any]) -> str:
        again = actions.resend_invitation(
            by=staff_at(request).principal, tenant_id=tenant.pk, invitation_id=invitation_id
        )
        return _("The invitation is sent to %(email)s again.") % {"email": again.row.email}

    return _about(
        request,
        tenant,
        title=_("Send again"),
        text=_("The mail to %(email)s is sent with a new link and seven new days. The link that was sent before ends.")
        % {"email": row.email},
        action=Action.GRANT_ROLES if row.kind == ADMIN or row.roles else None,
        act=act,
    )


@inside("invitations:read", "invitations:write")
def cancel(request: HttpRequest, tenant: Tenant, invitation_id: UUID) -> HttpResponse:
    """Cancel an invitation."""

    row = _found(tenant, invitation_id)

    def act(_fields: dict[str, Any]) -> str:
        actions.cancel_invitation(by=staff_at(request).principal, tenant_id=tenant.pk, invitation_id=invitation_id)
        return _("The invitation is cancelled.")

    return _about(
        request,
        tenant,
        title=_("Cancel the invitation"),
        text=_("The link in the mail to %(email)s is worthless from now on.") % {"email": row.email},
        action=None,
        act=act,
    )


def _found(tenant: Tenant, invitation_id: UUID) -> AdminInvitation | EndUserInvitation:
    """The tenant's invitation, wherever it is; UnknownInvitation if there is none."""
    row = (
        EndUserInvitation.objects.filter(pk=invitation_id).first()
        or AdminInvitation.objects.filter(pk=invitation_id, tenant_id=tenant.pk).first()
    )
    if row is None:
        raise UnknownInvitation
    return row


def _about(request: HttpRequest, tenant: Tenant, **page: Any) -> HttpResponse:
    return confirmed(request, back=reverse("admin:invitations"), dangerous=False, tenant=tenant, **page)
