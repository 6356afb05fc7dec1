"""BASE_URL is the address of a host: nothing of the platform is below a path."""

from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from tenants.checks import base_url_is_an_origin


@pytest.mark.parametrize("address", ["https://id.example.org", "http://localhost:8000", "https://[::1]:8443"])
def test_origin_is_accepted(settings: Any, address: str) -> None:
    settings.BASE_URL = address
    assert base_url_is_an_origin() == []


@pytest.mark.parametrize(
    "address",
    [
        "https://example.org/identity",
        "https://example.org/?a",
        "https://example.org#top",
        "ftp://example.org",
        "example.org",
        "https:",
    ],
)
def test_check_rejects_anything_else(settings: Any, address: str) -> None:
    settings.BASE_URL = address
    (error,) = base_url_is_an_origin()
    assert (error.id, address in error.msg) == ("tenants.E006", True)
    # `bin/serve` and every command run this check before they do anything.
    for options in ([], ["--deploy"]):
        with pytest.raises(SystemCheckError, match=r"tenants\.E006"):
            call_command("check", *options)
