"""The documentation: the site at /docs/, Swagger UI at /docs/api/."""

import gzip
import re
import time
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from identity_platform.api.documents import PARTS
from tests.world import Api


@pytest.fixture
def site(tmp_path: Path, settings: Any) -> Path:
    """A site in place of the one that bin/docs builds, beside a file that is no part of it."""
    (tmp_path / "secret.txt").write_text("secret")
    settings.DOCS_SITE = tmp_path / "site"
    settings.DOCS_SITE.mkdir()
    for name, text in {"index.html": "<h1>Start</h1>", "tokens.html": "<h1>Tokens</h1>", "llms.txt": "# Ä"}.items():
        (settings.DOCS_SITE / name).write_text(text)
    return tmp_path


def test_site_is_served_with_the_headers_of_a_page(site: Path) -> None:
    for path, shown in {"/docs/": "Start", "/docs/index.html": "Start", "/docs/tokens.html": "Tokens"}.items():
        page = Api().get(path)
        assert (page.status_code, shown in b"".join(page).decode()) == (200, True)
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert page.headers["Cache-Control"] == "public, max-age=300"
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]
        assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert Api().get("/docs/llms.txt").headers["Content-Type"] == "text/plain; charset=utf-8"
    unchanged = Api().get("/docs/tokens.html", headers={"If-Modified-Since": page.headers["Last-Modified"]})
    assert unchanged.status_code == 304


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "%2e%2e/secret.txt",
        "a/../../secret.txt",
        "/etc/passwd",
        "nothing.html",
        "%00",
        "a" * 300,  # longer than a name of a file may be
        "a/" * 3000,  # longer than a path
    ],
)
def test_site_serves_nothing_outside_its_folder(site: Path, path: str) -> None:
    response = Api().get(f"/docs/{path}")
    assert response.status_code in {400, 404}
    assert response.headers["Content-Type"] == "application/json"


def test_page_of_a_missing_site_names_the_command(tmp_path: Path, settings: Any) -> None:
    settings.DOCS_SITE = tmp_path
    page = Api().get("/docs/")
    assert (page.status_code, page.headers["Cache-Control"]) == (200, "no-store")
    assert "bin/docs" in page.content.decode()
    assert 'href="/docs/api/"' in page.content.decode()
    assert Api().get("/docs/tokens.html").status_code == 404
    assert Api().post("/docs/tokens.html", {}).status_code == 405


def test_swagger_ui_loads_no_external_resource() -> None:
    page = Client().get("/docs/api/").content.decode()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert Client().get("/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui.css").status_code == 200
    (options,) = re.findall(r"swaggerSettings = \{(.*?)\}", page, re.DOTALL)
    for option in ("filter", "deepLinking", "persistAuthorization"):
        assert f'"{option}": true' in options


@pytest.mark.parametrize(
    ("query", "document"),
    [("", ""), *((f"?part={part}", f"{part}/") for part in PARTS), ("?part=billing", ""), ('?part="', "")],
)
def test_swagger_ui_shows_the_chosen_part(query: str, document: str) -> None:
    page = Client().get(f"/docs/api/{query}").content.decode()
    assert f'url: "/schema/{document}"' in page
    for part in PARTS:
        assert f'href="/docs/api/?part={part}"' in page


def test_document_is_compressed_on_request(api: Api) -> None:
    plain = api.get("/schema/")
    packed = api.get("/schema/", headers={"Accept-Encoding": "br, gzip"})
    assert (plain.headers.get("Content-Encoding"), packed.headers["Content-Encoding"]) == (None, "gzip")
    assert (plain.headers["Vary"], gzip.decompress(packed.content)) == ("Accept-Encoding", plain.content)
    assert len(packed.content) < 70_000


@pytest.mark.quiet_machine
def test_document_is_generated_once(api: Api) -> None:
    first = api.get("/schema/", {"version": "1\r\nX-Y: z", "lang": "de"})
    assert (first.status_code, "X-Y" in first.headers, first.json()["openapi"]) == (200, False, "3.1.0")
    times = []
    for _ in range(20):
        began = time.monotonic()
        assert api.get("/schema/").content == first.content
        times.append(time.monotonic() - began)
    # Generating it takes most of a second.
    assert min(times) < 0.2
