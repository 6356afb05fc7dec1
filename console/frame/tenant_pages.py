"""Pages inside the chosen tenant: rendered while its database is entered, with forms bound to that tenant.

A browser session has one chosen tenant but may have many tabs. So every form carries the id of the tenant that it was
rendered for, and is rejected if another tenant has been chosen since: no action ever reaches the wrong tenant.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Final

from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, InternalError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import SimpleTemplateResponse
from django.utils.translation import gettext as _
from psycopg.errors import ReadOnlySqlTransaction

from console.frame.access import Page, require, staff_at
from console.frame.records import render_page
from console.frame.scope import tenant_at
from identity_platform.api.errors import NotAllowed, NotFound, Unavailable
from identity_platform.api.handlers import as_api_error
from tenants.entering.context import in_tenant
from tenants.errors import TenantSuspended, UnknownTenant
from tenants.models import Tenant
from tenants.states import Purpose, State
from userflow.ids import id_or

# The hidden field of every form of these pages.
FORM_TENANT_ID: Final = "form_tenant_id"
Render = Callable[[Tenant], HttpResponse]


def reading_purpose(request: HttpRequest) -> Purpose:
    """Return the purpose to enter a tenant with for reading: operators may also inspect a tenant that is not in use."""
    return Purpose.INSPECT if staff_at(request).is_operator else Purpose.READ


def tenant_page(*permissions: str) -> Callable[[Page], Page]:
    """Decorate a page of the chosen tenant: 403 without the permissions, the chooser without a tenant.

    The page takes the request, the tenant and the arguments of its path.
    """

    def decorate(page: Page) -> Page:
        @wraps(page)
        def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
            require(request, *permissions)
            return render_in_tenant(request, lambda tenant: page(request, tenant, *args, **kwargs))

        return guarded

    return decorate


def render_in_tenant(request: HttpRequest, render: Render) -> HttpResponse:
    """Render a page of the chosen tenant, or a page that says why the tenant cannot be opened and what to do."""
    tenant = tenant_at(request)
    if (rejected := form_of_another_tenant(request, tenant)) is not None:
        return rejected
    try:
        with in_tenant(tenant.pk, reading_purpose(request)):
            response = render(tenant)
            # Templates read rows while they are rendered, which is possible only inside the tenant.
            return response.render() if isinstance(response, SimpleTemplateResponse) else response
    except InternalError as problem:
        if not isinstance(problem.__cause__, ReadOnlySqlTransaction):
            raise
        return _unavailable(request, tenant, problem)
    except (UnknownTenant, TenantSuspended, Unavailable, OperationalError, InterfaceError) as problem:
        return _unavailable(request, tenant, problem)
    except NotFound as problem:
        raise Http404(problem.text) from problem
    except NotAllowed as problem:
        raise PermissionDenied(problem.text) from problem


def form_of_another_tenant(request: HttpRequest, tenant: Tenant) -> HttpResponse | None:
    """Return the 409 page for a form that was rendered for another tenant than the chosen one, else None."""
    if request.method != "POST" or request.POST.get(FORM_TENANT_ID) == str(tenant.pk):
        return None
    form_tenant = None
    # A tenant admin must not learn which other tenants exist.
    if staff_at(request).is_operator:
        with suppress(UnknownTenant):
            form_tenant = Tenant.objects.filter(pk=id_or(request.POST.get(FORM_TENANT_ID, ""), UnknownTenant)).first()
    return render_page(
        request,
        "console/people/another_tenant.html",
        _("Another tenant is chosen"),
        {"tenant": tenant, "form_tenant": form_tenant, "path": request.get_full_path()},
        status=409,
    )


def _unavailable(request: HttpRequest, tenant: Tenant, problem: Exception) -> HttpResponse:
    error = as_api_error(problem)
    state = tenant.database.status
    response = render_page(
        request,
        "console/people/unavailable.html",
        _("This tenant cannot be opened"),
        {
            "tenant": tenant,
            "state": state,
            "what_to_do": _what_to_do(State(state)),
            "reason": tenant.database.reason if staff_at(request).is_operator else "",
        },
        status=503 if isinstance(problem, UnknownTenant) else error.status,
    )
    for name, value in error.headers.items():
        response.headers[name] = value
    return response.render()


def _what_to_do(state: State) -> str:
    match state:
        case State.PROVISIONING:
            return _("Its database is being created. Wait a moment, or finish provisioning if it was interrupted.")
        case State.MIGRATING | State.MOVING:
            return _("Its database is being migrated or moved and accepts no changes meanwhile. Try again in a moment.")
        case State.DELETING | State.DELETED:
            return _("The tenant is deleted or being deleted. Choose another tenant.")
        case State.FAILED:
            return _("An operation on its database failed. Fix the reason and run the operation again.")
        case _:
            return _("Its database does not respond. Check its server, and try again in a moment.")
