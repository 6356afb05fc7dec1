"""A rotation to a new encryption key during requests: interrupted, continued, and the old key removed."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import Context
from dataclasses import dataclass
from io import StringIO
from uuid import uuid4

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test.utils import override_settings

from identity_platform import shared_facts
from identity_platform.audit.models import PlatformEvent
from identity_platform.crypto import new_data_key, wrap_data_key
from identity_platform.crypto.keyring import reload_key_ring
from tenants.models import DataKey
from tests.registry.conftest import Registry, credentials_of
from tests.registry.processes import ROOT, Server, environment
from tests.world import TestTenant

CROWD = 300


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def command(*arguments: str, ring: str) -> Outcome:
    """Run rotate_encryption_keys with this ring."""
    stdout, stderr = StringIO(), StringIO()
    try:
        with override_settings(ENCRYPTION_KEYS=ring):
            reload_key_ring()
            # Without the context of the last request, whose caller would be the actor in the audit log.
            streams = {"stdout": stdout, "stderr": stderr}
            Context().run(call_command, "rotate_encryption_keys", *arguments, **streams, no_color=True)
    except CommandError as error:
        return Outcome(error.returncode, stdout.getvalue(), f"{stderr.getvalue()}{error}")
    finally:
        reload_key_ring()
    return Outcome(0, stdout.getvalue(), stderr.getvalue())


def under(key_id: str) -> int:
    return DataKey.objects.filter(ring_key_id=key_id).count()


@pytest.fixture
def old() -> str:
    """The ring of this test process: one key."""
    return str(settings.ENCRYPTION_KEYS)


@pytest.fixture
def new(old: str) -> Iterator[str]:
    """A second key. Afterwards all data keys are wrapped under the first one again, and the added ones are deleted."""
    key_id = f"new-{uuid4().hex[:8]}"
    key = f"{key_id}:{base64.b64encode(os.urandom(32)).decode()}"
    yield key
    DataKey.objects.filter(owner__startswith="crowd-").delete()
    assert command(ring=f"{old},{key}").returncode == 0
    assert under(key_id) == 0


def crowd() -> None:
    """As many data keys as it takes to interrupt a rotation."""
    rows = []
    for number in range(CROWD):
        owner = f"crowd-{number:06}"
        wrapped = wrap_data_key(new_data_key(), owner=owner)
        rows.append(DataKey(owner=owner, ring_key_id=wrapped.key_id, wrapped=wrapped.blob))
    DataKey.objects.bulk_create(rows)


@contextlib.contextmanager
def asking(server: Server, registries: list[Registry], paths: list[str]) -> Iterator[Counter[int]]:
    """Read secrets continuously during the block, below the rate limit; count the statuses."""
    seen: Counter[int] = Counter()
    done = threading.Event()

    def ask() -> None:
        number = 0
        while not done.is_set():
            place = number % len(paths)
            response = server.call("GET", paths[place], token=registries[place].api.token)
            seen[response.status_code] += 1
            if response.status_code == 200:
                assert response.json()["credentials"][0]["secret"] == f"secret {place}"
            number += 1
            time.sleep(0.25)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


@pytest.mark.timeout(300)
def test_encryption_key_rotation_end_to_end(
    serve: Callable[..., Server], new_tenant: Callable[[], TestTenant], old: str, new: str
) -> None:
    tenants = [new_tenant() for _ in range(3)]
    registries = [Registry(tenant.api) for tenant in tenants]
    services = [registry.create() for registry in registries]
    for number, (registry, service) in enumerate(zip(registries, services, strict=True)):
        registry.bind(service, f"secret {number}")
    paths = [credentials_of(service) for service in services]
    sealed = all_secrets()
    crowd()
    old_id, new_id = old.partition(":")[0], new.partition(":")[0]

    # Every process knows the new key before anything is wrapped under it.
    first = serve(workers=1, ENCRYPTION_KEYS=f"{old},{new}")
    with asking(first, registries, paths) as seen:
        # The rotation is held at half of the keys, and killed there.
        with transaction.atomic():
            DataKey.objects.select_for_update().get(owner=f"crowd-{CROWD // 2:06}")
            rotation = subprocess.Popen(
                [sys.executable, "-P", str(ROOT / "manage.py"), "rotate_encryption_keys", "--batch", "5"],
                env=environment(ENCRYPTION_KEYS=f"{new},{old}"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            while under(new_id) < CROWD // 10:
                assert rotation.poll() is None or under(new_id) >= CROWD // 10
            rotation.kill()
            rotation.wait()
        time.sleep(0.2)
        half = under(new_id)
        assert 0 < half < CROWD
        # A server that starts now reads keys of both kinds.
        second = serve(workers=1, ENCRYPTION_KEYS=f"{new},{old}")
        for number, path in enumerate(paths):
            response = second.call("GET", path, token=registries[number].api.token)
            assert response.json()["credentials"][0]["secret"] == f"secret {number}"
        # The next run rewraps only the rest.
        again = command(ring=f"{new},{old}")
        assert again.returncode == 0, again.stderr
        assert f"No data key uses {old_id}" in again.stdout
        assert under(old_id) == 0
        # None of the former key is shared with processes that start in an outage.
        for tenant in tenants:
            shared = shared_facts.read(f"data key:{tenant.id}", list)
            assert shared is None or shared[0] == new_id
    assert seen[200] > 5
    assert set(seen) == {200}

    # The old key is removed: a process without it decrypts everything.
    third = serve(workers=1, ENCRYPTION_KEYS=new)
    for number, path in enumerate(paths):
        response = third.call("GET", path, token=registries[number].api.token)
        assert response.json()["credentials"][0]["secret"] == f"secret {number}"
    assert command("--check", ring=new).returncode == 0
    assert all_secrets() == sealed, "A rotation encrypts data keys again; stored secrets do not change."
    row = PlatformEvent.objects.filter(action="encryption_keys.rotated", target_id=new_id).latest("id")
    assert (row.outcome, row.actor_kind) == ("success", "system")
    assert row.details["rewrapped"] <= DataKey.objects.count() - half


def all_secrets() -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id::text, encode(secret, 'hex') FROM registry_servicecredential")
        return dict(cursor.fetchall())


def test_second_key_rotation_does_nothing(old: str) -> None:
    result = command(ring=old)
    assert result.returncode == 0
    assert result.stdout.startswith("0 data keys wrapped")


def test_missing_key_is_named_and_affects_no_other(old: str, new: str) -> None:
    wrapped = DataKey.objects.create(owner="crowd-lost", ring_key_id="lost-key", wrapped=b"\x01" * 61)
    total = DataKey.objects.count()
    result = command(ring=f"{new},{old}")
    assert result.returncode == 1
    assert "crowd-lost" in result.stderr
    assert "lost-key" in result.stdout
    assert under(new.partition(":")[0]) == total - 1
    checked = command("--check", ring=f"{new},{old}")
    assert (checked.returncode, "crowd-lost" in checked.stderr) == (1, True)
    wrapped.delete()


def test_process_without_key_returns_503(serve: Callable[..., Server], registry: Registry, old: str) -> None:
    service = registry.create()
    registry.bind(service)
    server = serve(workers=1)
    row = DataKey.objects.filter(owner=service["tenant_id"])
    row.update(ring_key_id="not-here")
    try:
        read = server.call("GET", credentials_of(service), token=registry.api.token)
        bound = server.call("POST", credentials_of(service), {"name": "x", "secret": "y"}, token=registry.api.token)
        about = server.call("GET", "/exsvc/api/v1/services", token=registry.api.token)
    finally:
        row.update(ring_key_id=old.partition(":")[0])
    for response in (read, bound):
        assert (response.status_code, response.json()["error"]["code"]) == (503, "UNAVAILABLE")
        assert response.headers["Retry-After"]
        assert response.headers["X-RateLimit-Limit"] == "100"
    assert about.status_code == 200
    assert "data_key_locked" in server.log.read_text()
    assert server.call("GET", credentials_of(service), token=registry.api.token).status_code == 200


def test_command_generates_a_new_key(old: str) -> None:
    made = command("--new-key", "k2", ring=old)
    key_id, _, encoded = made.stdout.strip().partition(":")
    assert (made.returncode, key_id, len(base64.b64decode(encoded))) == (0, "k2", 32)
    for wrong in (old.partition(":")[0], "no blanks"):
        assert command("--new-key", wrong, ring=old).returncode == 2
