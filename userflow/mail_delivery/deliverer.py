"""Send what the processes that queued mails have left: what a mail server did not take, and what a kill interrupted."""

import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import UUID

from tenants import operating_modes
from userflow.mail_delivery.background import serve
from userflow.mail_delivery.sending import PAUSE, member, wakeups

THREADS: Final = 4
IDLE_SECONDS: Final = 0.5
# The global queue is asked so often even if no wake-up came; those of tenants are found with their figures.
SWEEP_SECONDS: Final = 30.0


class MailDeliverer:
    """Sends mails of all queues, until `ending` returns True."""

    def __init__(self, *, ending: Callable[[], bool] = lambda: False) -> None:
        self._ending = ending
        self._places = threading.BoundedSemaphore(THREADS)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="mails")

    def run(self) -> None:
        """Deliver until the end, and finish the mails in flight."""
        idle = SWEEP_SECONDS
        try:
            while not self._ending():
                if operating_modes.is_background_paused():
                    time.sleep(IDLE_SECONDS)
                    continue
                members = list(self._due())
                if idle >= SWEEP_SECONDS:
                    members.append(member(None))
                    idle = 0.0
                for name in dict.fromkeys(members):
                    self._start(name)
                if not members:
                    time.sleep(IDLE_SECONDS)
                    idle += IDLE_SECONDS
        finally:
            self._pool.shutdown(wait=True)

    def run_once(self) -> None:
        """Serve each queue with due mails once."""
        self._start(member(None))
        while not self._ending() and (members := self._due()):
            for name in members:
                self._start(name)
        self._pool.shutdown(wait=True)

    def _due(self) -> list[str]:
        # While the mail server does not respond, the wake-ups stay for a process that reaches it.
        return [] if PAUSE.seconds() else list(wakeups.take_due(THREADS))

    def _start(self, name: str) -> None:
        self._places.acquire()
        self._pool.submit(contextvars.Context().run, self._serve, name)

    def _serve(self, name: str) -> None:
        try:
            serve(None if name == member(None) else UUID(name))
        finally:
            self._places.release()
