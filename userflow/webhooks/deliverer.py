"""Find due messages over all tenants and send them with a bounded number of threads.

Tenants come from two sources: wake-ups in Valkey, within a fraction of a second, and a sweep over the tenants that have
endpoints, or clients with a logout address, in case a wake-up was lost. Several deliverers share both: one of them gets a
wake-up, and one gets a tenant's turn in the sweep.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, close_old_connections, connections, transaction
from django.db.models.functions import Now
from django.utils.timezone import now
from prometheus_client import Counter
from psycopg import Error as DriverError

from identity_platform.api.errors import ApiError
from identity_platform.crypto import SealBroken
from identity_platform.tracing import root_span
from tenants import operating_modes
from tenants.entering.context import in_tenant
from tenants.errors import DataKeyLocked, UnknownTenant
from tenants.failure_reasons import reason_of
from tenants.models import WebhookTenant
from tenants.records.tenant_records import unlist_webhooks
from tenants.states import Purpose
from userflow.clients.session_changes import apply_changes
from userflow.events import wakeups
from userflow.webhooks import logout_tokens, queue
from userflow.webhooks.delivery import WRITERS_WAIT_SECONDS, Turn, deliver
from userflow.webhooks.shares import QueuedEndpoint, Shares

log = structlog.get_logger("identity.webhooks")
FAULTS = Counter("identity_webhook_faults", "Tenants whose messages could not be read.")

IDLE_SECONDS: Final = 0.2
SWEPT_AT_ONCE: Final = 50
# Pause before another try at an endpoint that another deliverer holds.
HELD_SECONDS: Final = 0.5
# A tenant without endpoints leaves the list of tenants only so long after its last endpoint was created.
KEPT: Final = timedelta(hours=1)


class Deliverer:
    """Sends webhook messages until `ending` returns True."""

    def __init__(self, *, threads: int, ending: Callable[[], bool] = lambda: False) -> None:
        self._threads = threads
        self._ending = ending
        self._writers_wait = WRITERS_WAIT_SECONDS
        self._running: set[Future[None]] = set()
        self._lock = threading.Lock()
        self._shares = Shares(threads)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="webhooks")

    def run(self) -> None:
        """Deliver until the end, and finish the messages in flight."""
        next_sweep = 0.0
        try:
            while not self._ending():
                tenants: list[UUID] = []
                if operating_modes.is_background_paused():
                    self._rest(IDLE_SECONDS)
                    continue
                if len(self._running) < self._threads:
                    tenants += wakeups.take_due(self._threads - len(self._running))
                    if not tenants and time.monotonic() >= next_sweep:
                        tenants += self._sweep()
                        # After a full batch more tenants are due.
                        pause = 1.0 if len(tenants) < SWEPT_AT_ONCE else 0.0
                        next_sweep = time.monotonic() + pause
                for tenant_id in dict.fromkeys(tenants):
                    self._start(self._serve, tenant_id)
                self._rest(IDLE_SECONDS if not tenants else 0.0)
        finally:
            self._finish()

    def run_once(self) -> None:
        """Serve every tenant that has endpoints; return when nothing is due."""
        self._writers_wait = 2.0  # no later turn follows
        tenants = WebhookTenant.objects.order_by("pk").values_list("pk", flat=True)
        try:
            for tenant_id in list(tenants):
                if self._ending():
                    break
                self._start(self._serve, tenant_id)
                while len(self._running) > self._threads * 4:
                    self._rest(1.0)
            while self._running:
                self._rest(1.0)
        finally:
            self._finish()

    def _rest(self, seconds: float) -> None:
        with self._lock:
            running = set(self._running)
        if running:
            done, _ = wait(running, timeout=seconds, return_when=FIRST_COMPLETED)
            with self._lock:
                self._running -= done
        elif seconds:
            time.sleep(seconds)

    def _finish(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        connections.close_all()

    def _start(self, work: Callable[[UUID], None], tenant_id: UUID) -> None:
        # After its shutdown the pool accepts no work; the messages stay in the outbox.
        with self._lock, suppress(RuntimeError):
            self._running.add(self._pool.submit(self._guarded, work, tenant_id))

    def _guarded(self, work: Callable[[UUID], None], tenant_id: UUID) -> None:
        """Run work for one tenant in a thread of the pool; its errors affect no other tenant."""
        close_old_connections()
        try:
            with root_span("webhooks", **{"identity.tenant": str(tenant_id)}):
                work(tenant_id)
        except UnknownTenant:
            WebhookTenant.objects.filter(pk=tenant_id).delete()
        except DataKeyLocked:
            # `keys` has logged it. The messages stay in the outbox until the next sweep.
            FAULTS.inc()
        except ApiError as error:
            # Suspended, moving or migrating: the messages stay in the outbox until the next sweep.
            log.info("webhook_tenant_passed", tenant_id=str(tenant_id), code=error.code)
        except (DatabaseError, DriverError) as problem:
            FAULTS.inc()
            log.warning("webhook_tenant_failed", tenant_id=str(tenant_id), cause=reason_of(problem))
        except SealBroken as problem:
            FAULTS.inc()
            log.error("webhook_secret_sealed", tenant_id=str(tenant_id), cause=type(problem).__name__)
        except Exception as problem:
            # A defect. The thread and the other tenants go on.
            FAULTS.inc()
            log.error("webhook_tenant_failed", tenant_id=str(tenant_id), cause=type(problem).__qualname__)
        finally:
            close_old_connections()

    def _serve(self, tenant_id: UUID) -> None:
        """Start a turn for every endpoint of the tenant with due messages."""
        apply_changes(tenant_id)
        with in_tenant(tenant_id, Purpose.SIGN_OUT) as tenant:
            logout_tokens.end_sessions_of_suspended(tenant)
            any_endpoints, waiting_endpoints = queue.pending_endpoints()
        if not any_endpoints and not logout_tokens.receives_logout_tokens(tenant_id):
            unlist_webhooks(tenant_id, untouched_since=now() - KEPT)
        hosts = logout_tokens.hosts(tenant_id, waiting_endpoints)
        for endpoint in waiting_endpoints:
            if endpoint.held_seconds:
                wakeups.wake(tenant_id, seconds=HELD_SECONDS)
            elif endpoint.seconds:
                wakeups.wake(tenant_id, seconds=endpoint.seconds)
            else:
                self._shares.add(QueuedEndpoint(tenant_id, endpoint.endpoint_id, hosts[endpoint.endpoint_id]))
        self._start_turns()

    def _start_turns(self) -> None:
        while queued_endpoint := self._shares.take():
            self._start(partial(self._turn, queued_endpoint=queued_endpoint), queued_endpoint.tenant_id)

    def _turn(self, tenant_id: UUID, queued_endpoint: QueuedEndpoint) -> None:
        turn = Turn.DONE
        try:
            if not self._ending():
                turn = deliver(
                    tenant_id, queued_endpoint.endpoint_id, ending=self._ending, writers_wait=self._writers_wait
                )
        finally:
            self._shares.give_back(queued_endpoint)
            if turn is Turn.MORE and not self._ending():
                # At the back of the queue, so that one endpoint with many messages does not hold up the others.
                self._shares.add(queued_endpoint)
            self._start_turns()
        if turn is Turn.NOT_MINE or (turn is Turn.MORE and self._ending()):
            wakeups.wake(tenant_id, seconds=HELD_SECONDS)

    def _sweep(self) -> Sequence[UUID]:
        """Return tenants that no deliverer has served for a while; each goes to one deliverer."""
        try:
            with transaction.atomic():
                due = WebhookTenant.objects.filter(
                    swept_at__lt=Now() - timedelta(seconds=settings.WEBHOOK_SWEEP_SECONDS)
                )
                oldest = due.order_by("swept_at").select_for_update(skip_locked=True)
                tenants = list(oldest.values_list("pk", flat=True)[:SWEPT_AT_ONCE])
                if tenants:
                    WebhookTenant.objects.filter(pk__in=tenants).update(swept_at=Now())
                return tenants
        except (DatabaseError, DriverError) as problem:
            log.warning("webhook_sweep_failed", cause=reason_of(problem))
            connections.close_all()
            return []
