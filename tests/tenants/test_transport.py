"""What `check --deploy` says about connections without TLS."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from identity_platform.environment import choices
from tenants.database_servers.servers import seal_url
from tenants.database_servers.transport import (
    UNENCRYPTED,
    UNVERIFIED,
    database_servers_are_encrypted,
    is_local,
    problem_of_database,
    servers_of_settings_are_encrypted,
)
from tenants.models import DatabaseServer

SMTP = "django.core.mail.backends.smtp.EmailBackend"


def ids(messages: list[Any]) -> list[str]:
    return [message.id for message in messages]


@pytest.fixture
def elsewhere(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Settings with servers on other machines, without TLS."""
    for database in (settings.DATABASES["default"], settings.DATABASE_ADMIN):
        monkeypatch.setitem(database, "HOST", "db.example.org")
        monkeypatch.setitem(database, "OPTIONS", {})
    settings.REDIS_URL = "redis://:secret@cache.example.org:6379/0"
    settings.EMAIL_BACKEND, settings.EMAIL_HOST = SMTP, "mail.example.org"
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
    return settings


def test_check_names_each_connection_without_tls(elsewhere: Any) -> None:
    messages = servers_of_settings_are_encrypted()
    assert ids(messages) == ["tenants.W006", "tenants.W007", "tenants.W008"]
    assert "sslmode=verify-full" in str(messages[0].hint)
    assert all("UNENCRYPTED_CONNECTIONS" in str(message.hint) for message in messages)
    assert "secret" not in str(messages)


def test_direct_connection_to_another_host_is_named_too(elsewhere: Any) -> None:
    elsewhere.DATABASE_ADMIN["HOST"] = "direct.example.org"
    assert ids(servers_of_settings_are_encrypted())[:2] == ["tenants.W006"] * 2


def test_encrypted_connections_pass(elsewhere: Any) -> None:
    elsewhere.DATABASES["default"]["OPTIONS"] = {"sslmode": "verify-full"}
    elsewhere.REDIS_URL = "rediss+sentinel://a.example.org,b.example.org/identity/0"
    elsewhere.EMAIL_USE_TLS = True
    assert servers_of_settings_are_encrypted() == []


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("rediss://cache.example.org/0?ssl_cert_reqs=none", UNVERIFIED),
        ("rediss://cache.example.org/0?ssl_check_hostname=False", UNVERIFIED),
        ("rediss://cache.example.org/0?ssl_cert_reqs=required&ssl_ca_certs=/etc/ca.pem", ""),
        ("rediss://127.0.0.1:6379/0?ssl_cert_reqs=none", ""),
    ],
)
def test_cache_whose_certificate_is_not_checked_is_named(elsewhere: Any, url: str, problem: str) -> None:
    elsewhere.REDIS_URL = url
    elsewhere.UNENCRYPTED_CONNECTIONS = ["database", "mail"]
    messages = servers_of_settings_are_encrypted()
    assert [message.id for message in messages] == (["tenants.W007"] if problem else [])
    assert all(problem in message.msg for message in messages)


def test_directories_without_tls_are_named(elsewhere: Any) -> None:
    elsewhere.UNENCRYPTED_CONNECTIONS = ["database", "cache", "mail"]
    elsewhere.DIRECTORY_ALLOW_PLAIN_LDAP = True
    assert ids(servers_of_settings_are_encrypted()) == ["tenants.W010"]
    elsewhere.UNENCRYPTED_CONNECTIONS = ["database", "cache", "mail", "directory"]
    assert servers_of_settings_are_encrypted() == []


def test_exceptions_pass_by_kind(elsewhere: Any) -> None:
    elsewhere.UNENCRYPTED_CONNECTIONS = ["database", "mail"]
    assert ids(servers_of_settings_are_encrypted()) == ["tenants.W007"]


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:6379/0", "redis://localhost,[::1]:26379/identity/0", "unix:///run/valkey.sock"]
)
def test_servers_on_this_machine_pass(elsewhere: Any, url: str) -> None:
    elsewhere.DATABASES["default"]["HOST"] = elsewhere.DATABASE_ADMIN["HOST"] = "/run/postgresql"
    elsewhere.REDIS_URL = url
    elsewhere.EMAIL_HOST = "localhost"
    assert servers_of_settings_are_encrypted() == []


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"host": "a.example.org"}, UNENCRYPTED),
        ({"host": "a.example.org", "sslmode": "prefer"}, UNENCRYPTED),
        ({"host": "a.example.org", "sslmode": "require"}, UNVERIFIED),
        ({"host": "a.example.org", "sslmode": "verify-ca"}, UNVERIFIED),
        ({"host": "a.example.org", "sslmode": "verify-full"}, ""),
        ({"host": "127.0.0.1,a.example.org"}, UNENCRYPTED),
        ({"host": "localhost", "hostaddr": "10.0.0.7"}, UNENCRYPTED),
        ({"host": "127.0.0.1"}, ""),
        ({}, ""),
    ],
)
def test_problem_of_a_database(parameters: dict[str, object], problem: str) -> None:
    assert problem_of_database(parameters) == problem


def test_registered_server_is_named(second: DatabaseServer, settings: Any) -> None:
    settings.EMBEDDED = False
    assert database_servers_are_encrypted(databases=["default"]) == []
    usual = bytes(second.url_sealed or b"")
    _point_to(second, seal_url(second.name, "url_sealed", "postgresql://me:secret@10.9.8.7/postgres"))
    [message] = database_servers_are_encrypted(databases=["default"])
    _point_to(second, usual)
    assert (message.id, second.name in message.msg, "secret" in str(message)) == ("tenants.W006", True, False)
    # Without access to the database nothing is read.
    assert database_servers_are_encrypted() == []


def _point_to(server: DatabaseServer, sealed: bytes) -> None:
    server.url_sealed, server.revision = sealed, server.revision + 1
    server.save(update_fields=["url_sealed", "revision"])


@pytest.mark.parametrize("host", ["", None, "/tmp", "@abstract", "localhost", "127.8.9.1", "::1"])
def test_host_is_this_machine(host: str | None) -> None:
    assert is_local(host)


def test_setting_rejects_unknown_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNENCRYPTED_CONNECTIONS", "database,disk")
    with pytest.raises(ImproperlyConfigured, match="disk"):
        choices("UNENCRYPTED_CONNECTIONS", ("database", "cache", "mail"))
