"""The WSGI application: Django behind a reader for bodies of unknown length."""

import gc
import os
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import TYPE_CHECKING
from wsgiref.types import InputStream, StartResponse, WSGIEnvironment

from django.conf import settings
from django.core import signals
from django.core.cache import close_caches
from django.core.handlers.wsgi import LimitedStream, WSGIRequest
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, reset_queries
from django.http import HttpResponse
from django.utils.http import parse_header_parameters

from identity_platform.serving.workers import STOPPING

if TYPE_CHECKING:
    from _typeshed import OptExcInfo

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "identity_platform.settings")


class _Utf8Request(WSGIRequest):
    """A request whose query and form are UTF-8, also if its content type names another charset.

    Django decodes the query with that charset before any middleware, and fails for codecs such as base64.
    """

    def _set_content_type_params(self, meta: WSGIEnvironment) -> None:
        self.content_type, self.content_params = parse_header_parameters(meta.get("CONTENT_TYPE", ""))


_django = get_wsgi_application()
_django.request_class = _Utf8Request

# A request leaves some hundred objects in cycles behind. Python would look for them after every 700 new objects, several
# times in each request, and find little; after 20,000 it looks once in tens of requests and holds a few MiB longer.
gc.set_threshold(20_000, 10, 10)

# What Django does around each request and nothing here needs: queries are logged with DEBUG only, these caches have nothing
# to close, and a connection that was looked at when the request before ended is asked again before its first statement.
signals.request_started.disconnect(reset_queries)
signals.request_started.disconnect(close_old_connections)
signals.request_finished.disconnect(close_caches)

# Django parses these two for every request, in a time that grows with the square of their length:
# cookies with Python before 3.11.10 (CVE-2024-7592), content types still. The server in front of us takes hundreds of
# kilobytes of them, which are minutes of a core. No browser and no client has as much to say; nginx takes 8 KiB of a header.
LONGEST_COOKIES = 8 * 1024
LONGEST_TYPE = 1024
# No endpoint reads a body of this type.
NO_TYPE = "application/octet-stream"


# A body over the API's limit is rejected; up to this size it is still read, so that the 413 reaches the caller.
DRAINED = 16 * settings.API_BODY_LIMIT
PIECE = 64 * 1024


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answer one request (PEP 3333).

    Django takes a body without Content-Length for an empty one. Where the server has undone the chunks (RFC 9112 §7.1),
    the body is read here, up to one byte more than the API takes: enough for the parser to answer 413. Cookies and a content
    type that are too long to be taken apart count as none that anybody reads.

    The body is read to its end before the response is sent, even if the response is ready earlier: a server that
    closes a connection while the client sends takes the response with it (RFC 9112 section 9.6).
    """
    if len(environ.get("HTTP_COOKIE", "")) > LONGEST_COOKIES:
        del environ["HTTP_COOKIE"]
    if len(environ.get("CONTENT_TYPE", "")) > LONGEST_TYPE:
        environ["CONTENT_TYPE"] = NO_TYPE
    unread: InputStream | None = None
    if "CONTENT_LENGTH" in environ:
        if size := _size_to_drain(environ):
            unread = environ["wsgi.input"] = LimitedStream(environ["wsgi.input"], size)
    elif "HTTP_TRANSFER_ENCODING" in environ:
        unread = environ["wsgi.input"]
        body = _read(unread, settings.API_BODY_LIMIT + 1)
        environ["wsgi.input"] = BytesIO(body)
        environ["CONTENT_LENGTH"] = str(len(body))
    response: Iterable[bytes] = _django(environ, _closing(start_response) if STOPPING[0] else start_response)
    if isinstance(response, HttpResponse):
        # The server sends a list at once and with a Content-Length; of anything else it asks piece by piece, in chunks.
        content = response.content
        response.close()
        response = [content]
    if unread is not None:
        _drain(unread)
    return response


def _closing(start_response: StartResponse) -> StartResponse:
    """Announce that the connection ends with this response: a proxy then sends nothing more on it, which would be lost."""

    def start(status: str, headers: list[tuple[str, str]], *problem: "OptExcInfo | None") -> Callable[[bytes], object]:
        return start_response(status, [*headers, ("Connection", "close")], *problem)

    return start


def _size_to_drain(environ: WSGIEnvironment) -> int:
    """The length of a body that is read to its end, else 0: it is far too long, or it is over the limit and its client
    asks first (`Expect`) and does not send it when it is rejected."""
    length = environ["CONTENT_LENGTH"]
    size = int(length) if length.isdecimal() and len(length) < 20 else 0
    return size if size <= (settings.API_BODY_LIMIT if "HTTP_EXPECT" in environ else DRAINED) else 0


def _read(stream: InputStream, limit: int) -> bytes:
    pieces = []
    while limit and (piece := stream.read(limit)):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def _drain(stream: InputStream) -> None:
    left = DRAINED
    while left > 0 and (piece := stream.read(PIECE)):
        left -= len(piece)
