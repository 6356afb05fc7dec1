"""Calls to identity providers. Every address is checked at every use, whichever document has named it.

One call takes seconds at most and reads a bounded number of bytes. A response that is HTML, an error, a redirect or nothing
at all raises UpstreamError with the reason.
"""

import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit

import orjson
import requests
from django.conf import settings

from federation.upstream.errors import Reason, UpstreamError
from federation.web_addresses import is_web_address
from identity_platform import outbound
from identity_platform.api.errors import Unavailable
from identity_platform.outbound import GuardedSession, NotResolved, OutboundResponse, Reach, TargetRejected, TooSlow
from identity_platform.semaphore import Semaphore

# A waiting request holds a thread of the server, so it waits only shortly for its turn.
WAIT_SECONDS: Final = 1.0
LONGEST_RESPONSE: Final = 131_072
_REDIRECTS: Final = range(300, 400)

_semaphore = Semaphore.for_slow_requests("identity_providers", Unavailable)


def reach() -> Reach:
    """Return where identity providers may be, from the settings."""
    return Reach.of(settings.FEDERATION_ALLOWED_NETWORKS, plain_http=settings.FEDERATION_PLAIN_HTTP)


def is_address(value: str) -> bool:
    """Return whether a value has the form of an address that may be called: https, or http if the settings allow it.

    Where its name leads is checked when it is called.
    """
    return "#" not in value and is_web_address(value, takes_plain_http=lambda host: settings.FEDERATION_PLAIN_HTTP)


def get_json(url: str, *, authorities: str, access_token: str = "") -> object:
    """Return the JSON document at an address.

    `authorities` (PEM) are those of the tenant. `access_token` is sent as a Bearer token. Raises UpstreamError.
    """
    headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {access_token}"} if access_token else {})
    response = _call(url, headers=headers, body=None, authorities=authorities)
    if response.status != 200:
        raise UpstreamError(Reason.STATUS_UNEXPECTED, expected="200", received=f"{response.status} of {_host(url)}")
    return _json(response.beginning, url)


def post_form(
    url: str, form: Mapping[str, str], *, authorities: str, headers: Mapping[str, str] | None = None
) -> tuple[int, object]:
    """Return status and JSON document of the response to a form. Raises UpstreamError, also for a status above 499."""
    sent_headers = {
        **(headers or {}),
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    response = _call(url, headers=sent_headers, body=urlencode(form).encode(), authorities=authorities)
    if response.status >= 500:
        raise UpstreamError(Reason.STATUS_UNEXPECTED, expected="200", received=f"{response.status} of {_host(url)}")
    return response.status, _json(response.beginning, url)


def _call(url: str, *, headers: Mapping[str, str], body: bytes | None, authorities: str) -> OutboundResponse:
    if not is_address(url):
        raise UpstreamError(Reason.ADDRESS_NOT_ALLOWED, expected="an https address", received=url)
    session = GuardedSession(reach(), authorities=authorities)
    try:
        with _semaphore.acquire(wait=WAIT_SECONDS):
            response = _exchange(session, url, headers=headers, body=body)
    except Unavailable as problem:
        raise UpstreamError(Reason.SERVER_BUSY) from problem
    except NotResolved as problem:
        raise UpstreamError(Reason.NAME_NOT_RESOLVED, received=_host(url)) from problem
    except TargetRejected as problem:
        raise UpstreamError(Reason.ADDRESS_NOT_ALLOWED, expected=problem.reason, received=_host(url)) from problem
    except requests.exceptions.ContentDecodingError as problem:
        raise _too_long(url) from problem
    except (TooSlow, requests.Timeout) as problem:
        raise UpstreamError(
            Reason.TIMED_OUT, expected=f"{settings.FEDERATION_TIMEOUT_SECONDS} s", received=_host(url)
        ) from problem
    except (requests.exceptions.SSLError, ssl.SSLError) as problem:
        raise UpstreamError(Reason.TLS_FAILED, received=_host(url)) from problem
    except (requests.RequestException, OSError, ValueError) as problem:
        # ValueError: of http.client, for a malformed response or an address that it cannot send.
        raise UpstreamError(Reason.CONNECTION_FAILED, received=_host(url)) from problem
    finally:
        session.close()
    if len(response.beginning) > LONGEST_RESPONSE:
        raise _too_long(url)
    if response.status in _REDIRECTS:
        raise UpstreamError(Reason.REDIRECTED, expected="200", received=f"{response.status} of {_host(url)}")
    return response


def _exchange(session: GuardedSession, url: str, *, headers: Mapping[str, str], body: bytes | None) -> OutboundResponse:
    seconds = settings.FEDERATION_TIMEOUT_SECONDS
    if body is None:
        return outbound.get(session, url, headers=headers, seconds=seconds, most=LONGEST_RESPONSE)
    return outbound.post(session, url, body=body, headers=headers, seconds=seconds, most=LONGEST_RESPONSE + 1)


def _too_long(url: str) -> UpstreamError:
    return UpstreamError(Reason.RESPONSE_TOO_LONG, expected=f"at most {LONGEST_RESPONSE} bytes", received=_host(url))


def _json(body: bytes, url: str) -> object:
    """Return a document. The response may contain tokens, so nothing of it becomes part of the error."""
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError as problem:
        raise UpstreamError(Reason.RESPONSE_NOT_JSON, expected="JSON", received=_host(url)) from problem
    return document


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""
