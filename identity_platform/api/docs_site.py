"""The documentation: the site that `bin/docs` builds at /docs/, Swagger UI at /docs/api/."""

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.static import serve
from drf_spectacular.views import SpectacularSwaggerView

from identity_platform.api.handlers import unknown_path

# Types that Python does not know everywhere, or that need a charset because no page states it.
TEXT_TYPES = {".md": "text/markdown; charset=utf-8", ".txt": "text/plain; charset=utf-8"}


def site(request: HttpRequest, path: str) -> HttpResponseBase:
    """Return a file of the site, or how to build it where it has not been built."""
    if not (settings.DOCS_SITE / "index.html").is_file():
        return unknown_path(request) if path else _not_built(request)
    try:
        response = serve(request, path or "index.html", document_root=str(settings.DOCS_SITE))
    except Http404:
        return unknown_path(request)
    for ending, content_type in TEXT_TYPES.items():
        if path.endswith(ending):
            response.headers["Content-Type"] = content_type
    response.headers["Cache-Control"] = "public, max-age=300"
    return response


def _not_built(request: HttpRequest) -> HttpResponse:
    return render(request, "docs/not_built.html", headers={"Cache-Control": "no-store"})


class SwaggerView(SpectacularSwaggerView):  # type: ignore[misc]  # the library has no types
    """Swagger UI with a form that signs in and fills in the token."""

    url_name = "schema"
    template_name = "docs/swagger.html"
