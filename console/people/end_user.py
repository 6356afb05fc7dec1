"""The page of one end user."""

from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from console.frame.access import Page, Staff, staff_at
from console.frame.tenant_pages import inside, looking
from console.people.end_user_record import LOOK, find_person, record_of
from identity_platform.audit.writer import record_for_tenant
from tenants.models import Tenant
from userflow.accounts.models import EndUser
from userflow.accounts.permissions_catalogue import FACTORS


def of_person(*permissions: str) -> Callable[[Page], Page]:
    """A page about one person: 404 unless the chosen tenant has them, and every look is in the tenant's trail."""

    def decorate(page: Page) -> Page:
        @inside("endusers:read", *permissions)
        @wraps(page)
        def drawn(request: HttpRequest, tenant: Tenant, user_id: UUID, **named: Any) -> HttpResponse:
            user = find_person(user_id)
            if request.method != "POST":
                record_for_tenant(LOOK, target=("end_user", user.pk), details={"console": True})
            return page(request, tenant, user, **named)

        return drawn

    return decorate


@of_person()
def person(request: HttpRequest, tenant: Tenant, user: EndUser) -> HttpResponse:
    """Record, groups, roles and permissions, factors, sessions and the timeline of a person."""
    staff = staff_at(request)
    record = record_of(user, tenant=tenant, staff=staff, purpose=looking(request))
    context = {
        **admin.site.each_context(request),
        "title": user.name or user.email,
        "show_back_button": False,
        "record": record,
        "user_": user,
        "tenant": tenant,
        "may": _allowed(staff),
        "has_factors": bool(user.mfa_methods),
    }
    return TemplateResponse(request, "console/people/end_user.html", context)


def path_of(user: EndUser) -> str:
    """The path of the person's page."""
    return reverse("admin:person", args=[user.pk])


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
