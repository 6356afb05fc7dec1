"""Readers of environment variables: the error of an invalid value names the variable."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from identity_platform.environment import domain, networks, origins
from mfa.checks import console_accepts_its_own_origin, sms_sender_is_there


@pytest.mark.parametrize(
    ("read", "value"),
    [
        *[
            (origins, value)
            for value in ("id.example.org", "https://id.example.org/", "https://ID.example.org", "https://")
        ],
        (origins, "https://id.example.org, https://u@id.example.org"),
        *[(domain, value) for value in ("https://id.example.org", "id.example.org:8000", "ID.example.org", "id_x.org")],
    ],
)
def test_reader_rejects_invalid_values_by_name(
    read: Callable[[str], Any], value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SETTING", value)
    with pytest.raises(ImproperlyConfigured, match=r"^A_SETTING "):
        read("A_SETTING")


def test_reader_accepts_valid_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SETTING", "https://id.example.org,http://localhost:8000")
    assert origins("A_SETTING") == ["https://id.example.org", "http://localhost:8000"]
    monkeypatch.setenv("A_SETTING", "id.example.org")
    assert domain("A_SETTING") == "id.example.org"
    app = "android:apk-key-hash:" + "k" * 43
    monkeypatch.setenv("A_SETTING", f"https://id.example.org,{app}")
    assert origins("A_SETTING") == ["https://id.example.org", app]


def test_check_names_a_missing_sms_backend(settings: Any) -> None:
    assert sms_sender_is_there() == []
    for nonsense in ("carrier-pigeon", "mfa.sms.gateway.NoSuchGateway"):
        settings.SMS_BACKEND = nonsense
        assert [found.id for found in sms_sender_is_there()] == ["mfa.E001"]


def test_check_names_a_console_that_takes_no_passkeys(settings: Any) -> None:
    settings.BASE_URL, settings.CONSOLE_RP_ID = "https://console.example", "console.example"
    settings.CONSOLE_ORIGINS = ["https://console.example"]
    assert console_accepts_its_own_origin() == []
    settings.CONSOLE_ORIGINS = ["https://login.example"]
    (found,) = console_accepts_its_own_origin()
    assert (found.id, "https://console.example" in found.msg) == ("mfa.W001", True)


def test_empty_list_of_networks_allows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A_SETTING", raising=False)
    assert [str(network) for network in networks("A_SETTING", ["127.0.0.0/8"])] == ["127.0.0.0/8"]
    monkeypatch.setenv("A_SETTING", "")
    assert networks("A_SETTING", ["127.0.0.0/8"]) == []
