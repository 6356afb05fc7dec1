"""Writes wait while their tenant is migrated or switched to another server, and get 503 only if that takes long."""

import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction

from tenants.entering.context import in_tenant, tenant_atomic
from tenants.errors import TenantBusy
from tenants.models import DatabaseServer
from tenants.states import Purpose, State
from tests.copies import change_mapping
from tests.tenants.conftest import run_command
from tests.tenants.test_relocation import at_the_step
from tests.tenants.test_relocation import settled as settled
from tests.tenants.test_sign_ins_during_jobs import NONE, Traffic
from tests.world import Api, TestTenant, User, capture_statements

PAUSED = [State.MIGRATING, State.MOVING]


def pause(tenant: TestTenant, state: State) -> None:
    change_mapping(tenant.id, status=state)


def write(tenant: TestTenant) -> Any:
    """Create a group."""
    body = {"tenant_id": str(tenant.id), "name": f"Group {secrets.token_hex(4)}"}
    return Api(token=tenant.api.token).post("/authmgr/groups", body)


def sign_in(tenant: TestTenant, person: User) -> Any:
    body = {"client_id": str(tenant.client_id), "email": person.email, "password": person.password}
    return Api().post("/uflow/auth/enduser/login", body)


def read(tenant: TestTenant) -> Any:
    return Api(token=tenant.api.token).get("/uflow/user/enduser/list", {"tenant_id": str(tenant.id)})


class Meanwhile:
    """Requests in threads of their own."""

    def __init__(self, pool: ThreadPoolExecutor, *requests: Callable[[], Any]) -> None:
        self._futures = [pool.submit(self._run, request) for request in requests]
        # They begin to wait.
        time.sleep(0.3)

    @staticmethod
    def _run(request: Callable[[], Any]) -> Any:
        try:
            return request()
        finally:
            connections.close_all()

    @property
    def done(self) -> list[bool]:
        return [future.done() for future in self._futures]

    @property
    def statuses(self) -> list[int]:
        return [future.result().status_code for future in self._futures]


@pytest.mark.parametrize("state", PAUSED)
def test_write_and_sign_in_wait_for_end_of_pause(
    state: State, new_tenant: Callable[[], TestTenant], settings: Any
) -> None:
    settings.TENANT_PAUSE_WAIT_MS = 30_000
    tenant = new_tenant()
    person = tenant.register()
    pause(tenant, state)
    with ThreadPoolExecutor(2) as pool:
        waiting = Meanwhile(pool, lambda: write(tenant), lambda: sign_in(tenant, person))
        assert read(tenant).status_code == 200
        assert waiting.done == [False, False]
        pause(tenant, State.ACTIVE)
        assert waiting.statuses == [201, 200]


def test_write_goes_to_the_new_server_after_a_move(settled: TestTenant, second: DatabaseServer, settings: Any) -> None:
    settings.TENANT_PAUSE_WAIT_MS = 30_000
    tenant = settled
    person = tenant.register()
    begun: list[Meanwhile] = []
    with ThreadPoolExecutor(2) as pool:
        at_once = at_the_step(
            "read in",
            lambda: begun.append(Meanwhile(pool, lambda: write(tenant), lambda: sign_in(tenant, person))),
        )
        with at_once:
            run_command("move_tenant", tenant.slug, second.name, offline=True)
        assert begun[0].statuses == [201, 200]
    groups = tenant.api.get("/authmgr/groups", {"tenant_id": str(tenant.id)}).json()
    assert len(groups["groups"]) == 1


def test_restore_revives_nothing_for_those_who_wait(settled: TestTenant, tmp_path: Path, settings: Any) -> None:
    traffic, file = Traffic(settled), str(tmp_path / "settled.backup")
    kept = settled.register()
    run_command("backup_tenant", settled.slug, file)
    lost = settled.register()
    sessions = [traffic.sign_in(kept), traffic.sign_in(lost)]
    settings.TENANT_PAUSE_WAIT_MS = 30_000
    begun: list[Meanwhile] = []

    def begin(pool: ThreadPoolExecutor) -> None:
        refreshes = [
            partial(each.app.token, grant_type="refresh_token", refresh_token=each.refresh) for each in sessions
        ]
        codes = [partial(each.app.exchange, each.code) for each in sessions]
        begun.append(
            Meanwhile(pool, lambda: sign_in(settled, kept), lambda: sign_in(settled, lost), *refreshes, *codes)
        )

    with ThreadPoolExecutor(6) as pool:
        with at_the_step("read in", lambda: begin(pool)):
            run_command("restore_tenant", settled.slug, file, yes=True)
        assert begun[0].statuses == [200, 401, 400, 400, 400, 400]
    assert [each.lives() for each in sessions] == [NONE, NONE]


@pytest.mark.parametrize("ends_as", [State.SUSPENDED, State.FAILED])
def test_pause_that_ends_badly_is_an_error(ends_as: State, new_tenant: Callable[[], TestTenant], settings: Any) -> None:
    settings.TENANT_PAUSE_WAIT_MS = 30_000
    tenant = new_tenant()
    pause(tenant, State.MIGRATING)
    with ThreadPoolExecutor(1) as pool:
        waiting = Meanwhile(pool, lambda: write(tenant))
        pause(tenant, ends_as)
        assert waiting.statuses == [403 if ends_as is State.SUSPENDED else 503]
    pause(tenant, State.ACTIVE)


def test_long_job_is_waited_for_once(new_tenant: Callable[[], TestTenant], settings: Any) -> None:
    tenant = new_tenant()
    pause(tenant, State.MOVING)
    with capture_statements() as at_once:
        assert write(tenant).status_code == 503
    settings.TENANT_PAUSE_WAIT_MS = 200
    with capture_statements() as waited:
        response = write(tenant)
    assert (response.status_code, int(response.headers["Retry-After"]) > 0) == (503, True)
    with capture_statements() as again:
        assert write(tenant).status_code == 503
    assert at_once.counts == again.counts < waited.counts
    pause(tenant, State.ACTIVE)
    assert write(tenant).status_code == 201


def test_nothing_waits_in_commands_and_transactions(new_tenant: Callable[[], TestTenant], settings: Any) -> None:
    settings.TENANT_PAUSE_WAIT_MS = 30_000
    tenant = new_tenant()
    pause(tenant, State.MIGRATING)
    began = time.monotonic()
    with pytest.raises(TenantBusy), in_tenant(tenant.id):
        pass
    with in_tenant(tenant.id, Purpose.READ), tenant_atomic(), pytest.raises(TenantBusy), in_tenant(tenant.id):
        pass
    with transaction.atomic():
        assert write(tenant).status_code == 503
    assert time.monotonic() - began < 30
    pause(tenant, State.ACTIVE)
