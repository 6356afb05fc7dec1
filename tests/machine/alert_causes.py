"""What makes each alert of deploy/monitoring/alerts.yml fire, on the platform of test_alerts.py.

Runs in a process of its own with the platform's settings: the databases of the test process are others. Each cause is in
effect until its generator goes on; what has no code after its `yield` stays.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import timedelta
from functools import cached_property
from http.client import HTTPConnection
from typing import Any, Final
from uuid import uuid4

import psutil
import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from django.db.models.functions import Now
from django.utils.timezone import now
from psycopg import sql

from console.jobs.models import Job
from console.metrics.models import TenantFigures
from identity_platform.audit.models import PlatformEvent
from identity_platform.audit.writer import record_for_each_in_tenant
from identity_platform.task_queue import run_soon
from mfa.sms.models import SmsMessage
from mfa.sms.sending import hand_over
from tenants import servers, tasks
from tenants.backend.leases import uses
from tenants.context import in_tenant
from tenants.models import ConnectionLease, DatabaseServer, ServerHealth, TenantDatabase, WarmDatabase
from tests.machine.conftest import within
from userflow.events.models import WebhookMessage
from userflow.mail.models import PlatformMail
from userflow.tenants.actions import NewTenant, open_tenant
from userflow.webhooks.actions import create_endpoint
from userflow.webhooks.delivery import deliver

PASSWORD: Final = "correct horse 9 battery"
CLOSED_PORT: Final = 9  # discard: nothing listens there
SILENT: Final = "silent"
UNSEALED: Final = 10_001


class Installation:
    """The platform at a port of this machine, and two of its tenants. The database of `other` becomes unreadable."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.threads = ThreadPoolExecutor(32)
        self.tenant = _open("acme", admin={"username": "ann", "email": "ann@example.com", "password": PASSWORD})
        self.other = _open("other")
        assert within(60, lambda: WarmDatabase.objects.filter(ready=True).exists())
        call_command("backup_tenants", test=0)
        _check_servers()

    def request(self, method: str, path: str, body: object = None, *, token: str = "") -> tuple[int, Any]:
        """Return the status and the body of the platform's response."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        content = json.loads(response.read())
        connection.close()
        return response.status, content

    def sign_in(self, tenant: NewTenant) -> int:
        """Return the status of a sign-in with an address that no user has."""
        body = {"client_id": str(tenant.client_id), "email": f"{uuid4().hex}@example.com", "password": PASSWORD}
        return self.request("POST", "/uflow/auth/enduser/login", body)[0]

    def list_users(self) -> int:
        """Return the status of a request that reads the users of the tenant."""
        return self.request("GET", f"/uflow/user/enduser/list?tenant_id={self.tenant.tenant.pk}", token=self.token)[0]

    def import_user(self) -> int:
        """Return the status of a request that imports a user."""
        rows = [{"email": f"{uuid4().hex}@example.com"}]
        body = {"tenant_id": str(self.tenant.tenant.pk), "rows": rows}
        return self.request("POST", "/uflow/admin/enduser/import", body, token=self.token)[0]

    def start(self, number: int, request: Callable[[], int]) -> list[Future[int]]:
        """Send so many requests at once."""
        return [self.threads.submit(request) for _ in range(number)]

    @cached_property
    def token(self) -> str:
        body = {"username": "ann", "password": PASSWORD}
        return str(self.request("POST", "/uflow/admin/auth/login", body)[1]["access_token"])


Cause = Callable[[Installation], Iterator[None]]
CAUSES: dict[str, Cause] = {}


def causes(alert: str) -> Callable[[Cause], Cause]:
    """Register the cause of an alert."""

    def register(cause: Cause) -> Cause:
        CAUSES[alert] = cause
        return cause

    return register


def _open(slug: str, **options: Any) -> NewTenant:
    return open_tenant(name=slug, slug=slug, **options)


def _check_servers() -> None:
    """Let the worker check the database servers, as it does each minute."""
    began = now()
    run_soon(tasks.CHECK)
    number = DatabaseServer.objects.count()
    assert within(20, lambda: ServerHealth.objects.filter(checked_at__gt=began).count() == number)


def _connect(database: str = "postgres", *, autocommit: bool = True) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(os.environ["DATABASE_URL"], dbname=database, autocommit=autocommit)


def _database_of(tenant: NewTenant) -> str:
    return TenantDatabase.objects.values_list("name", flat=True).get(pk=tenant.tenant.pk)


def _end_connections(raw: psycopg.Connection[tuple[Any, ...]], database: str) -> None:
    raw.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database])


@contextmanager
def _without_connections(database: str) -> Iterator[None]:
    """Let a database end its connections and accept none."""
    change = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    with _connect() as raw:
        raw.execute(change.format(sql.Identifier(database), sql.SQL("false")))
        _end_connections(raw, database)
        try:
            yield
        finally:
            raw.execute(change.format(sql.Identifier(database), sql.SQL("true")))


@contextmanager
def _locked_users(installation: Installation) -> Iterator[Callable[[], int]]:
    """Lock the table of the tenant's users, as a long migration does; yield what returns how many statements wait."""
    # Before the lock: signing in reads it.
    assert installation.list_users() == 200
    with _connect(_database_of(installation.tenant), autocommit=False) as raw:
        raw.execute("LOCK TABLE userflow_enduser IN ACCESS EXCLUSIVE MODE")
        waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'userflow_enduser'::regclass AND NOT granted"
        yield lambda: int(raw.execute(waiting).fetchall()[0][0])


@contextmanager
def _leased(part: float) -> Iterator[None]:
    """Lease this part of the main server's connections, together with what is leased already, as another host does."""
    server = DatabaseServer.objects.get(name=servers.MAIN)
    use = uses([server.pk])[server.pk]
    lease = ConnectionLease.objects.create(
        process=uuid4(), server=server, host="elsewhere", pid=1, command="", global_connections=0,
        connections=math.ceil(use.limit * part) - use.taken, expires_at=Now() + timedelta(minutes=5),
    )  # fmt: skip
    try:
        yield
    finally:
        lease.delete()


# --- requests --------------------------------------------------------------------------------------------------------


@causes("ErrorsServed")
def _errors_served(installation: Installation) -> Iterator[None]:
    with _without_connections(_database_of(installation.other)):
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            assert installation.sign_in(installation.other) == 503
            time.sleep(0.2)
        yield


@causes("SlowResponses")
def _slow_responses(installation: Installation) -> Iterator[None]:
    with _locked_users(installation):
        slow = installation.start(3, installation.list_users)
        time.sleep(1.3)
    wait(slow)
    yield


@causes("SignInsRejected")
def _sign_ins_rejected(installation: Installation) -> Iterator[None]:
    for _ in range(40):
        assert installation.sign_in(installation.tenant) == 401
        # Prometheus has to see the number grow.
        time.sleep(0.05)
    yield


@causes("HashesFull")
def _hashes_full(installation: Installation) -> Iterator[None]:
    sign_ins = installation.start(7, lambda: installation.sign_in(installation.tenant))
    assert 503 in {sign_in.result() for sign_in in sign_ins}
    yield


@causes("OperationsRejected")
def _operations_rejected(installation: Installation) -> Iterator[None]:
    with _locked_users(installation):
        imports = installation.start(4, installation.import_user)
        assert {response.result() for response in wait(imports, return_when=FIRST_COMPLETED).done} == {503}
    wait(imports)
    yield


@causes("ValkeyAway")
def _valkey_away(installation: Installation) -> Iterator[None]:
    home = os.environ["IDENTITY_VAR"]
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "valkey-server" and any(home in word for word in process.info["cmdline"] or []):
            process.kill()
    assert installation.sign_in(installation.tenant) == 401
    yield


@causes("SmsAbused")
def _sms_abused(installation: Installation) -> Iterator[None]:
    tenant_id = installation.tenant.tenant.pk
    body = {"tenant_id": str(tenant_id), "client_id": str(installation.tenant.client_id), "password": PASSWORD}
    status, person = installation.request("POST", "/uflow/user/clients/register", body | {"email": "bob@example.com"})
    assert status == 201, person
    with in_tenant(tenant_id):
        messages = [SmsMessage(user_id=person["user_id"], caller="known", country_prefix="49") for _ in range(40)]
        SmsMessage.objects.bulk_create(messages)
        SmsMessage.objects.update(sent_at=now() - timedelta(minutes=30))
    hand_over(messages[0], tenant_id=tenant_id, to="+491701234567", body="123456 is your code.")
    yield


# --- databases -------------------------------------------------------------------------------------------------------


@causes("CollectorFailed")
def _collector_failed(installation: Installation) -> Iterator[None]:
    connections.close_all()
    with _without_connections(str(settings.DATABASES["default"]["NAME"])):
        yield


@causes("InstallationFenced")
def _installation_fenced(installation: Installation) -> Iterator[None]:
    revisions = dict(DatabaseServer.objects.values_list("pk", "fence_revision"))
    # As in a backup from before the first tenant was created.
    DatabaseServer.objects.update(fence_revision=0)
    connections.close_all()
    with _connect() as raw:
        # A restore ends them.
        _end_connections(raw, str(settings.DATABASES["default"]["NAME"]))
    yield
    for server_id, revision in revisions.items():
        DatabaseServer.objects.filter(pk=server_id).update(fence_revision=revision)


@causes("DatabaseServerDown")
def _database_server_down(installation: Installation) -> Iterator[None]:
    url = f"postgresql://unused@127.0.0.1:{CLOSED_PORT}/"
    sealed = servers.seal_url(SILENT, "url_sealed", url)
    server = DatabaseServer.objects.create(name=SILENT, host="127.0.0.1", url_sealed=sealed, accepts_tenants=False)
    _check_servers()
    yield
    server.delete()


@causes("DatabaseServerNotChecked")
def _database_server_not_checked(installation: Installation) -> Iterator[None]:
    ServerHealth.objects.update(checked_at=now() - timedelta(minutes=11))
    yield


@causes("DatabaseServerFull")
def _database_server_full(installation: Installation) -> Iterator[None]:
    opened = [_connect()]
    (most,) = opened[0].execute("SELECT 0.85 * current_setting('max_connections')::int").fetchall()[0]
    used = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    while opened[0].execute(used).fetchall()[0][0] < most:
        opened.append(_connect())
    _check_servers()
    yield
    for connection in opened:
        connection.close()
    _check_servers()


@causes("DatabaseServerNearlyLeased")
def _database_server_nearly_leased(installation: Installation) -> Iterator[None]:
    with _leased(0.95):
        yield


@causes("DatabaseServerRefusesConnections")
def _database_server_refuses_connections(installation: Installation) -> Iterator[None]:
    with _leased(1.2):
        requests = []
        # Some of them after a scrape has seen the first rejection.
        for _ in range(4):
            requests += installation.start(1, lambda: installation.sign_in(installation.tenant))
            time.sleep(0.7)
        assert {request.result() for request in requests} == {503}
        yield


@causes("ConnectionsExhausted")
def _connections_exhausted(installation: Installation) -> Iterator[None]:
    number = settings.TENANT_CONNECTION_BUDGET
    with _locked_users(installation) as count_waiting:
        # Unlike other requests they wait for a lock without a limit.
        imports = installation.start(number, installation.import_user)
        assert within(20, lambda: count_waiting() == number)
        assert installation.list_users() == 503
    assert [response.result() for response in imports] == [200] * number
    yield


@causes("NoRoomForTenants")
def _no_room_for_tenants(installation: Installation) -> Iterator[None]:
    call_command("change_database_server", servers.MAIN, capacity=TenantDatabase.objects.count() + 5)
    yield
    call_command("change_database_server", servers.MAIN, capacity=1_000)


@causes("NoSpareDatabases")
def _no_spare_databases(installation: Installation) -> Iterator[None]:
    while number := WarmDatabase.objects.filter(ready=True).count():
        _open(f"one-of-{number}")
    yield


# --- tenants ---------------------------------------------------------------------------------------------------------


@causes("TenantsBehind")
def _tenants_behind(installation: Installation) -> Iterator[None]:
    mapping = TenantDatabase.objects.get(pk=installation.other.tenant.pk)
    TenantDatabase.objects.filter(pk=mapping.pk).update(schema_version="0-000000000000")
    yield
    TenantDatabase.objects.filter(pk=mapping.pk).update(schema_version=mapping.schema_version)


@causes("TenantsFailed")
def _tenants_failed(installation: Installation) -> Iterator[None]:
    lost = _database_of(_open("lost"))
    with _connect() as raw:
        raw.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(lost)))
    with suppress(SystemExit):  # its exit code says that there was something to repair
        call_command("check_tenants", repair=True, yes=True)
    yield


@causes("TenantDatabasesUnreadable")
def _tenant_databases_unreadable(installation: Installation) -> Iterator[None]:
    with _without_connections(_database_of(installation.other)):
        yield


@causes("FiguresOld")
def _figures_old(installation: Installation) -> Iterator[None]:
    TenantFigures.objects.update(collected_at=now() - timedelta(minutes=31))
    yield


@causes("AuditEventsUnsealed")
def _audit_events_unsealed(installation: Installation) -> Iterator[None]:
    with in_tenant(installation.tenant.tenant.pk):
        record_for_each_in_tenant("end_user.updated", kind="end_user", ids=range(UNSEALED))
    yield


# --- background ------------------------------------------------------------------------------------------------------


@causes("JobsWait")
def _jobs_wait(installation: Installation) -> Iterator[None]:
    job = Job.objects.create(kind="provision")
    Job.objects.filter(pk=job.pk).update(created_at=now() - timedelta(minutes=6))
    yield


@causes("TasksFail")
def _tasks_fail(installation: Installation) -> Iterator[None]:
    # The worker collects the metrics of all tenants once a second.
    with _without_connections(_database_of(installation.other)):
        yield


def _overdue_endpoint(installation: Installation, path: str, age: timedelta) -> WebhookMessage:
    """Create an endpoint that does not respond, and a message of this age to it that is due since then."""
    url, tenant_id = f"http://127.0.0.1:{CLOSED_PORT}/{path}", installation.tenant.tenant.pk
    # Nothing happens in this test that it is about.
    endpoint, _ = create_endpoint(tenant_id=tenant_id, url=url, events=["import.finished"])
    with in_tenant(tenant_id):
        message = WebhookMessage.objects.create(
            endpoint_id=endpoint.pk, message_id=uuid4().hex, event="import.finished", body="{}"
        )
        WebhookMessage.objects.filter(pk=message.pk).update(queued_at=now() - age, next_attempt_at=now() - age)
    return message


@causes("WebhooksOverdue")
def _webhooks_overdue(installation: Installation) -> Iterator[None]:
    _overdue_endpoint(installation, "late", timedelta(minutes=6))
    yield


@causes("MailsOverdue")
def _mails_overdue(installation: Installation) -> Iterator[None]:
    later = now() + timedelta(days=1)
    mail = PlatformMail.objects.create(
        template="email_verified", address="a@example.com", content_sealed=b"-", expires_at=later, next_attempt_at=later
    )
    PlatformMail.objects.filter(pk=mail.pk).update(created_at=now() - timedelta(minutes=16))
    yield
    mail.delete()


@causes("WebhooksDead")
def _webhooks_dead(installation: Installation) -> Iterator[None]:
    message = _overdue_endpoint(installation, "dead", timedelta(seconds=settings.WEBHOOK_RETRY_SECONDS + 60))
    deliver(installation.tenant.tenant.pk, message.endpoint_id)
    yield


@causes("BackupOld")
def _backup_old(installation: Installation) -> Iterator[None]:
    # The audit log does not let an event be changed.
    newest = PlatformEvent.objects.filter(action="backup.written").first()
    assert newest is not None
    newest.pk, newest.at = None, newest.at - timedelta(hours=27)
    newest.save(force_insert=True)
    yield


@causes("BackupIncomplete")
def _backup_incomplete(installation: Installation) -> Iterator[None]:
    with _without_connections(_database_of(installation.other)), suppress(SystemExit):  # its exit code says it too
        call_command("backup_tenants", test=0)
    yield


def serve(port: int) -> None:
    """Create each cause that a line of standard input names, and end it at the next line; print a line after each."""
    replies = sys.stdout
    with redirect_stdout(sys.stderr):
        installation = Installation(port)
        print("ready", file=replies, flush=True)
        for line in sys.stdin:
            with contextmanager(CAUSES[line.strip()])(installation):
                print("caused", file=replies, flush=True)
                sys.stdin.readline()
            connections.close_all()
            print("ended", file=replies, flush=True)
        installation.threads.shutdown()
