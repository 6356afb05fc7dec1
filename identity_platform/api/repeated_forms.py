"""A form that a browser sends twice is processed once and gets the first response again.

That happens by a double click, a reload or from the history. Otherwise a code that was right would be used already, and a
user who has just registered would exist already.
"""

import base64
import hashlib
import json
import time
from collections.abc import Callable
from typing import Final

import orjson
import redis
from django.conf import settings
from django.core.cache import cache
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse

from identity_platform.crypto import SealBroken, SealContext, derive_key, hash_token, keyed_digest, seal, unseal

# How long a response is kept, how long its form may be processed, and how long a second sender waits for it.
KEPT_SECONDS: Final = 120
# A page with an error is kept for a double click only: what was wrong may be right when its user reloads it.
ERROR_KEPT_SECONDS: Final = 10
PROCESSED_SECONDS: Final = 60
WAITED_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
# Larger ones are files, which may be fetched again.
LARGEST: Final = 200_000
# Of a form that has expired, and over a limit: the same form may be sent again later.
_NOT_KEPT: Final = frozenset({403, 429})
_PROCESSED: Final = b""


def form_key(request: HttpRequest, *sender: str) -> str:
    """Return what stands for a form with all that was entered. `sender` are the tokens of the browser that has sent it.

    Each form that is rendered has a value of its own, so that the same entries in another one are another form. Without
    the key of the digest, entries cannot be guessed.
    """
    files = [[name, file.name, _digest_of(file)] for name, uploads in request.FILES.lists() for file in uploads]
    # Not orjson: what a browser sends may be no valid Unicode.
    sent = json.dumps([sender, request.get_full_path(), list(request.POST.lists()), files])
    return keyed_digest(sent, key=_key(), purpose="sent form").hex()


def _digest_of(file: "UploadedFile[bytes]") -> str:
    digest = hashlib.sha256()
    for chunk in file.chunks():
        digest.update(chunk)
    file.seek(0)
    return digest.hexdigest()


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
    response: HttpResponse | None = None
    try:
        response = respond()
        return response
    finally:
        _store(key, response)


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


def _store(key: str, response: HttpResponse | None) -> None:
    """Store the response for a second sender, or let the form be processed again if there is none to repeat."""
    sealed = _sealed(key, response) if response is not None else None
    try:
        if response is None or sealed is None:
            cache.delete(_name(key))
        else:
            is_error = response.status_code >= 400
            cache.set(_name(key), sealed, timeout=ERROR_KEPT_SECONDS if is_error else KEPT_SECONDS)
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
    return seal(orjson.dumps(stored), data_key=_seal_key(), context=_context(key))


def _opened(key: str, blob: bytes) -> HttpResponse | None:
    try:
        stored = orjson.loads(unseal(blob, data_key=_seal_key(), context=_context(key)))
    except SealBroken:
        return None
    response = HttpResponse(
        base64.b64decode(stored["content"]), status=stored["status"], headers=dict(stored["headers"])
    )
    for name, value, attributes in stored["cookies"]:
        response.cookies[name] = value
        response.cookies[name].update(attributes)
    return response


def _key() -> bytes:
    return hash_token(str(settings.SECRET_KEY))


def _seal_key() -> bytes:
    return derive_key(_key(), "responses to sent forms")


def _name(key: str) -> str:
    return f"form:{key}"


def _context(key: str) -> SealContext:
    return SealContext(tenant="platform", table="cache", column="form", row=key)
