"""The tenant's logo, for its pages and its applications."""

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from identity_platform.api.errors import MethodNotAllowed, NotFound
from identity_platform.api.handlers import as_api_error, note_rejection, plain_response
from openid.pages.page import Page
from openid.tenant_of_request import tenant_of_request
from tenants.entering.context import in_tenant
from tenants.states import Purpose
from userflow.branding.reading import find_logo


class LogoFile(Page):
    """An image. Its address carries the digest of its bytes, so browsers keep it for a year. It needs no cookie."""

    http_method_names = ["get", "head"]

    def dispatch(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        """Respond with the image, or with an error in JSON."""
        try:
            return self._answer(request)
        except Exception as problem:
            error = as_api_error(problem)
            note_rejection(request, error)
            return plain_response(request.path, error)

    def _answer(self, request: HttpRequest, **kwargs: object) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed(headers={"Allow": "GET, HEAD"})
        with in_tenant(tenant_of_request(request).tenant_id, Purpose.SIGN_IN):
            logo = find_logo()
        if logo is None:
            raise NotFound
        data, media_type, digest = logo
        is_current = request.GET.get("v") == digest
        cache = "public, max-age=31536000, immutable" if is_current else "public, max-age=300"
        # The middleware adds nosniff and, for the address opened by itself, a policy that allows nothing.
        return HttpResponse(data, media_type, headers={"Cache-Control": cache})
