"""Serve the API document at /schema/. Each process generates it once.

Generating takes half a second of CPU time and the path is public, so generating it per request would be an easy attack.
"""

import threading
from functools import cache

import orjson
from django.http import HttpRequest, HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer

_lock = threading.Lock()


@cache
def _document() -> bytes:
    described = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # as published
    # The library's renderer resolves lazy texts. Without its indentation the document is half as long.
    return orjson.dumps(orjson.loads(OpenApiJsonRenderer().render(described, renderer_context={})))


def openapi(request: HttpRequest) -> HttpResponse:
    """Return the OpenAPI 3.1 document of the whole platform. The query has no effect."""
    with _lock:  # of several first requests one generates it, the others wait
        document = _document()
    return HttpResponse(
        document,
        content_type=OpenApiJsonRenderer.media_type,
        headers={"Content-Disposition": 'inline; filename="openapi.json"', "Cache-Control": "public, max-age=300"},
    )
