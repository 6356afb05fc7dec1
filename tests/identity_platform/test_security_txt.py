"""/.well-known/security.txt (RFC 9116)."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import Client

from identity_platform.environment import security_txt

PATH = "/.well-known/security.txt"
TEXT = "Contact: mailto:security@example.org\nExpires: 2999-01-31T00:00:00Z\n"


def test_security_txt_returns_the_setting(settings: Any, client: Client) -> None:
    settings.SECURITY_TXT = TEXT
    response = client.get(PATH)
    assert (response.status_code, response.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    assert response.content.decode() == TEXT


def test_security_txt_without_the_setting_is_404(settings: Any, client: Client) -> None:
    settings.SECURITY_TXT = None
    response = client.get(PATH)
    assert (response.status_code, response.json()) == (404, client.get("/nothing-here").json())


def test_security_txt_rejects_other_methods(settings: Any, client: Client) -> None:
    settings.SECURITY_TXT = TEXT
    assert client.post(PATH).status_code == 405


@pytest.mark.parametrize(
    "wrong",
    [
        "Expires: 2999-01-31T00:00:00Z",
        "Contact: mailto:a@example.org",
        f"{TEXT}Expires: 2999-01-31T00:00:00Z",
        "Contact: mailto:a@example.org\nExpires: tomorrow",
        "Contact: mailto:a@example.org\nExpires: 2999-01-31T00:00:00",
    ],
)
def test_setting_rejects_an_incomplete_security_txt(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURITY_TXT", wrong)
    with pytest.raises(ImproperlyConfigured, match="SECURITY_TXT"):
        security_txt("SECURITY_TXT")


def test_deploy_check_names_an_expired_security_txt(settings: Any) -> None:
    settings.SECURITY_TXT = TEXT.replace("2999", "2020")
    with pytest.raises(SystemCheckError, match=r"identity_platform\.W001"):
        call_command("check", "--deploy", "--tag", "security", "--fail-level", "WARNING")
