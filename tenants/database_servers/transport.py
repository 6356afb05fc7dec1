"""System checks: connections to databases, cache, mail server and directories that leave this machine are encrypted.

What a deployment cannot encrypt, as inside one machine's container network, it names in UNENCRYPTED_CONNECTIONS.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Tags, Warning, register
from django.db import ProgrammingError

from tenants.database_servers import servers
from tenants.models import DatabaseServer

DATABASE, CACHE, MAIL, DIRECTORY = "database", "cache", "mail", "directory"
# Of libpq's modes (PostgreSQL documentation 34.19.1) the one that also checks whose certificate it is.
VERIFIED: Final = "verify-full"
UNENCRYPTED: Final = "does not ask for TLS"
UNVERIFIED: Final = "does not check the server's certificate"


@register(Tags.security, deploy=True)
def servers_of_settings_are_encrypted(**_: object) -> list[CheckMessage]:
    """Warn of an unencrypted connection to a server of the settings that is not on this machine."""
    messages: list[CheckMessage] = []
    if _expects(DATABASE):
        for variable, parameters in _databases():
            if problem := problem_of_database(parameters):
                messages.append(_of_database(variable, problem))
    if _expects(CACHE) and not all(map(is_local, _hosts_of_cache())) and (problem := _problem_of_cache()):
        messages.append(
            Warning(
                f"REDIS_URL {problem}: counters, caches and their password can be read and changed on the way.",
                hint=f"Use rediss:// or rediss+sentinel:// without options that turn checks off. {_exception(CACHE)}",
                id="tenants.W007",
            )
        )
    smtp = settings.EMAIL_BACKEND.endswith(".smtp.EmailBackend")
    encrypted = settings.EMAIL_USE_TLS or settings.EMAIL_USE_SSL
    if _expects(MAIL) and smtp and not encrypted and not is_local(settings.EMAIL_HOST):
        messages.append(
            Warning(
                "EMAIL_URL does not ask for TLS: links that set passwords can be read on the way.",
                hint=f"Use smtp:// without tls=off, or smtps://. {_exception(MAIL)}",
                id="tenants.W008",
            )
        )
    if _expects(DIRECTORY) and settings.DIRECTORY_ALLOW_PLAIN_LDAP:
        messages.append(
            Warning(
                "DIRECTORY_ALLOW_PLAIN_LDAP accepts directories without TLS: the password of bind_dn can be read on the way.",
                hint=f"Use ldaps or starttls, and turn it off. {_exception(DIRECTORY)}",
                id="tenants.W010",
            )
        )
    return messages


@register(Tags.database)
def database_servers_are_encrypted(*, databases: Sequence[str] | None = None, **_: object) -> list[CheckMessage]:
    """Warn of an unencrypted connection to a registered database server. With `check --database default`."""
    if not databases or "default" not in databases or not _expects(DATABASE) or settings.EMBEDDED:
        return []
    messages: list[CheckMessage] = []
    # The table does not exist before the first migration.
    with suppress(ProgrammingError):
        registered = DatabaseServer.objects.filter(url_sealed__isnull=False, detached=False).order_by("name")
        for server in registered:
            both = (servers.parameters(server.pk, server.revision, direct=direct) for direct in (False, True))
            if problem := next(filter(None, map(problem_of_database, both)), ""):
                messages.append(_of_database(f"The database server {server.name}", problem))
    return messages


def problem_of_database(parameters: Mapping[str, object]) -> str:
    """Return what is missing in libpq's parameters for an encrypted connection to the right server, or ""."""
    hosts = f"{parameters.get('hostaddr') or parameters.get('host') or ''}".split(",")
    mode = parameters.get("sslmode")
    if mode == VERIFIED or all(map(is_local, hosts)):
        return ""
    return UNVERIFIED if mode in {"require", "verify-ca"} else UNENCRYPTED


def is_local(host: str | None) -> bool:
    """Return whether connections to this host stay on the machine: a Unix socket or a loopback address."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _expects(kind: str) -> bool:
    return kind not in settings.UNENCRYPTED_CONNECTIONS


def _databases() -> Iterator[tuple[str, Mapping[str, object]]]:
    default: Mapping[str, Any] = settings.DATABASES["default"]
    admin: Mapping[str, Any] = settings.DATABASE_ADMIN
    for variable, database in (("DATABASE_URL", default), ("DATABASE_ADMIN_URL", admin)):
        if variable == "DATABASE_URL" or database["HOST"] != default["HOST"]:
            yield variable, {"host": database["HOST"], **database["OPTIONS"]}


def _problem_of_cache() -> str:
    address = urlsplit(settings.REDIS_URL)
    if not address.scheme.startswith("rediss"):
        return UNENCRYPTED
    # redis-py checks both unless it is told otherwise.
    options = {name: values[-1].lower() for name, values in parse_qs(address.query).items()}
    checks = options.get("ssl_cert_reqs", "required") == "required"
    names = options.get("ssl_check_hostname", "true") in {"true", "1", "yes"}
    return "" if checks and names else UNVERIFIED


def _hosts_of_cache() -> Iterator[str | None]:
    address = settings.REDIS_URL.partition("://")[2].partition("?")[0]
    if settings.REDIS_URL.startswith("unix"):
        return
    for host in address.partition("/")[0].rpartition("@")[2].split(","):
        yield urlsplit(f"//{host}").hostname


def _of_database(subject: str, problem: str) -> CheckMessage:
    return Warning(
        f"{subject} {problem}: machines on the way can read and change what it says.",
        hint=f"Append ?sslmode={VERIFIED}&sslrootcert=/path/of/ca.pem (or sslrootcert=system). {_exception(DATABASE)}",
        id="tenants.W006",
    )


def _exception(kind: str) -> str:
    return f"If the network protects it otherwise, add {kind} to UNENCRYPTED_CONNECTIONS."
