"""The documentation page."""

import gzip
import time

import pytest
from django.test import Client

from tests.world import Api


def test_docs_page_loads_no_external_resource() -> None:
    page = Client().get("/docs/").content.decode()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert Client().get("/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui.css").status_code == 200


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
