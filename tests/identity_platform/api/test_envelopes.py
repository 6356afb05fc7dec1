"""Errors have the envelope of their route group: a malformed request never gets HTML or a 500."""

import gzip
import json
import re
from typing import Any

import pytest

from tests.world import Api, TestTenant

LOGIN = "/uflow/admin/auth/login"
DEEP = b"[" * 5000 + b"]" * 5000

BROKEN_BODIES: list[tuple[bytes, int]] = [
    (b"{", 400),
    (b"", 400),
    (b"[]", 400),
    (b'"text"', 400),
    (b"null", 400),
    (b'{"username": "a", "username": "b", "password": "c"}', 400),
    (b'{"username": NaN}', 400),
    (b'{"username": Infinity}', 400),
    (b'{"username": 1e400}', 400),
    (b'{"username": "a\\u0000b", "password": "x"}', 400),
    (b'{"username": "\\ud800", "password": "x"}', 400),
    (b'{"user\\u0000name": "x", "password": "x"}', 400),
    (b'{"username": "\xff", "password": "x"}', 400),
    (b'\xef\xbb\xbf{"username": "x", "password": "x"}', 400),
    ('{"username": "x", "password": "x"}'.encode("utf-16"), 400),
    (b'{"username": ' + DEEP + b"}", 400),
    (b'{"username": ' + b"9" * 5000 + b"}", 400),
    (b'{"username": 9223372036854775808, "password": "x"}', 400),
    (b'{"username": "' + b"x" * 1_100_000 + b'"}', 413),
]


@pytest.mark.parametrize(("raw", "status"), BROKEN_BODIES, ids=[str(n) for n in range(len(BROKEN_BODIES))])
def test_malformed_body_is_400_in_the_envelope_of_its_group(api: Api, raw: bytes, status: int) -> None:
    response = api.post(LOGIN, raw=raw)
    assert response.status_code == status
    assert set(response.json()) <= {"error", "code", "message", "details"}
    assert response.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/xml", "application/json; charset=utf-7", "multipart/form-data; boundary=x", "x"]
)
def test_other_media_type_is_415(api: Api, kind: str) -> None:
    assert api.post(LOGIN, raw=b'{"username": "a", "password": "b"}', content_type=kind).status_code == 415


def test_compressed_body_is_415(api: Api) -> None:
    response = api.post(LOGIN, raw=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})
    assert (response.status_code, response.headers["Accept-Encoding"]) == (415, "identity")
    assert "Content-Encoding" in response.json()["message"]
    assert api.post(LOGIN, raw=b"{}", headers={"Content-Encoding": "identity"}).status_code == 400


@pytest.mark.parametrize(
    ("path", "inner"),
    [
        ("/nowhere", None),
        ("/uflow/nowhere", None),
        ("/webauthn/nowhere", None),
        ("/exsvc/nowhere", "NOT_FOUND"),
        ("/authmgr/nowhere", None),
        ("/uflow/health/", None),
        ("/%00", None),
        ("/uflow/admin/users/%ff%fe", None),
        ("/" + "a" * 5000, None),
    ],
)
def test_unknown_path_is_404_in_the_envelope_of_its_group(tenant: TestTenant, path: str, inner: str | None) -> None:
    response = tenant.api.get(path)
    assert response.status_code == 404
    if inner:
        assert response.json()["error"]["code"] == inner
    else:
        assert response.json()["error"] == "Not Found"


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
def test_wrong_method_is_405_and_lists_the_allowed(api: Api, method: str) -> None:
    response = api.call(method, LOGIN)
    assert (response.status_code, response.headers["Allow"]) == (405, "POST")
    assert response.json()["error"] == "Method Not Allowed"


def test_unknown_host_is_400(api: Api) -> None:
    response = api.post(LOGIN, {}, headers={"Host": "evil.example"})
    assert (response.status_code, response.json()["error"]) == (400, "Bad Request")
    assert "Host" in response.json()["message"]
    assert api.get("/uflow/health", headers={"Host": "10.0.0.7"}).status_code == 200


def test_request_id_is_returned_if_well_formed(api: Api) -> None:
    for sane in ("order-66.retry_2", "7", "Root=1-67891233:a+b/c", "x" * 128):
        assert api.get("/uflow/health", headers={"X-Request-ID": sane}).headers["X-Request-ID"] == sane
    for odd in ("x" * 129, "a b c d e f g h", 'quote"quote"'):
        made = api.get("/uflow/health", headers={"X-Request-ID": odd}).headers["X-Request-ID"]
        assert re.fullmatch(r"[0-9a-f]{32}", made)


def test_security_headers_are_on_every_response(api: Api) -> None:
    for path in ("/uflow/health", "/nowhere", LOGIN):
        headers = api.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "default-src 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize("query", ["page=1&page=2", "page=%00", "page=%ff", "email=%ed%a0%80", "limit=9" + "9" * 40])
def test_malformed_query_is_400(tenant: TestTenant, query: str) -> None:
    response = tenant.api.get(f"/uflow/user/enduser/list?tenant_id={tenant.id}&{query}")
    assert response.status_code in (200, 400)
    assert response.status_code == 400 or query.startswith("limit")


HOSTILE: list[Any] = [
    "\u0000",
    "a\r\nSet-Cookie: x=1",
    "x" * 1_000_000,
    [[[[]]]],
    {"$ne": None},
    True,
    2**63,
    -1,
    1.5,
    "' OR 1=1 --",
    "%s%d{0}",
    "../../etc/passwd",
    "",
    None,
]


@pytest.mark.parametrize("value", HOSTILE, ids=[str(n) for n in range(len(HOSTILE))])
def test_hostile_field_values_never_cause_500(tenant: TestTenant, value: Any) -> None:
    field_names = [
        "tenant_id",
        "user_id",
        "client_id",
        "email",
        "name",
        "active",
        "page",
        "limit",
        "metadata",
        "roles",
    ]
    for path in (
        "/uflow/user/enduser/list",
        "/uflow/admin/enduser/active",
        "/uflow/user/enduser/delete_all",
        "/uflow/user/clients/register",
        "/uflow/admin/users",
    ):
        for name in field_names:
            body = {"tenant_id": str(tenant.id), "user_id": str(tenant.id), name: value}
            try:
                raw = json.dumps(body).encode()
            except ValueError:
                continue
            response = tenant.api.post(path, raw=raw)
            assert response.status_code < 500, (path, name)
            assert response.headers["Content-Type"] == "application/json"


def test_server_fault_shows_no_internals(api: Api) -> None:
    response = api.post("/authmgr/token", {"grant_type": "refresh_token", "refresh_token": "a.b.c"})
    assert response.status_code == 400
    assert response.json()["error"] == "invalid_grant"
    assert set(response.json()) == {"error", "error_description"}


def test_http_redirects_to_https_if_enabled(api: Api, settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    response = api.post(f"{LOGIN}?a=b", {})
    assert (response.status_code, response.headers["Location"]) == (308, f"https://testserver{LOGIN}?a=b")
    assert api.get("/uflow/health").status_code == 200


@pytest.mark.parametrize("path", ["/", "/docs/", "/schema/", "/metrics", "/password/reset"])
@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS"])
def test_pages_reject_other_methods(api: Api, path: str, method: str) -> None:
    response = api.call(method, path)
    assert (response.status_code, response.json()["error"]) == (405, "Method Not Allowed")
    assert response.headers["Allow"] == "GET, HEAD"


def test_root_path_redirects_to_the_documentation(api: Api) -> None:
    response = api.get("/")
    assert (response.status_code, response.headers["Location"]) == (302, "/docs/")


@pytest.mark.parametrize("path", ["/docs", "/schema"])
def test_path_without_its_slash_redirects(api: Api, path: str) -> None:
    response = api.get(path, {"lang": "de"})
    assert (response.status_code, response.headers["Location"]) == (301, f"{path}/?lang=de")
    assert api.post(path).status_code == 405


def test_document_defines_every_security_scheme_in_use(api: Api) -> None:
    document = api.get("/schema/", {"format": "json"}).json()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    named = {name for operation in operations for way in operation.get("security", []) for name in way}
    assert named == set(document["components"]["securitySchemes"]) == {"bearer", "oauth2", "client"}


@pytest.mark.parametrize(
    "raw", [b"no boundary at all", b"--x\r\nContent-Disposition: form-data\r\n\r\n", b"\r\n--" * 100]
)
@pytest.mark.parametrize("path", ["/admin/login/", "/admin/forgotten/"])
def test_malformed_multipart_form_is_400(api: Api, path: str, raw: bytes) -> None:
    response = api.post(path, raw=raw, content_type="multipart/form-data; boundary=" + "x" * 300)
    assert (response.status_code, response.json()["error"]) == (400, "Bad Request")
