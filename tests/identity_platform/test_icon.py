"""The icon of the platform's pages."""

import re

import pytest
from django.conf import settings

from tests.world import Api

# The demo page is there in embedded mode only.
PAGES = ["/admin/login/", "/docs/", "/password/reset", "/email/verify", *(["/demo/"] if settings.EMBEDDED else [])]


@pytest.mark.parametrize("page", PAGES)
def test_every_page_names_an_icon_that_is_there_and_that_it_may_load(page: str) -> None:
    shown = Api().get(page)
    assert shown.status_code == 200
    (link,) = re.findall(r'<link[^>]*rel="icon"[^>]*>', shown.content.decode())
    (place,) = re.findall(r'href="(/static/[^"]+)"', link)
    icon = Api().get(place)
    assert (icon.status_code, icon.headers["Content-Type"].startswith("image/")) == (200, True)
    assert re.search(r"img-src [^;]*'self'", shown.headers["Content-Security-Policy"])


def test_browsers_that_ask_at_the_old_place_are_sent_to_it() -> None:
    sent = Api().get("/favicon.ico")
    assert (sent.status_code, sent.headers["Cache-Control"]) == (302, "public, max-age=86400")
    assert Api().get(sent.headers["Location"]).headers["Content-Type"] == "image/svg+xml"
    assert Api().post("/favicon.ico", {}).status_code == 405
