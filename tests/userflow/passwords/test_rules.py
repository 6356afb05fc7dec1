"""Rules for new passwords: length and a blocklist, no character classes (NIST SP 800-63B)."""

from typing import Any

import pytest

from tests.copies import change_tenant
from tests.world import Api, TestTenant
from userflow.credentials import blocklist, passwords
from userflow.errors import WeakPassword


def rejected(password: str, **how: Any) -> bool:
    try:
        passwords.check_strength(password, **how)
    except WeakPassword:
        return True
    return False


def test_error_names_field_and_not_the_password() -> None:
    with pytest.raises(WeakPassword) as error:
        passwords.check_strength("Password2026!", field="new_password")
    assert list(error.value.details or {}) == ["new_password"]
    assert "2026" not in str(error.value.details) + error.value.text


@pytest.mark.parametrize(
    "password",
    [
        "all lower case words",
        "ALLUPPERCASEWORDS",
        "correcthorsebatterystaple",
        "ünïcödé wörter",
        "密码学是一门艺术",
        "        blank  blank",
        "kX9#vv2qLp",
        "p" * 3 + "q" * 3 + "rs",
        "🦊🦊🐻🐻🐼🐨🐯🦁",
        "a7" + "qz" * 63,
    ],
)
def test_any_characters_are_accepted(password: str) -> None:
    assert not rejected(password)


@pytest.mark.parametrize(
    "password",
    [
        "password",
        "Password",
        "PASSWORD1",
        "Password2026!",
        "P@ssw0rd",
        "p@55w0rd!!",
        "!!password!!",
        "drowssap1",
        "iloveyou",
        "qwertyuiop",
        "poiuytrewq",
        "1234567890",
        "0987654321",
        "aaaaaaaa",
        "abababab",
        "abcabcabc",
        "12341234",
        "abcdefghij",
        "monkeymonkey",
        "letmein99",
        "\uff50assword",
        "Football1!",
    ],
)
def test_common_passwords_and_variants_are_rejected(password: str) -> None:
    assert rejected(password)


@pytest.mark.parametrize(
    "password",
    ["annabelle.lee", "Annabelle.Lee@example.com", "AnnabelleLee", "annabelle2026", "eelebannal"[::-1], "example1!"],
)
def test_own_name_and_address_are_rejected(password: str) -> None:
    assert rejected(password, personal=("annabelle.lee@example.com", "Annabelle Lee", "lannabelee"))


@pytest.mark.parametrize(("length", "bad"), [(7, True), (8, False), (128, False), (129, True)])
def test_the_length_is_between_8_and_128(length: int, bad: bool) -> None:
    assert rejected(("horse battery 9 xk " * 8)[:length].replace(" ", "-")) is bad


def test_tenant_can_require_longer_passwords(new_tenant: Any) -> None:
    own = new_tenant()
    own.row.settings = {"password_min_length": 15}
    change_tenant(own.id, settings=own.row.settings)
    body = {"tenant_id": str(own.id), "client_id": str(own.client_id), "email": "ann@example.com"}
    short = Api().post("/uflow/user/clients/register", {**body, "password": "fourteen chars"})
    assert (short.status_code, short.json()["details"]) == (400, {"password": ["Use between 15 and 128 characters."]})
    admin = {"username": "ann", "email": "ann@own.example", "first_name": "A", "last_name": "B"}
    assert own.api.post("/uflow/admin/users", {**admin, "password": "fourteen chars"}).status_code == 400


def test_operators_blocklist_is_used(settings: Any, tmp_path: Any) -> None:
    own = tmp_path / "own.txt"
    own.write_text("acme-widgets\n\nspringfield isotopes\n")
    settings.PASSWORD_BLOCKLIST = str(own)
    blocklist._known.cache_clear()
    try:
        assert rejected("Acme-Widgets")
        assert rejected("springfield isotopes7")
    finally:
        settings.PASSWORD_BLOCKLIST = None
        blocklist._known.cache_clear()
    assert not rejected("Acme-Widgets")


def test_every_endpoint_rejects_weak_passwords(tenant: TestTenant) -> None:
    body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": "weak@example.com"}
    assert Api().post("/uflow/user/clients/register", {**body, "password": "Password2026!"}).status_code == 400
