"""The API document at /schema/, its parts below it, and security.txt (RFC 9116)."""

import gzip
import re
import threading
from functools import cache
from typing import Final

import orjson
from django.conf import settings
from django.core import checks
from django.http import HttpRequest, HttpResponse
from django.utils.timezone import now
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer

from identity_platform.api.document_parts import part_of
from identity_platform.api.handlers import unknown_path
from identity_platform.api.tags import GROUPS
from identity_platform.environment import expiry_of

# Generating takes half a second of CPU time and the path is public, so generating it per request would be an easy attack.
_lock = threading.Lock()
# Also `gzip;q=0`, which no client sends.
_GZIP = re.compile(r"\bgzip\b")
# The parts at /schema/{part}/, and the groups of tags in them.
PARTS: Final = {group.lower(): group for group in GROUPS}


@cache
def _document() -> bytes:
    described = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # as published
    # The library's renderer resolves lazy texts. Without its indentation the document is half as long.
    return orjson.dumps(orjson.loads(OpenApiJsonRenderer().render(described, renderer_context={})))


@cache
def _part(part: str) -> bytes:
    return orjson.dumps(part_of(orjson.loads(_document()), PARTS[part]))


@cache
def _compressed(part: str | None) -> bytes:
    return gzip.compress(_part(part) if part else _document(), mtime=0)


def openapi(request: HttpRequest, part: str | None = None) -> HttpResponse:
    """Return the OpenAPI 3.1 document of the whole platform, or one of `PARTS`. The query has no effect."""
    takes_gzip = _GZIP.search(request.headers.get("Accept-Encoding", "")) is not None
    with _lock:  # of several first requests one generates it, the others wait
        document = _compressed(part) if takes_gzip else _part(part) if part else _document()
    return HttpResponse(
        document,
        content_type=OpenApiJsonRenderer.media_type,
        headers={
            "Content-Disposition": f'inline; filename="{part or "openapi"}.json"',
            "Cache-Control": "public, max-age=300",
            "Vary": "Accept-Encoding",
            **({"Content-Encoding": "gzip"} if takes_gzip else {}),
        },
    )


def security_txt(request: HttpRequest) -> HttpResponse:
    """Return the setting as plain text, or the 404 of an unknown path."""
    if settings.SECURITY_TXT is None:
        return unknown_path(request)
    return HttpResponse(settings.SECURITY_TXT, content_type="text/plain; charset=utf-8")


@checks.register(checks.Tags.security, deploy=True)
def is_not_expired(**options: object) -> list[checks.CheckMessage]:
    """Warn of a file that researchers must not rely on any more (RFC 9116 section 2.5.5)."""
    if settings.SECURITY_TXT is None or expiry_of(settings.SECURITY_TXT, "SECURITY_TXT") > now():
        return []
    return [checks.Warning("SECURITY_TXT has expired: renew its `Expires` line.", id="identity_platform.W001")]
