"""sdk/python guards views of Django of both kinds, and its permissions can be combined in Django REST framework."""

import asyncio
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.test import RequestFactory
from rest_framework.permissions import BasePermission, IsAdminUser
from rest_framework.response import Response
from rest_framework.views import APIView, exception_handler

from identity_sdk import AccessDenied, Principal
from identity_sdk.django import require_permission
from identity_sdk.rest_framework import IdentityAuthentication, require_any
from identity_sdk.rest_framework import require_permission as permission_class
from identity_sdk.verification import require

PRINCIPAL = Principal("u1", "end_user", "t", None, frozenset({"invoices:read"}), {"sub": "u1"})


class Verified:
    """A verifier that accepts the token `good`."""

    def authorize(self, authorization: str | None, *permissions: str) -> Principal:
        if authorization == "Bearer slow":
            raise AccessDenied(503, "keys_unavailable", "The keys of the issuer cannot be fetched.")
        if authorization != "Bearer good":
            raise AccessDenied(401, "invalid_token", "No.", "Bearer")
        require(PRINCIPAL, *permissions)
        return PRINCIPAL


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("django", "rest_framework"):
        monkeypatch.setattr(f"identity_sdk.{module}.verifier", Verified)


def request(token: str = "good") -> HttpRequest:
    return RequestFactory(enforce_csrf_checks=True).post("/", headers={"Authorization": f"Bearer {token}"})


def test_guarded_view_needs_no_csrf_token() -> None:
    @require_permission("invoices:read")
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.principal.id)  # type: ignore[attr-defined]  # added by the guard

    assert CsrfViewMiddleware(view).process_view(request(), view, (), {}) is None
    assert view(request()).content == b"u1"  # type: ignore[attr-defined]  # an HttpResponse
    denied = view(request("slow"))
    assert (denied.status_code, denied.headers["Retry-After"]) == (503, "5")


def test_coroutine_is_guarded() -> None:
    @require_permission("invoices:read")
    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.principal.id)  # type: ignore[attr-defined]  # added by the guard

    async def statuses() -> list[int]:
        called: Any = view
        return [(await called(request(token))).status_code for token in ("good", "bad")]

    assert asyncio.iscoroutinefunction(view)
    assert asyncio.run(statuses()) == [200, 401]


class View(APIView):
    """A view with the error responses of the framework, not those of this project."""

    authentication_classes = [IdentityAuthentication]

    def get_exception_handler(self) -> Any:
        return exception_handler

    def post(self, request: Any) -> Response:
        return Response({})


@pytest.mark.parametrize(
    ("permission", "status", "challenge"),
    [
        (permission_class("invoices:read"), 200, None),
        (permission_class("a:b"), 403, 'Bearer error="insufficient_scope", scope="a:b"'),
        (permission_class("invoices:read") | permission_class("a:b"), 200, None),
        (
            permission_class("invoices:read") & permission_class("a:b"),
            403,
            'Bearer error="insufficient_scope", scope="a:b"',
        ),
        (IsAdminUser, 403, None),
        (require_any("a:b", "invoices:read"), 200, None),
        (require_any("a:b", "c:d"), 403, None),
    ],
)
def test_permissions_combine(permission: type[BasePermission], status: int, challenge: str | None) -> None:
    response = View.as_view(permission_classes=[permission])(request())
    assert (response.status_code, response.headers.get("WWW-Authenticate")) == (status, challenge)


def test_combined_permission_is_checked_after_the_first_fails() -> None:
    view = View.as_view(permission_classes=[permission_class("a:b") | permission_class("invoices:read")])
    assert view(request()).status_code == 200
    unavailable = view(request("slow"))
    assert (unavailable.status_code, unavailable.headers["Retry-After"]) == (503, "5")
