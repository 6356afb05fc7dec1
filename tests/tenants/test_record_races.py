"""After the response to a change of a tenant or a client no request passes under the former state, in any process.

Eight writers change four tenants while eight readers use them (TEST_RACE_ROUNDS=1000 for a thorough run). And what a process
leaves that is killed on its way is mended by one repair.
"""

import itertools
import random
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection

from tests.machine.conftest import within
from tests.parallel import ROUNDS
from tests.registry.processes import Answer, Server
from tests.tenants.conftest import connect_to
from tests.tenants.records import client_copies, differing, record_of
from tests.tenants.test_consistency import check
from tests.userflow.sessions.clients import FORM, basic, make_client
from tests.world import PASSWORD, Api, TestTenant, User

pytestmark = pytest.mark.timeout(1800)
FORMER, PRESENT = "https://former.example.com/cb", "https://present.example.com/cb"


class Target:
    """A tenant with a user and a client, as the writers of it know them."""

    def __init__(self, server: Server, operator: Api, tenant: TestTenant) -> None:
        self.server, self.operator, self.tenant = server, operator, tenant
        self.slug = tenant.slug
        self.user: User = tenant.register()
        self.client = make_client(tenant)
        self.application = make_client(tenant, type="public", scopes=[], redirect_uris=[PRESENT])
        self.access_token = ""
        # What a request got that should not have passed.
        self.passed: list[str] = []
        self.seen = Counter[int]()
        self._addresses = itertools.count(random.randrange(2**20))

    # --- requests -----------------------------------------------------------------------------------------------------

    def _headers(self, **more: str) -> dict[str, str]:
        number = next(self._addresses)
        # Each time from another address: no limit is reached.
        return {"X-Forwarded-For": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", **more}

    def _note(self, answer: Answer) -> int:
        self.seen[answer.status_code] += 1
        return answer.status_code

    def login(self) -> bool:
        body = {"client_id": str(self.tenant.client_id), "email": self.user.email, "password": PASSWORD}
        answer = self.server.call("POST", "/uflow/auth/enduser/login", body, headers=self._headers())
        if self._note(answer) == 200:
            self.access_token = str(answer.json()["access_token"])
        return answer.status_code == 200

    def reads_profile(self, token: str) -> bool:
        return self._note(self.server.call("GET", "/authmgr/profile", token=token, headers=self._headers())) == 200

    def gets_token(self, secret: str | None = None) -> bool:
        line = self.server.line()
        headers = self._headers(**basic(self.client, secret), **{"Content-Type": FORM})
        line.request("POST", "/authmgr/token", urlencode({"grant_type": "client_credentials"}), headers)
        response = line.getresponse()
        answer = Answer(response.status, {}, response.read())
        line.close()
        return self._note(answer) == 200

    def is_sent_to(self, redirect_uri: str) -> bool:
        """Return whether the authorization endpoint takes this address, with an error or not."""
        sent = {"client_id": self.application["client_id"], "response_type": "code", "redirect_uri": redirect_uri}
        headers = self._headers()
        answer = self.server.call("GET", f"/t/{self.slug}/authorize?{urlencode(sent)}", headers=headers)
        return self._note(answer) in (302, 303) and answer.headers["Location"].startswith(redirect_uri)

    def changes(self, method: str, path: str, body: Any = None) -> Answer | None:
        """Change something as an operator; None if the other writer's state rejects that just now."""
        answer = self.server.call(method, path, body or {}, token=self.operator.token, headers=self._headers())
        assert answer.status_code < 500, answer.content
        return answer if answer.status_code == 200 else None

    def check(self, change: str, passes: bool) -> None:
        if passes:
            self.passed.append(change)

    # --- writers ------------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return f"/uflow/admin/tenants/{self.tenant.id}"

    def path_of(self, client: dict[str, Any], action: str = "") -> str:
        return f"/clientms/tenants/{self.tenant.id}/clients/{client['id']}{action}"

    def change_tenant(self, number: int) -> None:
        if number % 2:
            assert self.changes("PATCH", self.path, {"status": "suspended"})
            self.check("suspended", self.login())
            self.check("suspended: profile", self.reads_profile(self.access_token))
            self.check("suspended: client", self.gets_token())
            assert self.changes("PATCH", self.path, {"status": "active"})
            return
        assert self.login()
        former_token, slug = self.access_token, f"renamed-{secrets.token_hex(4)}"
        assert self.changes("PATCH", self.path, {"slug": slug, "confirm": self.slug})
        self.slug = slug
        self.check("renamed", self.reads_profile(former_token))

    def change_client(self, number: int) -> None:
        if number % 3 == 0:
            if self.changes("PATCH", self.path_of(self.client, "/deactivate")):
                self.check("deactivated", self.gets_token())
            while not self.changes("PATCH", self.path_of(self.client, "/activate")):
                pass
        elif number % 3 == 1:
            if rotated := self.changes("POST", self.path_of(self.client, "/secret"), {"overlap_seconds": 0}):
                former = self.client["client_secret"]
                self.client = {**self.client, "client_secret": rotated.json()["client_secret"]}
                self.check("rotated", self.gets_token(former))
        elif all(
            self.changes("PATCH", self.path_of(self.application), {"redirect_uris": [uri]}) for uri in (FORMER, PRESENT)
        ):
            self.check("redirect URI removed", self.is_sent_to(FORMER))

    def read(self, choose: random.Random) -> None:
        self.reads_profile(self.access_token)
        self.gets_token()
        self.is_sent_to(choose.choice((FORMER, PRESENT)))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path / "log", 2, TRUSTED_PROXY_HOPS="1", WEB_THREADS="8", TENANT_CONNECTION_BUDGET="20")
    started.wait()
    yield started
    started.end()


def test_no_request_passes_under_a_former_state(
    server: Server, operator: Api, new_tenant: Callable[[], TestTenant]
) -> None:
    targets = [Target(server, operator, new_tenant()) for _ in range(4)]
    assert all(target.login() and target.gets_token() for target in targets)
    ended = threading.Event()

    def write(change: Callable[[int], None]) -> None:
        for number in range(ROUNDS):
            change(number)

    def read(seed: int) -> None:
        choose = random.Random(seed)
        while not ended.is_set():
            choose.choice(targets).read(choose)

    with ThreadPoolExecutor(16) as threads:
        readers = [threads.submit(read, seed) for seed in range(8)]
        changes = [change for target in targets for change in (target.change_tenant, target.change_client)]
        writers = [threads.submit(write, change) for change in changes]
        try:
            for writer in writers:
                writer.result()
        finally:
            ended.set()
        for reader in readers:
            reader.result()
    assert [target.passed for target in targets] == [[]] * len(targets)
    statuses = sum((target.seen for target in targets), Counter[int]())
    assert 500 not in statuses
    # Most requests passed, and many were rejected: neither writers nor readers were idle.
    assert statuses[200] > ROUNDS
    assert statuses[403] > ROUNDS
    for target in targets:
        assert target.login()
        assert target.reads_profile(target.access_token)
        assert target.gets_token()
        assert target.is_sent_to(PRESENT)
        assert differing(target.tenant) == []


# --- a process that is killed -----------------------------------------------------------------------------------------

SLEEPS = """
CREATE FUNCTION sleep_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(120); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER sleep_at_commit AFTER UPDATE ON {0} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  EXECUTE FUNCTION sleep_at_commit();
"""
AWAKE = "DROP TRIGGER sleep_at_commit ON {0}; DROP FUNCTION sleep_at_commit()"
END_SLEEPING = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE wait_event IN ('PgSleep', 'relation') AND datname = current_database()
"""
# The table of the change, globally and in the tenant's database.
TABLES = {
    "tenant": ("tenants_tenant", "tenants_tenantrecord"),
    "client": ("userflow_client", "userflow_tenantclient"),
}


@contextmanager
def global_commit_sleeps(table: str) -> Iterator[None]:
    """Let a change wait at its global commit, when the tenant's database has it; end the transaction at the end."""
    with connection.cursor() as cursor:
        cursor.execute(SLEEPS.format(table))
        try:
            yield
        finally:
            cursor.execute(END_SLEEPING)
            cursor.execute(AWAKE.format(table))


@contextmanager
def copy_waits(tenant: TestTenant, table: str) -> Iterator[None]:
    """Let a change wait before it writes the copy; end the transaction at the end."""
    with connect_to(tenant.row) as raw, raw.transaction():
        raw.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
        yield
        raw.execute(END_SLEEPING)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("has_copy", [False, True])
def test_one_run_repairs_what_a_killed_process_has_left(
    kind: str, has_copy: bool, tmp_path: Path, operator: Api, new_tenant: Callable[[], TestTenant]
) -> None:
    tenant = new_tenant()
    client = make_client(tenant)
    of_tenant = kind == "tenant"
    path = f"/uflow/admin/tenants/{tenant.id}" if of_tenant else f"/clientms/tenants/{tenant.id}/clients/{client['id']}"
    before = (record_of(tenant).revision, client_copies(tenant)[client["id"]].revision)
    started = Server(tmp_path / "log", 1, TENANT_STATEMENT_TIMEOUT_MS="60000")
    started.wait()
    blocked = global_commit_sleeps(TABLES[kind][0]) if has_copy else copy_waits(tenant, TABLES[kind][1])

    def change() -> None:
        with suppress(OSError, HTTPException):
            started.call("PATCH", path, {"name": "Killed"}, token=operator.token)

    with blocked:
        thread = threading.Thread(target=change)
        thread.start()
        assert within(30, lambda: is_waiting(tenant))
        started.process.kill()
        started.process.wait()
        thread.join()
    after = (record_of(tenant).revision, client_copies(tenant)[client["id"]].revision)
    assert (after != before, len(differing(tenant))) == (has_copy, int(has_copy))
    code, said = check(tenant, repair=True, yes=True)
    assert code == 0, said
    assert differing(tenant) == []
    names = (record_of(tenant).name, client_copies(tenant)[client["id"]].name)
    assert names == (tenant.name, client["name"])
    assert operator.patch(path, {"name": "Changed"}).status_code == 200
    assert differing(tenant) == []


def is_waiting(tenant: TestTenant) -> bool:
    """Return whether a change waits, in its global transaction or for the lock in the tenant's database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event IN ('PgSleep', 'relation') AND datname IN (%s, %s))",
            [connection.settings_dict["NAME"], tenant.row.database.name],
        )
        row = cursor.fetchone()
        assert row is not None
        return bool(row[0])
