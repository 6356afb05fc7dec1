"""django-cors-headers, asked only where the operator lists pages of other origins."""

from typing import Any

from corsheaders.middleware import CorsMiddleware
from django.conf import settings
from django.http import HttpRequest


class CrossOrigin(CorsMiddleware):
    """Without a list no answer depends on the caller's origin, and the middleware would read every header for nothing."""

    def __call__(self, request: HttpRequest) -> Any:
        if not settings.CORS_ALLOWED_ORIGINS:
            return self.get_response(request)
        return super().__call__(request)
