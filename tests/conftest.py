"""Fixtures: real databases, and tenants created by provisioning.

Tests commit, as requests do; nothing is rolled back or patched. Unique names keep tests independent.
"""

import fcntl
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections
from django.test.utils import override_settings
from hypothesis import settings as hypothesis_settings
from psycopg import sql

from identity_platform.api import valkey
from identity_platform.serving.embedded.temporary import TEMPORARY_PREFIX
from tenants.copies import databases
from tenants.database_servers import servers
from tenants.lifecycle import provisioning
from tenants.models import TenantDatabase
from tests.browsers import browser as browser
from tests.browsers import chromium as chromium
from tests.console.browser.place import place as place
from tests.copies import change_mapping
from tests.environment import DATABASE, MIGRATED
from tests.world import (
    PASSWORD,
    Api,
    TestTenant,
    build_tenant,
    populate,
    shared_tenants,
    sign_in_admin,
    undo_after_test,
    unique_ip,
)
from userflow.credentials import passwords
from userflow.mail_delivery import background
from userflow.mail_delivery.sending import PAUSE

# No deadline, which a busy machine misses, and the same examples each time: Hypothesis' own profile for CI.
hypothesis_settings.load_profile("ci")


@pytest.fixture(scope="session", autouse=True)
def _longer_valkey_timeout() -> None:
    """Wait longer for the shared Valkey than production does, so that a slow machine does not reset rate limits.

    Servers that a test starts and lets hang keep the timeout of production.
    """
    timeout = settings.REDIS_TIMEOUT_SECONDS
    settings.REDIS_TIMEOUT_SECONDS = 10
    valkey.pool(settings.REDIS_URL)
    settings.REDIS_TIMEOUT_SECONDS = timeout


@pytest.fixture(scope="session", autouse=True)
def _cheap_password_hashes() -> Iterator[None]:
    """Hash passwords in microseconds: with those of production they took a fifth of the run."""
    with override_settings(PASSWORD_HASHERS=["tests.hashing.CheapArgon2Hasher"]):
        yield


@pytest.fixture
def production_hashes() -> Iterator[None]:
    """Hash passwords as production does, in tests of the hashes and of the time they take."""
    passwords._dummy.cache_clear()
    with override_settings(PASSWORD_HASHERS=["userflow.credentials.passwords.Argon2Hasher"]):
        yield
    passwords._dummy.cache_clear()


def _connect_as_admin() -> psycopg.Connection[tuple[Any, ...]]:
    admin = settings.DATABASE_ADMIN
    parts = {"user": admin["USER"], "password": admin["PASSWORD"], "host": admin["HOST"], "port": admin["PORT"]}
    known = {name: value for name, value in parts.items() if value}
    return psycopg.connect(dbname=admin["NAME"], autocommit=True, **known)


def _create_database(name: str, template: str) -> None:
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} ENCODING 'UTF8'")
    with _connect_as_admin() as raw:
        raw.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))


def _use_database(name: str) -> None:
    connections.close_all()
    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = name


def _create_migrated_database() -> None:
    """Create the database that all test processes of a run copy, unless another one has: migrating takes seconds of a core."""
    draft = f"{MIGRATED}_draft"
    folder = Path(os.environ.get("IDENTITY_VAR") or tempfile.gettempdir())
    with (folder / f"{MIGRATED}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _connect_as_admin() as raw:
            if databases.exists(raw, MIGRATED):
                return
        _create_database(draft, "template0")
        _use_database(draft)
        call_command("migrate", database="default", verbosity=0, interactive=False)
        connections.close_all()
        with _connect_as_admin() as raw:
            # A pooler keeps its connections, and a database that has any is neither renamed nor copied.
            raw.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", [draft])
            raw.execute(
                sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(draft), sql.Identifier(MIGRATED))
            )


@pytest.fixture(scope="session")
def django_db_setup(django_db_blocker: Any) -> Iterator[None]:
    """Create a global database for this process and prepare it with the command that production runs."""
    with django_db_blocker.unblock():
        _create_migrated_database()
        _create_database(DATABASE, MIGRATED)
        _use_database(DATABASE)
        call_command("prepare", no_demo=True)
        yield
    connections.close_all()
    if not _servers_are_temporary():
        _drop_databases()


def _servers_are_temporary() -> bool:
    """Whether the servers are temporary: dropping hundreds of databases takes minutes on a busy machine."""
    temporary = Path(os.environ.get("IDENTITY_VAR", "")).name.startswith(TEMPORARY_PREFIX)
    return (settings.EMBEDDED and temporary) or os.environ.get("IDENTITY_TEST_SERVERS") == "temporary"


def _drop_databases() -> None:
    with _connect_as_admin() as raw:
        created = raw.execute(
            "SELECT datname FROM pg_database WHERE datname IN (%s, %s) OR starts_with(datname, %s)",
            [DATABASE, MIGRATED, settings.TENANT_DATABASE_PREFIX],
        ).fetchall()
        for (name,) in created:
            databases.drop(raw, name)


@pytest.fixture(autouse=True)
def _databases(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield
        while undo_after_test:
            undo_after_test.pop()()


@pytest.fixture
def unreachable_mail_server(settings: Any) -> Iterator[None]:
    """No mail server listens; the pause that this causes ends with the test."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_TIMEOUT = "127.0.0.1", 9, 1
    yield
    assert background.settle(60)
    PAUSE.end()


@pytest.fixture
def api() -> Api:
    """Return an API client without a token."""
    return Api()


@pytest.fixture(scope="session")
def operator_name(django_db_setup: None) -> str:
    """Create an operator and return the username; the password is `world.PASSWORD`."""
    from userflow.admins.actions import create_admin_user

    name = f"operator-{secrets.token_hex(4)}"
    create_admin_user(tenant_id=None, username=name, email=f"{name}@example.com", password=PASSWORD)
    return name


@pytest.fixture
def operator(operator_name: str) -> Api:
    """Return an API client with an operator's token."""
    return Api(token=sign_in_admin(operator_name)["access_token"])


@pytest.fixture(scope="session")
def tenant(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """Return a tenant that many tests share; tests write records with unique names."""
    with django_db_blocker.unblock():
        return _register_shared(populate(build_tenant("tenant")))


@pytest.fixture(scope="session")
def other_tenant(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """Return a second shared tenant, for tests of isolation."""
    with django_db_blocker.unblock():
        return _register_shared(populate(build_tenant("other")))


def _register_shared(shared: TestTenant) -> TestTenant:
    shared_tenants.append(shared)
    return shared


@pytest.fixture(autouse=True)
def fresh_access() -> None:
    """Give shared admins an address of their own for each test, so that no test uses up another's rate limits.

    Their tokens are renewed before the proof in them is too old for sensitive actions.
    """
    for shared in shared_tenants:
        shared.api.address = unique_ip()
        shared.renew_token()


@pytest.fixture
def new_tenant(django_db_setup: None) -> Iterator[Callable[[], TestTenant]]:
    """Return a function that creates a tenant for one test.

    A state that the test has only written is undone, and a tenant without a database deleted: otherwise a later test of
    repairs would find the tenant.
    """
    made: list[TestTenant] = []

    def make() -> TestTenant:
        made.append(build_tenant("own"))
        return made[-1]

    yield make
    left = TenantDatabase.objects.filter(pk__in=[tenant.id for tenant in made])
    for row in left.exclude(status__in=("active", "suspended")).select_related("server"):
        with servers.maintenance(row.server) as raw:
            exists = row.name in databases.names(raw)
        if exists:
            change_mapping(row.pk, status="active")
        else:
            TenantDatabase.objects.filter(pk=row.pk).update(status="suspended", copies_lag=True)
            provisioning.delete_tenant(tenant_id=row.pk)
