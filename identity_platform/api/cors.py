"""django-cors-headers, active only if CORS_ALLOWED_ORIGINS lists origins."""

from collections.abc import Awaitable

from corsheaders.middleware import CorsMiddleware
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase


class CrossOrigin(CorsMiddleware):
    """Skip django-cors-headers without a list: no response depends on the origin then."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if not settings.CORS_ALLOWED_ORIGINS:
            return self.get_response(request)
        return super().__call__(request)
