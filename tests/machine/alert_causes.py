"""What makes each alert of deploy/monitoring/alerts.yml fire, on the platform of test_alerts.py.

Runs in a process of its own with the platform's settings: the databases of the test process are others. Each cause is in
effect until its generator goes on; what has no code after its `yield` stays.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import timedelta
from typing import Final
from uuid import uuid4

import psutil
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from django.utils.timezone import now
from psycopg import sql

from console.jobs.models import Job
from console.metrics.models import TenantFigures
from identity_platform.audit.models import PlatformEvent
from identity_platform.audit.writer import record_for_each_in_tenant
from mfa.sms.models import SmsMessage
from mfa.sms.sending import hand_over
from tenants.database_servers import servers
from tenants.entering.context import in_tenant
from tenants.models import DatabaseServer, ServerHealth, TenantDatabase, WarmDatabase
from tests.machine.alert_platform import (
    PASSWORD,
    Installation,
    check_servers,
    connect,
    database_of,
    end_connections,
    leased,
    locked_users,
    open_with_slug,
    without_connections,
)
from tests.machine.conftest import within
from userflow.events.models import WebhookMessage
from userflow.mail.models import PlatformMail
from userflow.webhooks.actions import create_endpoint
from userflow.webhooks.delivery import deliver

CLOSED_PORT: Final = 9  # discard: nothing listens there
SILENT: Final = "silent"
UNSEALED: Final = 10_001
Cause = Callable[[Installation], Iterator[None]]
CAUSES: dict[str, Cause] = {}


def causes(alert: str) -> Callable[[Cause], Cause]:
    """Register the cause of an alert."""

    def register(cause: Cause) -> Cause:
        CAUSES[alert] = cause
        return cause

    return register


# --- requests --------------------------------------------------------------------------------------------------------


@causes("ErrorsServed")
def _errors_served(installation: Installation) -> Iterator[None]:
    with without_connections(database_of(installation.other)):
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            assert installation.sign_in(installation.other) == 503
            time.sleep(0.2)
        yield


@causes("SlowResponses")
def _slow_responses(installation: Installation) -> Iterator[None]:
    with locked_users(installation):
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
    with locked_users(installation):
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
    with without_connections(str(settings.DATABASES["default"]["NAME"])):
        yield


@causes("InstallationFenced")
def _installation_fenced(installation: Installation) -> Iterator[None]:
    revisions = dict(DatabaseServer.objects.values_list("pk", "fence_revision"))
    # As in a backup from before the first tenant was created.
    DatabaseServer.objects.update(fence_revision=0)
    connections.close_all()
    with connect() as raw:
        # A restore ends them.
        end_connections(raw, str(settings.DATABASES["default"]["NAME"]))
    yield
    for server_id, revision in revisions.items():
        DatabaseServer.objects.filter(pk=server_id).update(fence_revision=revision)


@causes("DatabaseServerDown")
def _database_server_down(installation: Installation) -> Iterator[None]:
    url = f"postgresql://unused@127.0.0.1:{CLOSED_PORT}/"
    sealed = servers.seal_url(SILENT, "url_sealed", url)
    server = DatabaseServer.objects.create(name=SILENT, host="127.0.0.1", url_sealed=sealed, accepts_tenants=False)
    check_servers()
    yield
    server.delete()


@causes("DatabaseServerNotChecked")
def _database_server_not_checked(installation: Installation) -> Iterator[None]:
    ServerHealth.objects.update(checked_at=now() - timedelta(minutes=11))
    yield


@causes("DatabaseServerFull")
def _database_server_full(installation: Installation) -> Iterator[None]:
    opened = [connect()]
    (most,) = opened[0].execute("SELECT 0.85 * current_setting('max_connections')::int").fetchall()[0]
    used = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    while opened[0].execute(used).fetchall()[0][0] < most:
        opened.append(connect())
    check_servers()
    yield
    for connection in opened:
        connection.close()
    check_servers()


@causes("DatabaseServerNearlyLeased")
def _database_server_nearly_leased(installation: Installation) -> Iterator[None]:
    with leased(0.95):
        yield


@causes("DatabaseServerRefusesConnections")
def _database_server_refuses_connections(installation: Installation) -> Iterator[None]:
    with leased(1.2):
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
    with locked_users(installation) as count_waiting:
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
        open_with_slug(f"one-of-{number}")
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
    lost = database_of(open_with_slug("lost"))
    with connect() as raw:
        raw.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(lost)))
    with suppress(SystemExit):  # its exit code says that there was something to repair
        call_command("check_tenants", repair=True, yes=True)
    yield


@causes("TenantDatabasesUnreadable")
def _tenant_databases_unreadable(installation: Installation) -> Iterator[None]:
    with without_connections(database_of(installation.other)):
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
    with without_connections(database_of(installation.other)):
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
    with without_connections(database_of(installation.other)), suppress(SystemExit):  # its exit code says it too
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
