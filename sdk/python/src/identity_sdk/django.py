"""Django: a decorator for views. The setting IDENTITY_SDK has the arguments of Verifier: `{"issuer": "https://…/t/acme"}`."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

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
    """Require these permissions; none: any valid token. The view gets `request.principal`."""

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **options: Any) -> HttpResponseBase:
            try:
                principal = verifier().authorize(request.headers.get("Authorization"), *permissions)
            except AccessDenied as error:
                return JsonResponse(error.body, status=error.status, headers=error.headers)
            request.principal = principal  # type: ignore[attr-defined]  # added here
            return view(request, *args, **options)

        return guarded

    return decorate
