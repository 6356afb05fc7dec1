"""Synchronise five thousand users in pages of a few statements, also with a killed run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.environment import DATABASE
from tests.machine.conftest import within
from tests.tenants.conftest import ROOT, connect_to
from tests.userflow.directory import slapd as ad
from tests.userflow.directory.conftest import Directory, counts
from tests.world import TestTenant, capture_statements

pytestmark = [pytest.mark.needs("slapd", "python-ldap"), pytest.mark.timeout(300)]
MANY = 5000
AT_WORK = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND backend_type = 'client backend' AND state <> 'idle'"
)
SYNC = """
import sys, django
django.setup()
from django.conf import settings
from django.core.management import call_command
from django.db import connection
settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = sys.argv[1]
call_command("sync_directory", sys.argv[2])
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ad.Slapd]:
    running = ad.Slapd(ad.TestUser(number, f"person{number}@corp.example") for number in range(MANY))
    yield running
    running.end()


@pytest.fixture
def directory(
    server: ad.Slapd, new_tenant: Callable[[], TestTenant], configured: Callable[..., Directory]
) -> Directory:
    return configured(new_tenant(), **ad.settings_of(server))


def writes(seen: Any) -> int:
    return sum(sql.startswith(("INSERT", "UPDATE", "DELETE")) for sql in seen.tenant)


def test_sync_of_5000_users_is_repeatable(directory: Directory, server: ad.Slapd) -> None:
    began = time.monotonic()
    with capture_statements() as first:
        assert counts(directory.sync()) == (MANY, MANY, 0, 0, 0, 0)
    made = time.monotonic()
    with capture_statements() as second:
        assert counts(directory.sync()) == (MANY, 0, 0, 0, 0, 0)
    print(f"first {made - began:.2f} s, second {time.monotonic() - made:.2f} s")
    # Ten pages, each with the delivery of its users to the index: statements grow with pages, not with users.
    assert first.counts[1] < 10 * 16
    assert second.counts[1] < 10 * 4
    assert writes(second) == 0
    server.change(ad.TestUser(17), displayName="Renamed")
    with capture_statements() as third:
        assert counts(directory.sync()) == (MANY, 0, 1, 0, 0, 0)
    assert third.counts[1] < 10 * 4 + 8


def test_killed_run_keeps_whole_pages_and_resumes(directory: Directory) -> None:
    slug = directory.tenant.slug
    known = os.environ | {"DJANGO_SETTINGS_MODULE": "identity_platform.settings", "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen([sys.executable, "-P", "-c", SYNC, DATABASE, slug], env=known, cwd=ROOT)
    total = 0
    while total == 0:
        assert running.poll() is None
        total = directory.total()
    running.send_signal(signal.SIGKILL)
    running.wait()
    # The server may still be committing a page.
    with connect_to(directory.tenant.row) as raw:
        assert within(60, lambda: raw.execute(AT_WORK).fetchone() == (0,))
    left = directory.total()
    assert left % 500 == 0
    assert left > 0
    directory.forget_running()
    done = directory.sync()
    assert (done["users_created"], directory.total()) == (MANY - left, MANY)
