"""CORS for the origins that the operator lists (Fetch standard, CORS protocol)."""

from typing import Any

import pytest

from tests.world import Api

APP, OTHER = "https://app.example", "https://evil.example"
LOGIN = "/uflow/auth/enduser/login"


@pytest.fixture(autouse=True)
def listed(settings: Any) -> None:
    settings.CORS_ALLOWED_ORIGINS = [APP]


def preflight(api: Api, origin: str, path: str = LOGIN) -> Any:
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    return api.call("OPTIONS", path, headers={"Origin": origin, **asks})


def test_cors_allows_calls_from_listed_origins(api: Api) -> None:
    asked = preflight(api, APP)
    assert (asked.status_code, asked.headers["Access-Control-Allow-Origin"]) == (200, APP)
    assert {"authorization", "content-type"} <= set(asked.headers["Access-Control-Allow-Headers"].split(", "))
    response = api.post(LOGIN, {}, headers={"Origin": APP})
    assert (response.status_code, response.headers["Access-Control-Allow-Origin"]) == (400, APP)
    assert "X-Enrollment-Ticket" in response.headers["Access-Control-Expose-Headers"]
    assert "Access-Control-Allow-Credentials" not in response.headers


def test_cors_exposes_the_headers_that_pages_need(api: Api) -> None:
    response = api.get("/authmgr/profile", token="invalid", headers={"Origin": APP})
    assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, 'Bearer error="invalid_token"')
    exposed = set(response.headers["Access-Control-Expose-Headers"].split(", "))
    limits = {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
    assert exposed == {"Retry-After", "WWW-Authenticate", "X-Enrollment-Ticket", "X-Request-ID", *limits}


def test_cors_covers_the_413_of_the_middleware(api: Api, settings: Any) -> None:
    settings.API_BODY_LIMIT = 8
    response = api.post(LOGIN, {"email": "user@example.com"}, headers={"Origin": APP})
    assert (response.status_code, response.headers.get("Access-Control-Allow-Origin")) == (413, APP)


@pytest.mark.parametrize("origin", [OTHER, "null", f"{APP}.evil.example", "http://app.example"])
def test_cors_rejects_other_origins(api: Api, origin: str) -> None:
    assert "Access-Control-Allow-Origin" not in preflight(api, origin).headers
    assert "Access-Control-Allow-Origin" not in api.post(LOGIN, {}, headers={"Origin": origin}).headers


def test_cors_never_covers_the_console(api: Api) -> None:
    assert "Access-Control-Allow-Origin" not in preflight(api, APP, "/admin/").headers
