"""The only place that shapes an error body: one envelope per route group, chosen by path."""

import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

import orjson
import structlog
from django.core.exceptions import BadRequest, DisallowedHost, RequestDataTooBig, SuspiciousOperation
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.db import InterfaceError, InternalError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.request import RawPostDataException
from django.http.response import HttpResponseBase
from psycopg import Error as DriverError
from psycopg import OperationalError as DriverOperationalError
from psycopg.errors import ReadOnlySqlTransaction
from rest_framework import exceptions as drf
from rest_framework.response import Response

from identity_platform.api import errors

log = structlog.get_logger("identity.api")

# Of the way to a fault: more would make its line longer than a pipe takes in one piece (`logs.write_line`).
DEEPEST_FRAMES = 40
# What RFC 6749 section 5.2 calls our errors at the token endpoints.
OAUTH_ERRORS = {401: "invalid_client", 403: "unauthorized_client", 429: "temporarily_unavailable", 500: "server_error"}


def envelope(path: str, error: errors.ApiError) -> dict[str, Any]:
    """The body of an error at `path`: the registry's, OAuth's (RFC 6749 section 5.2) or the common one."""
    if path.startswith("/exsvc/"):
        inner: dict[str, Any] = {"code": error.code, "message": error.text}
        if error.details:
            inner["details"] = error.details
        return {"error": inner}
    if path.startswith("/authmgr/token"):
        fallback = "temporarily_unavailable" if error.status == 503 else "invalid_request"
        name = getattr(error, "error", None) or OAUTH_ERRORS.get(error.status, fallback)
        # There is no other place to say which parameter it is.
        text = " ".join(_each(error.details)) if error.details else error.text
        # RFC 6749 section 5.2 allows neither double quotes nor backslashes nor anything beyond ASCII there.
        plain = text.replace('"', "'").replace("\\", "/").encode("ascii", "replace").decode()
        return {"error": name, "error_description": plain}
    body: dict[str, Any] = {"error": error.phrase, "message": error.text}
    if error.shows_code:
        body["code"] = error.code
    if error.details:
        body["details"] = error.details
    return body


def _each(details: Mapping[str, Any]) -> Iterator[str]:
    for name, told in details.items():
        for sentence in told if isinstance(told, list) else [told]:
            yield f"{name}: {sentence}"


def as_api_error(problem: BaseException) -> errors.ApiError:
    """Our word for whatever was raised; anything unknown is a fault of ours and is logged with its trace."""
    match problem:
        case errors.Unavailable():
            log.warning("unavailable", reason=type(problem).__qualname__)
            return problem
        case errors.ApiError():
            return problem
        case drf.ValidationError():
            return errors.ValidationFailed(details=problem.detail if isinstance(problem.detail, dict) else None)
        case drf.ParseError() | RequestDataTooBig() | RawPostDataException():
            return errors.BodyTooLarge() if isinstance(problem, RequestDataTooBig) else errors.MalformedBody()
        case drf.NotAuthenticated() | drf.AuthenticationFailed():
            return errors.NotSignedIn()
        case drf.PermissionDenied() | DjangoPermissionDenied():
            return errors.NotAllowed()
        case drf.NotFound() | Http404():
            return errors.NotFound()
        case drf.MethodNotAllowed():
            return errors.MethodNotAllowed()
        case drf.UnsupportedMediaType():
            return errors.UnsupportedMediaType()
        case DisallowedHost():
            return errors.OddHost()
        case SuspiciousOperation() | BadRequest() | MultiPartParserError():
            return errors.ValidationFailed("The request is not well-formed HTTP for this platform.")
        case OperationalError() | InterfaceError() | DriverOperationalError():
            # The message of the driver may carry SQL or hosts: neither the caller nor the log gets it.
            log.warning("database_unavailable", **about_database(problem))
            return errors.Unavailable()
        case InternalError() if isinstance(problem.__cause__, ReadOnlySqlTransaction):
            # The tenant is being moved: its old database takes no more writes, the new one is a moment away.
            return errors.Unavailable()
        case _:
            log.error("fault", kind=type(problem).__qualname__, trace=where(problem))
            return errors.ServerFault()


def about_database(problem: BaseException) -> dict[str, Any]:
    """Which server and tenant a database error is of (no tenant: the global database), and its class (SQLSTATE)."""
    driver = problem.__cause__ if isinstance(problem.__cause__, DriverError) else problem
    server, tenant = getattr(driver, "place", (None, None))
    sqlstate = getattr(driver, "sqlstate", None)
    return {"server": server, "tenant": tenant, "error": type(driver).__qualname__, "sqlstate": sqlstate}


def where(problem: BaseException) -> list[str]:
    """The way to the fault as `module:function:line`, innermost last.

    Messages, values, SQL and file paths of a trace can carry people's data and secrets; the way
    alone is enough to find the line.
    """
    frames = deque(traceback.walk_tb(problem.__traceback__), maxlen=DEEPEST_FRAMES)
    return [f"{frame.f_globals.get('__name__')}:{frame.f_code.co_name}:{line}" for frame, line in frames]


def api_error_response(problem: Exception, context: dict[str, Any]) -> Response:
    """DRF's exception handler."""
    error = as_api_error(problem)
    note_rejection(context["request"]._request, error)
    if isinstance(problem, drf.UnsupportedMediaType):
        error = errors.UnsupportedMediaType.wanting(context["view"].parser_classes[0].media_type)
    return Response(
        envelope(context["request"].path, error), status=error.status, headers=_headers(error, context["request"])
    )


def note_rejection(request: HttpRequest, error: errors.ApiError) -> None:
    """Keep the reason why a request was rejected, for its audit event (tenants.rejections)."""
    request.rejection = error  # type: ignore[attr-defined]  # read by the middleware


def plain_response(path: str, error: errors.ApiError) -> HttpResponse:
    """The same answer outside DRF (middleware, unknown paths, faults in Django itself)."""
    return HttpResponse(
        orjson.dumps(envelope(path, error)),
        status=error.status,
        content_type="application/json",
        headers=error.headers,
    )


def read_only(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """A page of a library or a plain view that is only looked at: other methods are 405 in our envelope, not in its own."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method not in ("GET", "HEAD"):
            return plain_response(request.path, errors.MethodNotAllowed(headers={"Allow": "GET, HEAD"}))
        return view(request, *args, **kwargs)

    return guarded


def _headers(error: errors.ApiError, request: Any) -> dict[str, str]:
    if request.path.startswith("/authmgr/token"):
        return {"Cache-Control": "no-store", "Pragma": "no-cache", **error.headers}  # RFC 6749 section 5.1
    return error.headers


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Django's handler400: hosts that are not ours, broken requests."""
    return plain_response(request.path, as_api_error(exception) if exception else errors.ValidationFailed())


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Django's handler403."""
    return plain_response(request.path, errors.NotAllowed())


def unknown_path(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Django's handler404."""
    return plain_response(request.path, errors.UnknownPath())


def fault(request: HttpRequest) -> HttpResponse:
    """Django's handler500, for what DRF has not caught: pages of the console, for the most part.

    Django calls it while it handles the exception, and does not hand it over.
    """
    problem = sys.exception()
    return plain_response(request.path, as_api_error(problem) if problem else errors.ServerFault())
