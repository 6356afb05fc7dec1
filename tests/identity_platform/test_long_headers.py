"""Overlong headers are not parsed."""

from typing import Any

import pytest
from django.core.signals import request_started
from django.test import RequestFactory

from identity_platform.wsgi import LONGEST_COOKIES, LONGEST_TYPE, application


def handed_to_django(**headers: str) -> tuple[str, dict[str, Any]]:
    """Return the status of the response and the environ that Django received."""
    seen: list[dict[str, Any]] = []
    statuses: list[str] = []

    def note(environ: dict[str, Any], **_: Any) -> None:
        seen.append(environ)

    def start_response(status: str, *_: Any) -> Any:
        statuses.append(status)

    request_started.connect(note)
    try:
        body = application({**RequestFactory().post("/uflow/user/enduser/list").environ, **headers}, start_response)
        assert b"".join(body)
    finally:
        request_started.disconnect(note)
    return statuses[0], seen[0]


@pytest.mark.parametrize("more", [0, 1])
def test_overlong_cookies_are_ignored(more: int) -> None:
    cookies = 'x="' + "\\" * (LONGEST_COOKIES - 4 + more) + '"'
    status, seen = handed_to_django(HTTP_COOKIE=cookies)
    assert (status, "HTTP_COOKIE" in seen) == ("401 Unauthorized", not more)


@pytest.mark.parametrize("more", [0, 1])
def test_overlong_content_type_is_ignored(more: int) -> None:
    stated = "application/json" + ";" * (LONGEST_TYPE - 16 + more)
    status, seen = handed_to_django(CONTENT_TYPE=stated)
    assert (status, seen["CONTENT_TYPE"] == stated) == ("401 Unauthorized", not more)


@pytest.mark.parametrize("charset", ["base64", "hex", "utf-7", "nonsense", "rot13"])
def test_charset_of_the_content_type_is_ignored(charset: str) -> None:
    status, _ = handed_to_django(CONTENT_TYPE=f"text/plain; charset={charset}", QUERY_STRING="page=1")
    assert status == "401 Unauthorized"
