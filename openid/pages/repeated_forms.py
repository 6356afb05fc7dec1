"""A form that a browser sends twice is processed once and gets the first response again.

That happens by a double click, a reload or from the history. Otherwise a code that was right would be used already, and a
user who has just registered would exist already.
"""

import base64
import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

import orjson
import redis
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse

from identity_platform.crypto import SealBroken, SealContext, hash_token, seal, unseal
from openid import browser

# How long a response is kept, how long its form may be processed, and how long a second sender waits for it.
KEPT_SECONDS: Final = 120
PROCESSED_SECONDS: Final = 60
WAITED_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
# Larger ones are files, which may be fetched again.
LARGEST: Final = 200_000
# Of a form that has expired, and over a limit: the same form may be sent again later.
_NOT_KEPT: Final = frozenset({403, 429})
_PROCESSED: Final = b""


def form_key(request: HttpRequest, tenant_id: UUID, browser_token: str) -> str:
    """Return what stands for a form that a browser has sent, with all that was entered.

    Each form that is rendered has a value of its own, so that the same entries in another one are another form.
    """
    parts = [tenant_id.hex, browser_token, request.get_full_path(), hash_token(request.body.decode("latin-1")).hex()]
    return browser.form_digest(" ".join(parts))


def respond_once(key: str, respond: Callable[[], HttpResponse]) -> HttpResponse:
    """Process a form, or return the response of its first processing. Raises what `respond` raises.

    While Valkey is away every form is processed.
    """
    try:
        earlier = _earlier(key)
    except (redis.RedisError, OSError):
        return respond()
    if earlier is not None:
        return earlier
    sealed: bytes | None = None
    try:
        response = respond()
        sealed = _sealed(key, response)
        return response
    finally:
        _store(key, sealed)


def _earlier(key: str) -> HttpResponse | None:
    """Return the first response, waiting for it if the form is being processed; None if the caller is the first."""
    deadline = time.monotonic() + WAITED_SECONDS
    while not cache.add(_name(key), _PROCESSED, timeout=PROCESSED_SECONDS):
        stored = cache.get(_name(key))
        if stored and (response := _opened(key, stored)) is not None:
            return response
        if time.monotonic() > deadline:
            return None
        time.sleep(_POLL_SECONDS)
    return None


def _store(key: str, sealed: bytes | None) -> None:
    try:
        if sealed is None:
            cache.delete(_name(key))
        else:
            cache.set(_name(key), sealed, timeout=KEPT_SECONDS)
    except (redis.RedisError, OSError):
        # The form has been processed; its response goes to the browser.
        return


def _sealed(key: str, response: HttpResponse) -> bytes | None:
    """Return a response as it is stored, or None if it is not to be repeated."""
    is_file = response.streaming or len(response.content) > LARGEST or "Content-Disposition" in response.headers
    if response.status_code >= 500 or response.status_code in _NOT_KEPT or is_file:
        return None
    stored = {
        "status": response.status_code,
        "headers": list(response.items()),
        "cookies": [
            [name, morsel.value, {attribute: value for attribute, value in morsel.items() if value}]
            for name, morsel in response.cookies.items()
        ],
        "content": base64.b64encode(response.content).decode(),
    }
    return seal(orjson.dumps(stored), data_key=browser.steps_key(), context=_context(key))


def _opened(key: str, blob: bytes) -> HttpResponse | None:
    try:
        stored = orjson.loads(unseal(blob, data_key=browser.steps_key(), context=_context(key)))
    except SealBroken:
        return None
    response = HttpResponse(
        base64.b64decode(stored["content"]), status=stored["status"], headers=dict(stored["headers"])
    )
    for name, value, attributes in stored["cookies"]:
        response.cookies[name] = value
        response.cookies[name].update(attributes)
    return response


def _name(key: str) -> str:
    return f"form:{key}"


def _context(key: str) -> SealContext:
    return SealContext(tenant="platform", table="cache", column="form", row=key)
