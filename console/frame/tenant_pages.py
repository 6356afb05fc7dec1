"""Pages inside a tenant: drawn while its database is entered, bound to the tenant that they were drawn for.

A browser holds one chosen tenant, but many tabs. So every form says for which tenant it was drawn, and is rejected when
another one has been chosen meanwhile: nobody erases somebody of the wrong tenant.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Final

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, InternalError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import SimpleTemplateResponse, TemplateResponse
from django.utils.translation import gettext as _
from psycopg.errors import ReadOnlySqlTransaction

from console.frame.access import Page, require, staff_at
from console.frame.scope import tenant_at
from identity_platform.api.errors import NotAllowed, NotFound, Unavailable
from identity_platform.api.handlers import as_api_error
from tenants.context import in_tenant
from tenants.errors import TenantSuspended, UnknownTenant
from tenants.models import Tenant
from tenants.states import Purpose, State
from userflow.ids import id_or

# The hidden field of every form of these pages.
FORM_TENANT_ID: Final = "form_tenant_id"
Draw = Callable[[Tenant], HttpResponse]


def looking(request: HttpRequest) -> Purpose:
    """What a look enters the tenant for: operators also inspect one that its own people cannot use."""
    return Purpose.INSPECT if staff_at(request).is_operator else Purpose.READ


def inside(*permissions: str) -> Callable[[Page], Page]:
    """A page's decorator: 403 without the permissions, the chooser without a tenant; the page is drawn in the tenant.

    The page takes the request, the tenant and what its path names.
    """

    def decorate(page: Page) -> Page:
        @wraps(page)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            for permission in permissions:
                require(request, permission)
            return draw_inside(request, lambda tenant: page(request, tenant, *args, **kwargs))

        return guarded

    return decorate


def draw_inside(request: HttpRequest, draw: Draw) -> HttpResponse:
    """Draw a page of the chosen tenant; where that cannot be done a page says why and what to do."""
    tenant = tenant_at(request)
    if (refused := form_of_another_tenant(request, tenant)) is not None:
        return refused
    try:
        with in_tenant(tenant.pk, looking(request)):
            answer = draw(tenant)
            # Rows are read while a template is rendered; outside they could not be.
            return answer.render() if isinstance(answer, SimpleTemplateResponse) else answer
    except InternalError as problem:
        if not isinstance(problem.__cause__, ReadOnlySqlTransaction):
            raise
        return _out_of_reach(request, tenant, problem)
    except (UnknownTenant, TenantSuspended, Unavailable, OperationalError, InterfaceError) as problem:
        return _out_of_reach(request, tenant, problem)
    except NotFound as problem:
        raise Http404(problem.text) from problem
    except NotAllowed as problem:
        raise PermissionDenied(problem.text) from problem


def form_of_another_tenant(request: HttpRequest, tenant: Tenant) -> HttpResponse | None:
    """The page that rejects a form of another tenant than this, the chosen one; None where there is nothing to reject."""
    if request.method != "POST" or request.POST.get(FORM_TENANT_ID) == str(tenant.pk):
        return None
    form_tenant = None
    # A tenant admin must not learn which other tenants there are.
    if staff_at(request).is_operator:
        with suppress(UnknownTenant):
            form_tenant = Tenant.objects.filter(pk=id_or(request.POST.get(FORM_TENANT_ID, ""), UnknownTenant)).first()
    context = {
        **admin.site.each_context(request),
        "title": _("Another tenant is chosen"),
        "tenant": tenant,
        "form_tenant": form_tenant,
        "path": request.get_full_path(),
    }
    return TemplateResponse(request, "console/people/another_tenant.html", context, status=409)


def _out_of_reach(request: HttpRequest, tenant: Tenant, problem: Exception) -> HttpResponse:
    error = as_api_error(problem)
    state = tenant.database.status
    context = {
        **admin.site.each_context(request),
        "title": _("This tenant cannot be looked into"),
        "tenant": tenant,
        "state": state,
        "what_to_do": _what_to_do(State(state)),
        "reason": tenant.database.reason if staff_at(request).is_operator else "",
    }
    status = 503 if isinstance(problem, UnknownTenant) else error.status
    return TemplateResponse(
        request, "console/people/unavailable.html", context, status=status, headers=error.headers
    ).render()


def _what_to_do(state: State) -> str:
    match state:
        case State.PROVISIONING:
            return _("Its database is being made. Wait a moment, or provision it again if that has stopped.")
        case State.MIGRATING | State.MOVING:
            return _("Its database is being worked on and takes no changes until that is done. Try again in a moment.")
        case State.DELETING | State.DELETED:
            return _("The tenant is deleted or being deleted: there is nothing left to look at. Choose another one.")
        case State.FAILED:
            return _("A step on its database failed. Look at the reason, mend it and run that step again.")
        case _:
            return _("Its database does not answer. Look at its server, and try again in a moment.")
