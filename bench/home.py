"""The folder, embedded servers and environment of a run."""

from __future__ import annotations

import base64
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from identity_platform.serving import embedded
from identity_platform.serving.embedded.postgres import Postgres
from identity_platform.serving.embedded.valkey import Valkey

ROOT = Path(__file__).resolve().parent.parent
# Each worker keeps a connection to every tenant of the `tenants` measurement.
MAX_CONNECTIONS = 1300
# Limits are counted as in production; they are too high to be reached.
LIMITS = (
    "SIGNIN_PER_MINUTE",
    "REGISTRATION_PER_MINUTE",
    "UNKNOWN_USER_PER_MINUTE",
    "WRONG_SECRETS_PER_10_MINUTES",
    "CEREMONIES_PER_MINUTE",
    "REGISTRY_PER_MINUTE",
)


@dataclass(frozen=True)
class Home:
    """The folder of a run, and the environment of its processes."""

    folder: Path
    environment: dict[str, str]

    def with_database(self, name: str) -> str:
        """Return the URL of another database on the run's server."""
        return self.environment["DATABASE_URL"].replace("/identity?", f"/{name}?")


@contextmanager
def opened(
    folder: Path, *, keep: bool, max_connections: int | None = MAX_CONNECTIONS, tcp: bool = False
) -> Iterator[Home]:
    """Start the servers in a new folder (with `keep`: the existing one); remove it at the end, unless `keep`.

    `max_connections` is PostgreSQL's; None for that of bin/serve. With `tcp` PostgreSQL listens at an address of the loopback
    range, for peers whose driver knows no Unix sockets. There it trusts every user of the machine, as long as the run lasts.
    """
    _stop(folder)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        yield Home(folder, production_environment(folder, _servers(folder, max_connections, tcp=tcp)))
    finally:
        embedded.leave(folder)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _stop(folder: Path) -> None:
    """Stop the servers of a killed run."""
    if folder.exists():
        with embedded.starting_or_stopping(folder):
            Postgres(folder).stop()
            Valkey(folder).stop()


def _servers(folder: Path, max_connections: int | None, *, tcp: bool) -> embedded.Servers:
    settings = folder / "postgres" / "postgresql.conf"
    lines = [] if max_connections is None else [f"max_connections = {max_connections}\n"]
    # At an address of its own, since the port is that of the socket, which another server may have on 127.0.0.1.
    address = ".".join(["127", *(str(1 + secrets.randbelow(250)) for _ in range(3))])
    lines += [f"listen_addresses = '{address}'\n"] if tcp else []
    if lines and not settings.exists():
        # The safe settings of bin/serve; only these differ.
        embedded.attach(var=folder)
        embedded.leave(folder)
        with settings.open("a", encoding="utf-8") as file:
            file.writelines(lines)
    return embedded.attach(var=folder)


def production_environment(folder: Path, servers: embedded.Servers) -> dict[str, str]:
    """Return the environment of production (servers and secrets set), so that nothing runs beside the workers."""
    secret = folder / "secrets"
    if not secret.exists():
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        secret.write_text(f"{secrets.token_urlsafe(64)}\nk1:{key}\n", encoding="ascii")
    secret_key, encryption_keys = secret.read_text(encoding="ascii").split()
    cores = str(os.cpu_count() or 1)
    return {
        **{name: value for name, value in os.environ.items() if not name.endswith("_FILE")},
        "IDENTITY_VAR": str(folder),
        "DATABASE_URL": servers.database_url or "",
        "REDIS_URL": servers.redis_url or "",
        "SECRET_KEY": secret_key,
        "ENCRYPTION_KEYS": encryption_keys,
        "ALLOWED_HOSTS": "127.0.0.1",
        "SECURE_SSL_REDIRECT": "false",
        # Second factors are not measured here.
        "OPERATORS_REQUIRE_FACTOR": "false",
        "EMAIL_URL": f"file:{folder / 'mail'}",
        # Without the port: tokens are issued here and verified by servers on several ports.
        "BASE_URL": "http://127.0.0.1",
        "WEBAUTHN_RP_ID": "localhost",
        "WEBAUTHN_ORIGINS": "http://localhost",
        "TENANT_DATABASE_PREFIX": "bench_",
        "TENANT_WARM_POOL": "0",
        "ACCESS_TOKEN_SECONDS": "86400",
        "WEB_WORKERS": os.environ.get("WEB_WORKERS", cores),
        **{f"LIMIT_{name}": "1000000000" for name in LIMITS},
    }
