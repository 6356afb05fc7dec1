"""Turn errors into responses, in the form that the path has (`app_parts.error_format_of`)."""

import logging
import sys
import traceback
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, TypedDict

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

from identity_platform.api import errors, log_levels, malformed_bodies
from identity_platform.api.app_parts import error_format_of

if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.views import APIView

log = structlog.get_logger("identity.api")

# Frames in the log line of a fault. More would make the line longer than one write to a pipe (`logs.write_line`).
DEEPEST_FRAMES = 40


def as_api_error(problem: BaseException) -> errors.ApiError:
    """Return the ApiError for any exception. An unknown one is a defect: it is logged with its trace."""
    if log_levels.is_enabled("identity.api", logging.DEBUG):
        log.debug("request_rejected", kind=type(problem).__qualname__, raised_at=where(problem)[-1:])
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
            return errors.UnknownHost()
        case SuspiciousOperation() | BadRequest() | MultiPartParserError():
            return errors.ValidationFailed("The request is not well-formed HTTP for this platform.")
        case OperationalError() | InterfaceError() | DriverOperationalError():
            # The message of the driver may carry SQL or hosts: neither the caller nor the log gets it.
            log.warning("database_unavailable", **about_database(problem))
            return errors.Unavailable()
        case InternalError() if isinstance(problem.__cause__, ReadOnlySqlTransaction):
            # The tenant is being moved: its old database is read-only, and its new one is about to be used.
            return errors.Unavailable()
        case _:
            log.error("fault", kind=type(problem).__qualname__, trace=where(problem))
            return errors.ServerFault()


def about_database(problem: BaseException) -> dict[str, object]:
    """Return the server, the tenant (None: the global database) and the SQLSTATE of a database error."""
    driver = problem.__cause__ if isinstance(problem.__cause__, DriverError) else problem
    server, tenant = getattr(driver, "server_and_tenant", (None, None))
    sqlstate = getattr(driver, "sqlstate", None)
    return {"server": server, "tenant": tenant, "error": type(driver).__qualname__, "sqlstate": sqlstate}


def where(problem: BaseException) -> list[str]:
    """Return the frames of a traceback as `module:function:line`, innermost last.

    Messages, values, SQL and file paths of a traceback can contain personal data and secrets.
    """
    frames = deque(traceback.walk_tb(problem.__traceback__), maxlen=DEEPEST_FRAMES)
    return [f"{frame.f_globals.get('__name__')}:{frame.f_code.co_name}:{line}" for frame, line in frames]


class ErrorContext(TypedDict):
    """What DRF tells of the view that raised; `args` and `kwargs` are not used."""

    view: "APIView"
    request: "Request"


def api_error_response(problem: Exception, context: ErrorContext) -> Response:
    """Handle exceptions for DRF (EXCEPTION_HANDLER)."""
    error, request = as_api_error(problem), context["request"]
    note_rejection(request._request, error)
    if isinstance(problem, drf.UnsupportedMediaType):
        error = errors.UnsupportedMediaType.expecting(context["view"].parser_classes[0].media_type)
    error = malformed_bodies.counted(error)
    return Response(error_format_of(request.path).body(error), status=error.status, headers=_headers(error, request))


def note_rejection(request: HttpRequest, error: errors.ApiError) -> None:
    """Attach the error to the request, for its audit event."""
    request.rejection = error  # type: ignore[attr-defined]  # read by the middleware


def plain_response(path: str, error: errors.ApiError) -> HttpResponse:
    """Return the same response outside DRF (middleware, unknown paths, faults in Django itself)."""
    return HttpResponse(
        orjson.dumps(error_format_of(path).body(error)),
        status=error.status,
        content_type="application/json",
        headers=error.headers,
    )


def read_only(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Allow GET and HEAD only. Other methods get a 405 in our envelope, not in the library's."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        if request.method not in ("GET", "HEAD"):
            return plain_response(request.path, errors.MethodNotAllowed(headers={"Allow": "GET, HEAD"}))
        return view(request, *args, **kwargs)

    return guarded


def _headers(error: errors.ApiError, request: "Request") -> dict[str, str]:
    headers = error.headers
    scheme, _, parameters = headers.get("WWW-Authenticate", "").partition(" ")
    if scheme == "Bearer" and request.META.get("HTTP_AUTHORIZATION", "")[:5].lower() == "dpop ":
        # In the scheme of the request (RFC 9449 section 7.1).
        challenge = ", ".join(filter(None, (parameters, f'algs="{errors.DPOP_ALGORITHMS}"')))
        headers = {**headers, "WWW-Authenticate": f"DPoP {challenge}"}
    return {**error_format_of(request.path).headers, **headers}


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Handle unknown hosts and malformed requests (Django's handler400)."""
    return plain_response(request.path, as_api_error(exception) if exception else errors.ValidationFailed())


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Handle PermissionDenied outside DRF (Django's handler403)."""
    return plain_response(request.path, errors.NotAllowed())


def unknown_path(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Handle unknown paths (Django's handler404)."""
    return plain_response(request.path, errors.UnknownPath())


def fault(request: HttpRequest) -> HttpResponse:
    """Handle exceptions that DRF has not caught, mostly in console pages (Django's handler500).

    Django calls it while it handles the exception and does not pass the exception.
    """
    problem = sys.exception()
    return plain_response(request.path, as_api_error(problem) if problem else errors.ServerFault())
