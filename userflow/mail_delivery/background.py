"""Send mails behind the response, in the process that has queued them.

A mail server takes seconds and may be down; a response must neither wait for it nor reveal by its timing whether a mail was
sent. What is left, also after a kill, `deliver_events` sends.
"""

import contextvars
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final
from uuid import UUID

import structlog
from django.db import DatabaseError, connections
from psycopg import Error as DriverError

from identity_platform.api.errors import ApiError
from tenants.errors import UnknownTenant
from tenants.failure_reasons import reason_of
from userflow.mail.queue import LEASE
from userflow.mail_delivery.sending import member, send_due, wakeups

log = structlog.get_logger("identity.mail")

THREADS: Final = 2
# After an error of a queue's database.
FAULT_RETRY_SECONDS: Final = 30.0


class _Senders:
    """The threads that send mails, and the queues that wait for one."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="mail")
        self.running: set[Future[None]] = set()
        # Queues whose turn has not begun: it will see every mail that is queued until then.
        self.waiting: set[UUID | None] = set()
        self.lock = threading.Lock()


_senders = _Senders()


def _replace_senders() -> None:
    """Give a forked process senders of its own: the threads of its parent do not exist in it."""
    global _senders
    _senders = _Senders()


os.register_at_fork(after_in_child=_replace_senders)


def send_behind_response(sender: object, *, tenant_id: UUID | None, **_: object) -> None:
    """Let a thread send the mails of a queue that are due; the receiver of `mail_queued`."""
    # If this process is killed, a deliverer looks after the time that other processes leave its mails alone.
    wakeups.wake(member(tenant_id), seconds=LEASE.total_seconds() + 1)
    senders = _senders
    with senders.lock:
        if tenant_id in senders.waiting:
            return
        senders.waiting.add(tenant_id)
    # A context of its own: the request's (tenant, routes) ends with the request.
    future = senders.pool.submit(contextvars.Context().run, _serve, senders, tenant_id)
    with senders.lock:
        senders.running.add(future)
    future.add_done_callback(lambda done: _forget(senders, done))


def _forget(senders: _Senders, future: "Future[None]") -> None:
    with senders.lock:
        senders.running.discard(future)


def _serve(senders: _Senders, tenant_id: UUID | None) -> None:
    with senders.lock:
        senders.waiting.discard(tenant_id)
    serve(tenant_id)


def serve(tenant_id: UUID | None) -> None:
    """Send the mails of a queue that are due, and wake a deliverer for the next one. Errors are logged."""
    try:
        seconds = send_due(tenant_id)
        if seconds is not None:
            wakeups.wake(member(tenant_id), seconds=seconds)
    except UnknownTenant:
        log.info("mails_of_unknown_tenant", tenant=member(tenant_id))
    except ApiError as error:
        # Moving, migrating, in maintenance, or its data key cannot be opened.
        log.info("mails_wait", tenant=member(tenant_id), code=error.code)
        wakeups.wake(member(tenant_id), seconds=FAULT_RETRY_SECONDS)
    except (DatabaseError, DriverError) as problem:
        log.warning("mails_wait", tenant=member(tenant_id), cause=reason_of(problem))
        wakeups.wake(member(tenant_id), seconds=FAULT_RETRY_SECONDS)
    except Exception as problem:  # a pool does not report exceptions of its threads
        log.error("mails_wait", tenant=member(tenant_id), cause=type(problem).__qualname__)
    finally:
        connections.close_all()


def settle(seconds: float = 10.0) -> bool:
    """Wait until no mail of this process is being sent, for tests and commands that end. Return False after a timeout."""
    until = time.monotonic() + seconds
    while True:
        with _senders.lock:
            running = set(_senders.running)
        if not running:
            return True
        # A request that was sent may have queued a mail.
        if wait(running, timeout=max(0.0, until - time.monotonic())).not_done:
            return False
