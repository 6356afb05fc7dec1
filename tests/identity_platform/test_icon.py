"""The icon of the platform's pages."""

import re

import pytest
from django.conf import settings

from tests.world import Api

# The demo page exists in embedded mode only.
PAGES = ["/admin/login/", "/docs/api/", "/password/reset", "/email/verify", *(["/demo/"] if settings.EMBEDDED else [])]


@pytest.mark.parametrize("page", PAGES)
def test_every_page_links_an_icon_that_loads(page: str) -> None:
    shown = Api().get(page)
    assert shown.status_code == 200
    (link,) = re.findall(r'<link[^>]*rel="icon"[^>]*>', shown.content.decode())
    (place,) = re.findall(r'href="(/static/[^"]+)"', link)
    icon = Api().get(place)
    assert (icon.status_code, icon.headers["Content-Type"].startswith("image/")) == (200, True)
    assert re.search(r"img-src [^;]*'self'", shown.headers["Content-Security-Policy"])


def test_favicon_ico_redirects_to_the_icon() -> None:
    sent = Api().get("/favicon.ico")
    assert (sent.status_code, sent.headers["Cache-Control"]) == (302, "public, max-age=86400")
    assert Api().get(sent.headers["Location"]).headers["Content-Type"] == "image/svg+xml"
    assert Api().post("/favicon.ico", {}).status_code == 405
