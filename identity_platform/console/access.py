"""Who works in the console, and what that person may do: the permissions of the API, as the store has them now."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from identity_platform.audit.origin import set_actor
from userflow.admins.models import AdminUser
from userflow.principals import ADMIN, OPERATOR, Principal

# Keys of the console's session; written by the sign-in and nobody else.
AMR: Final = "console_amr"
AUTH_TIME: Final = "console_auth_time"


@dataclass(frozen=True, slots=True)
class Staff:
    """An admin user at work in the console. `principal` is what actions take as `by`."""

    user: AdminUser
    principal: Principal

    @property
    def is_operator(self) -> bool:
        """Whether the person works for the platform and not for one tenant."""
        return self.user.tenant_id is None

    def may(self, permission: str) -> bool:
        """Whether the person holds the permission now."""
        return self.principal.may(permission)


def note_sign_in(sender: object, request: HttpRequest, **_: object) -> None:
    """The password was the whole sign-in: the backend lets nobody in by it who has a factor."""
    request.session[AMR] = ["pwd"]
    request.session[AUTH_TIME] = time.time()


def is_signed_in(request: HttpRequest) -> bool:
    """Whether every step of the sign-in is done: only the console's own sign-in writes AUTH_TIME."""
    user = request.user
    return isinstance(user, AdminUser) and user.active and AUTH_TIME in request.session


def staff_at(request: HttpRequest) -> Staff:
    """Who asks; PermissionDenied unless signed in. Reads the roles once a request and names the actor for the audit."""
    known: Staff | None = getattr(request, "console_staff", None)
    if known is not None:
        return known
    if not is_signed_in(request):
        raise PermissionDenied
    user = request.user
    assert isinstance(user, AdminUser)
    roles = list(user.roles.all())
    kind = ADMIN if user.tenant_id else OPERATOR
    staff = Staff(
        user,
        Principal(
            kind=kind,
            id=user.pk,
            tenant_id=user.tenant_id,
            client_id=None,
            session_id=None,
            roles=tuple(sorted(role.name for role in roles)),
            permissions=frozenset(permission for role in roles for permission in role.permissions),
            amr=tuple(request.session.get(AMR, ())),
            auth_time=datetime.fromtimestamp(request.session[AUTH_TIME], UTC),
            user={"username": user.username, "email": user.email, "mfa_methods": user.mfa_methods},
        ),
    )
    set_actor(kind, str(user.pk))
    request.console_staff = staff  # type: ignore[attr-defined]  # remembered for this request
    return staff


def require(request: HttpRequest, permission: str) -> Staff:
    """The person, if the permission is held; PermissionDenied (403) otherwise."""
    staff = staff_at(request)
    if not staff.may(permission):
        raise PermissionDenied(f"This page needs the permission {permission}.")
    return staff


def needs(permission: str, *, operators_only: bool = False) -> Any:
    """A page's decorator: 403 unless the person holds the permission (and, if so said, is an operator)."""

    def decorate(page: Any) -> Any:
        @wraps(page)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            staff = require(request, permission)
            if operators_only and not staff.is_operator:
                raise PermissionDenied("This page is for operators.")
            answer: HttpResponse = page(request, *args, **kwargs)
            return answer

        return guarded

    return decorate
