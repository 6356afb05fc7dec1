"""Finds what is due, over all tenants, and has it sent by a bounded number of threads.

Tenants come from two sides: hints in Valkey, within a fraction of a second, and a sweep over the tenants that have
endpoints, for hints that were lost. Several deliverers share both: a hint is taken by one of them, and so is a tenant's
turn in the sweep.
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
from django.db import DatabaseError, close_old_connections, connection, connections
from django.utils.timezone import now
from prometheus_client import Counter
from psycopg import Error as DriverError

from identity_platform.api.errors import ApiError
from identity_platform.crypto import SealBroken
from tenants.context import in_tenant
from tenants.errors import DataKeyLocked, UnknownTenant
from tenants.models import WebhookTenant
from tenants.schema import reason_of
from userflow.events import wakeups
from userflow.webhooks import queue
from userflow.webhooks.delivery import PATIENCE_SECONDS, Turn, deliver

log = structlog.get_logger("identity.webhooks")
FAULTS = Counter("identity_webhook_faults", "Tenants whose messages could not be looked at.")

IDLE_SECONDS: Final = 0.2
SWEPT_AT_ONCE: Final = 50
# An endpoint that somebody else holds at the moment is looked at again after so long.
HELD_SECONDS: Final = 0.5
# For so long after an endpoint was made its tenant is not struck off the list.
KEPT: Final = timedelta(hours=1)


class Deliverer:
    """Sends webhook messages until it is told to end."""

    def __init__(self, *, threads: int, ending: Callable[[], bool] = lambda: False) -> None:
        self._threads = threads
        self._ending = ending
        self._patience = PATIENCE_SECONDS
        self._running: set[Future[None]] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="webhooks")

    def run(self) -> None:
        """Deliver until the end; what is in flight by then is finished."""
        next_sweep = 0.0
        try:
            while not self._ending():
                tenants: list[UUID] = []
                if len(self._running) < self._threads:
                    tenants += wakeups.due(self._threads - len(self._running))
                    if not tenants and time.monotonic() >= next_sweep:
                        tenants += self._swept()
                        # A full batch: there are more whose turn has come.
                        pause = 1.0 if len(tenants) < SWEPT_AT_ONCE else 0.0
                        next_sweep = time.monotonic() + pause
                for tenant_id in dict.fromkeys(tenants):
                    self._start(self._look, tenant_id)
                self._rest(IDLE_SECONDS if not tenants else 0.0)
        finally:
            self._finish()

    def run_once(self) -> None:
        """Look at every tenant that has endpoints, and end when nothing is due any more."""
        self._patience = 2.0  # nobody comes back for it
        tenants = WebhookTenant.objects.order_by("pk").values_list("pk", flat=True)
        try:
            for tenant_id in list(tenants):
                if self._ending():
                    break
                self._start(self._look, tenant_id)
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
        # After the end the pool takes no more: whatever it would have been, it still stands in the outbox.
        with self._lock, suppress(RuntimeError):
            self._running.add(self._pool.submit(self._guarded, work, tenant_id))

    def _guarded(self, work: Callable[[UUID], None], tenant_id: UUID) -> None:
        """Run one piece of work in a thread of the pool; no tenant's trouble is another's."""
        close_old_connections()
        try:
            work(tenant_id)
        except UnknownTenant:
            WebhookTenant.objects.filter(pk=tenant_id).delete()
        except DataKeyLocked:
            # `keys` has logged it. The messages stay in the outbox and the sweep returns.
            FAULTS.inc()
        except ApiError as error:
            # Suspended, moved or migrated at the moment: what waits there keeps, the sweep comes back.
            log.info("webhook_tenant_passed", tenant_id=str(tenant_id), code=error.code)
        except (DatabaseError, DriverError) as problem:
            FAULTS.inc()
            log.warning("webhook_tenant_failed", tenant_id=str(tenant_id), cause=reason_of(problem))
        except SealBroken as problem:
            FAULTS.inc()
            log.error("webhook_secret_sealed", tenant_id=str(tenant_id), cause=type(problem).__name__)
        except Exception as problem:
            # A defect; the thread and the other tenants go on.
            FAULTS.inc()
            log.error("webhook_tenant_failed", tenant_id=str(tenant_id), cause=type(problem).__qualname__)
        finally:
            close_old_connections()

    def _look(self, tenant_id: UUID) -> None:
        """Start a turn for every endpoint of the tenant that has something to send now."""
        with in_tenant(tenant_id):
            any_endpoints, found = queue.waiting()
        if not any_endpoints:
            WebhookTenant.objects.filter(pk=tenant_id, touched_at__lt=now() - KEPT).delete()
        for endpoint in found:
            if endpoint.held_seconds:
                wakeups.wake(tenant_id, seconds=HELD_SECONDS)
            elif endpoint.seconds:
                wakeups.wake(tenant_id, seconds=endpoint.seconds)
            else:
                self._start(partial(self._turn, endpoint_id=endpoint.endpoint_id), tenant_id)

    def _turn(self, tenant_id: UUID, endpoint_id: UUID) -> None:
        if self._ending():
            return
        turn = deliver(tenant_id, endpoint_id, ending=self._ending, patience=self._patience)
        if turn is Turn.MORE and not self._ending():
            # At the back of the queue, so that a long list of one endpoint does not make the others wait.
            self._start(partial(self._turn, endpoint_id=endpoint_id), tenant_id)
        elif turn is not Turn.DONE:
            wakeups.wake(tenant_id, seconds=HELD_SECONDS)

    def _swept(self) -> Sequence[UUID]:
        """Tenants that nobody has looked at for a while; each goes to one deliverer."""
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    "UPDATE tenants_webhooktenant SET swept_at = now() WHERE tenant_id IN"
                    " (SELECT tenant_id FROM tenants_webhooktenant WHERE swept_at < now() - %s * interval '1 second'"
                    " ORDER BY swept_at LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING tenant_id",
                    [settings.WEBHOOK_SWEEP_SECONDS, SWEPT_AT_ONCE],
                )
                return [row[0] for row in cursor.fetchall()]
        except (DatabaseError, DriverError) as problem:
            log.warning("webhook_sweep_failed", cause=reason_of(problem))
            connections.close_all()
            return []
