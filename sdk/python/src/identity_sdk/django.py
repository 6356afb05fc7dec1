"""Django: a decorator for views. The setting IDENTITY_SDK has the arguments of Verifier: `{"issuer": "https://…/t/acme"}`."""

import asyncio
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, JsonResponse

from identity_sdk.errors import AccessDenied
from identity_sdk.verification import Verifier

View = Callable[..., HttpResponseBase]


@cache
def verifier() -> Verifier:
    """Return the verifier of the settings, with its cached keys."""
    return Verifier(**settings.IDENTITY_SDK)  # type: ignore[misc]  # a setting of the project that uses this


def require_permission(*permissions: str) -> Callable[[View], View]:
    """Require these permissions; none: any valid token. The view, of either kind, gets `request.principal`.

    The view needs no CSRF token: no browser sends the header Authorization with an access token by itself.
    """

    def denied(request: HttpRequest) -> HttpResponseBase | None:
        try:
            principal = verifier().authorize(request.headers.get("Authorization"), *permissions)
        except AccessDenied as error:
            return JsonResponse(error.body, status=error.status, headers=error.headers)
        request.principal = principal  # type: ignore[attr-defined]  # added here
        return None

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **options: Any) -> HttpResponseBase:
            return denied(request) or view(request, *args, **options)

        @wraps(view)
        async def guarded_async(request: HttpRequest, *args: Any, **options: Any) -> HttpResponseBase:
            # Fetching keys blocks.
            response = await asyncio.to_thread(denied, request)
            return response or await view(request, *args, **options)  # type: ignore[misc]  # a coroutine function

        chosen: Any = guarded_async if iscoroutinefunction(view) else guarded
        chosen.csrf_exempt = True
        return chosen  # type: ignore[no-any-return]

    return decorate
