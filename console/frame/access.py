"""The signed-in admin user, their permissions and what their session proves, read with every request."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Final
from urllib.parse import urlencode
from uuid import uuid4

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _

from identity_platform.api.handlers import note_rejection
from identity_platform.audit.origin import set_actor
from tenants.errors import TenantSuspended, UnknownTenant
from userflow.accounts.models import AdminUser
from userflow.accounts.permissions_catalogue import TENANT_ADMIN
from userflow.accounts.principals import Principal
from userflow.accounts.realms import ADMINS
from userflow.accounts.session_policy import AAL2
from userflow.admins.actions import grantable_roles
from userflow.errors import InsufficientAuthentication
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.ending import end_sessions
from userflow.sessions.verify import SessionInactive, principal_of
from userflow.signin.console import note_console_use

# Keys of the console's session; only the sign-in (console.signin.sign_in_state) writes them.
KIND: Final = "console_kind"
USER: Final = "console_user"
TENANT: Final = "console_of_tenant"
SESSION: Final = "console_session"
SEEN: Final = "console_seen"

# The session's last use is stored at most this often, to keep most page views free of writes.
SEEN_EVERY_SECONDS: Final = 60

Page = Callable[..., HttpResponse]
# The context of a template, or other named values of a page.
Context = dict[str, object]


@dataclass(frozen=True, slots=True)
class Staff:
    """A signed-in admin user. `principal` is what actions take as `by`."""

    user: AdminUser
    principal: Principal

    @property
    def is_operator(self) -> bool:
        """Return whether the user works for the platform and not for one tenant."""
        return self.user.tenant_id is None

    def may(self, permission: str) -> bool:
        """Return whether the user holds the permission now."""
        return self.principal.may(permission)


def staff_or_none(request: HttpRequest) -> Staff | None:
    """Return the signed-in admin user, read in one statement per request; None unless the sign-in is complete.

    A user who was deactivated, signed out elsewhere, belongs to a suspended tenant or lacks a required factor is signed
    out by this request. Sets the actor of audit events.
    """
    if hasattr(request, "console_staff"):
        known: Staff | None = request.console_staff
        return known
    staff = _read(request)
    request.console_staff = staff  # type: ignore[attr-defined]  # remembered for this request
    return staff


def is_signed_in(request: HttpRequest) -> bool:
    """Return whether the sign-in is complete and the session active."""
    return staff_or_none(request) is not None


def staff_at(request: HttpRequest) -> Staff:
    """Return the signed-in admin user. Raises PermissionDenied."""
    staff = staff_or_none(request)
    if staff is None:
        raise PermissionDenied
    return staff


def _read(request: HttpRequest) -> Staff | None:
    session = request.session
    if SESSION not in session:
        return None
    try:
        staff = _standing(request)
    except (SessionInactive, TenantSuspended, UnknownTenant):
        staff = None
    if staff is None:
        session.flush()
        messages.warning(request, _("Your session has ended. Sign in again to continue."))
        return None
    set_actor(staff.principal.kind, str(staff.principal.id), actor_tenant_id=staff.principal.tenant_id)
    return staff


def _standing(request: HttpRequest) -> Staff | None:
    session = request.session
    moment = time.time()
    # The same statement reads the factors of the stored session and their times.
    principal = principal_of(
        {"kind": session[KIND], "sub": session[USER], "sid": session[SESSION], "tenant_id": session[TENANT]}
    )
    methods = principal.user["mfa_methods"]
    if not principal.meets_policy() or (principal.required_acr == AAL2 and not methods):
        end_sessions(ADMINS, user_id=principal.id, session_id=principal.session_id, reason="factor_gone")
        return None
    if moment - session[SEEN] > SEEN_EVERY_SECONDS:
        session[SEEN] = moment
        note_console_use(principal)
    # In the order of the model. Other columns are fetched when they are accessed.
    values: Context = {
        "id": principal.id,
        "email": principal.user["email"],
        "active": True,
        "username": principal.user["username"],
        "tenant_id": principal.tenant_id,
        "mfa_methods": methods,
    }
    return Staff(AdminUser.from_db("default", list(values), list(values.values())), principal)


def needed(permission: str) -> str:
    return _("This page needs the permission %(permission)s.") % {"permission": permission}


def require(request: HttpRequest, *permissions: str, operators_only: bool = False) -> Staff:
    """Return the signed-in admin user. Raises PermissionDenied without the permissions, or if the page is for operators."""
    staff = staff_at(request)
    for permission in permissions:
        if not staff.may(permission):
            raise PermissionDenied(needed(permission))
    if operators_only and not staff.is_operator:
        raise PermissionDenied(_("This page is for operators."))
    return staff


def must_grant_tenant_admin(request: HttpRequest) -> None:
    """Require the right to create a tenant's first admin, as over the API. Raises GrantsMoreThanHeld, PermissionDenied."""
    # The role is the same in every tenant, so a tenant that does not exist yet can be checked too.
    grantable_roles([TENANT_ADMIN], uuid4(), require(request, "admins:write").principal)


def needs(permission: str, *, operators_only: bool = False) -> Callable[[Page], Page]:
    """Decorate a page: 403 without the permission, and for tenant admins if it is for operators only."""

    def decorate(page: Page) -> Page:
        @wraps(page)
        def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
            require(request, permission, operators_only=operators_only)
            return page(request, *args, **kwargs)

        return guarded

    return decorate


def step_up_first(request: HttpRequest, action: Action | None, *, back: str = "") -> HttpResponseRedirect | None:
    """Return the way to the re-authentication page, or None if the session proves what the action needs.

    None as the action means that the table has no row for it and it needs nothing more. `back` is the page
    to return to, for an action whose own path only takes forms.
    """
    if action is None:
        return None
    try:
        require_assurance(action, staff_at(request).principal)
    except InsufficientAuthentication:
        return to_step_up(request, back=back)
    return None


def to_step_up(request: HttpRequest, *, back: str = "") -> HttpResponseRedirect:
    """Redirect to the re-authentication page, which returns to the page that was asked for, or to `back`."""
    note_rejection(request, InsufficientAuthentication())
    query = urlencode({"next": back or request.get_full_path()})
    return HttpResponseRedirect(f"{reverse('admin:reauthenticate')}?{query}")
