"""Real databases for every test process; tenants are made by provisioning itself. Nothing is rolled back or patched.

Tests commit, as requests do, and keep out of each other's way by names of their own.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections
from hypothesis import settings as hypothesis_settings
from psycopg import sql

from identity_platform.api import valkey
from identity_platform.serving.embedded.temporary import TEMPORARY_PREFIX
from tenants import databases
from tests.environment import DATABASE
from tests.world import PASSWORD, Api, TestTenant, build_tenant, populate, sign_in_admin

# No deadline, which a busy machine misses, and the same examples each time: as Hypothesis does it under CI by itself.
hypothesis_settings.load_profile("ci")


@pytest.fixture(scope="session", autouse=True)
def _longer_valkey_timeout() -> None:
    """Limits that count on after a moment in which the machine stood still: after 0.25 s they would begin again at 1.

    Servers of a test's own, which it lets hang, are waited for as in production.
    """
    usual = settings.REDIS_TIMEOUT_SECONDS
    settings.REDIS_TIMEOUT_SECONDS = 10
    valkey.pool(settings.REDIS_URL)
    settings.REDIS_TIMEOUT_SECONDS = usual


def _administer(*statements: sql.Composable) -> None:
    admin = settings.DATABASE_ADMIN
    parts = {"user": admin["USER"], "password": admin["PASSWORD"], "host": admin["HOST"], "port": admin["PORT"]}
    known = {name: value for name, value in parts.items() if value}
    with psycopg.connect(dbname=admin["NAME"], autocommit=True, **known) as raw:
        for statement in statements:
            raw.execute(statement)


@pytest.fixture(scope="session")
def django_db_setup(django_db_blocker: Any) -> Iterator[None]:
    """A global database of this process's own, prepared by the command that production runs."""
    _administer(sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(DATABASE)))
    settings.DATABASES["default"]["NAME"] = DATABASE
    connection.settings_dict["NAME"] = DATABASE
    with django_db_blocker.unblock():
        call_command("prepare", no_demo=True)
        yield
    connections.close_all()
    if not _servers_go_with_the_run():
        _clean_up()


def _servers_go_with_the_run() -> bool:
    """Whether the servers are temporary: dropping hundreds of databases takes minutes on a busy machine."""
    temporary = Path(os.environ.get("IDENTITY_VAR", "")).name.startswith(TEMPORARY_PREFIX)
    return (settings.EMBEDDED and temporary) or os.environ.get("IDENTITY_TEST_SERVERS") == "temporary"


def _clean_up() -> None:
    admin = settings.DATABASE_ADMIN
    known = {n: admin[k] for n, k in (("user", "USER"), ("password", "PASSWORD"), ("host", "HOST"), ("port", "PORT"))}
    with psycopg.connect(dbname=admin["NAME"], autocommit=True, **{n: v for n, v in known.items() if v}) as raw:
        mine = raw.execute(
            "SELECT datname FROM pg_database WHERE datname = %s OR starts_with(datname, %s)",
            [DATABASE, settings.TENANT_DATABASE_PREFIX],
        ).fetchall()
        for (name,) in mine:
            databases.drop(raw, name)


@pytest.fixture(autouse=True)
def _databases(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield


@pytest.fixture
def api() -> Api:
    """An API client without a token."""
    return Api()


@pytest.fixture(scope="session")
def operator_name(django_db_setup: None) -> str:
    """An operator's username; the password is world.PASSWORD."""
    from userflow.admins.actions import create_admin_user

    name = f"operator-{secrets.token_hex(4)}"
    create_admin_user(tenant_id=None, username=name, email=f"{name}@example.com", password=PASSWORD)
    return name


@pytest.fixture
def operator(operator_name: str) -> Api:
    """An API client with an operator's token."""
    return Api(token=sign_in_admin(operator_name)["access_token"])


@pytest.fixture(scope="session")
def tenant(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """A tenant that many tests share; what a test writes there has a name of its own."""
    with django_db_blocker.unblock():
        return _keep(populate(build_tenant("tenant")))


@pytest.fixture(scope="session")
def other_tenant(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    """A second tenant: no test of isolation without it."""
    with django_db_blocker.unblock():
        return _keep(populate(build_tenant("other")))


_shared: list[TestTenant] = []


def _keep(shared: TestTenant) -> TestTenant:
    _shared.append(shared)
    return shared


@pytest.fixture(autouse=True)
def fresh_tokens() -> None:
    """Sign the admins of the shared tenants in again before their last proof is too old for sensitive actions."""
    for shared in _shared:
        shared.renew_token()


@pytest.fixture
def new_tenant(django_db_setup: None) -> Callable[[], TestTenant]:
    """Makes tenants of a test's own."""
    return lambda: build_tenant("own")
