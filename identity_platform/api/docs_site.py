"""The documentation: the site that `bin/docs` builds at /docs/, Swagger UI at /docs/api/."""

import errno
from pathlib import PurePosixPath

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.views.static import serve
from drf_spectacular.views import SpectacularSwaggerView
from rest_framework.request import Request

from identity_platform.api.documents import PARTS
from identity_platform.api.handlers import unknown_path
from identity_platform.api.responses import NO_STORE
from identity_platform.installation import IS_PACKAGE

# Python knows some of these types in newer versions only, and states no charset.
TEXT_TYPES = {".html": "text/html", ".js": "text/javascript", ".md": "text/markdown", ".txt": "text/plain"}


def site(request: HttpRequest, path: str) -> HttpResponseBase:
    """Return a file of the site, or how to build it where it has not been built."""
    if not (settings.DOCS_SITE / "index.html").is_file():
        if path:
            return unknown_path(request)
        return HttpResponse(render_to_string("docs/not_built.html", {"is_package": IS_PACKAGE}), headers=NO_STORE)
    path = path or "index.html"
    try:
        response = serve(request, path, document_root=str(settings.DOCS_SITE))
    except Http404:
        return unknown_path(request)
    except OSError as problem:
        # The path is longer than the file system allows, so nothing is there.
        if problem.errno != errno.ENAMETOOLONG:
            raise
        return unknown_path(request)
    if content_type := TEXT_TYPES.get(PurePosixPath(path).suffix):
        response.headers["Content-Type"] = f"{content_type}; charset=utf-8"
    response.headers["Cache-Control"] = "public, max-age=300"
    return response


class SwaggerView(SpectacularSwaggerView):
    """Swagger UI with a form that signs in and fills in the token. The query can name a `part` of the document."""

    url_name = "schema"
    template_name = "docs/swagger.html"

    def _get_schema_url(self, request: Request) -> str:
        part = request.query_params.get("part")
        return f"/schema/{part}/" if part in PARTS else str(super()._get_schema_url(request))  # type: ignore[no-untyped-call]  # it has no types
