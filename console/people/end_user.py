"""The page of one end user."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from console.frame.access import Context, Staff, staff_at
from console.frame.confirm import RowView, TenantConfirmView
from console.frame.records import render_page
from console.frame.tenant_pages import reading_purpose, tenant_page
from console.people.end_user_record import LOOK, find_end_user, record_of
from identity_platform.audit.writer import record_for_tenant
from tenants.models import Tenant
from userflow.accounts.models import EndUser
from userflow.accounts.permissions_catalogue import FACTORS


def _load(request: HttpRequest, user_id: UUID) -> EndUser:
    """Return the end user and audit the view of the record. Raises UnknownUser."""
    user = find_end_user(user_id)
    if request.method != "POST":
        record_for_tenant(LOOK, target=("end_user", user.pk), details={"console": True})
    return user


class EndUserConfirmView(RowView[EndUser], TenantConfirmView):
    """A page that changes one end user. Its permissions include endusers:read."""

    list_page = "admin:userflow_enduser_changelist"
    key = "user_id"
    named_by = "email"

    def find(self) -> EndUser:
        return _load(self.request, self.kwargs["user_id"])

    def names(self) -> Context:
        return {**super().names(), "email": self.row.email}

    def get_back_url(self) -> str:
        return reverse("admin:person", args=[self.row.pk])


@tenant_page("endusers:read")
def show(request: HttpRequest, tenant: Tenant, user_id: UUID) -> HttpResponse:
    """Record, groups, roles and permissions, factors, sessions and events of an end user."""
    user = _load(request, user_id)
    staff = staff_at(request)
    record = record_of(user, tenant=tenant, staff=staff, purpose=reading_purpose(request))
    return render_page(
        request,
        "console/people/end_user.html",
        user.name or user.email,
        {
            "show_back_button": False,
            "record": record,
            "user_": user,
            "tenant": tenant,
            "may": _allowed(staff),
            "has_factors": bool(user.mfa_methods),
        },
    )


def _allowed(staff: Staff) -> dict[str, bool]:
    return {
        "write": staff.may("endusers:write"),
        "factors": staff.may(FACTORS),
        "erase": staff.may("endusers:delete"),
        "sessions": staff.may("sessions:write"),
        "groups": staff.may("groups:write") and staff.may("groups:read"),
        "roles": staff.may("roles:write") and staff.may("roles:read"),
        "see_groups": staff.may("groups:read"),
        "see_roles": staff.may("roles:read"),
        "see_trail": staff.may("audit:read"),
    }
