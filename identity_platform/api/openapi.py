"""The API document at /schema/: made once in a process, and sent as it is from then on.

Generating it takes half a second of a core, and any caller could keep all cores busy with it.
"""

import threading
from functools import cache

import orjson
from django.http import HttpRequest, HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer

_making = threading.Lock()


@cache
def _made() -> bytes:
    described = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # as published
    # By way of the library's renderer, which knows its texts; without the blanks of its layout it is half as long.
    return orjson.dumps(orjson.loads(OpenApiJsonRenderer().render(described, renderer_context={})))


def openapi(request: HttpRequest) -> HttpResponse:
    """OpenAPI 3.1 of the whole platform. What the query says changes nothing."""
    with _making:  # of those who come first one makes it, the others wait for it
        made = _made()
    return HttpResponse(
        made,
        content_type=OpenApiJsonRenderer.media_type,
        headers={"Content-Disposition": 'inline; filename="openapi.json"', "Cache-Control": "public, max-age=300"},
    )
