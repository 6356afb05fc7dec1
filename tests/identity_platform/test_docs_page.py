"""The documentation page."""

from django.test import Client


def test_it_needs_nothing_from_outside() -> None:
    page = Client().get("/docs/").content.decode()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert Client().get("/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui.css").status_code == 200
