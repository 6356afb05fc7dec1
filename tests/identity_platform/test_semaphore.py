"""Bounded operations: at most so many at once, in order of arrival, and no longer than they may wait."""

import threading
import time

import pytest

from identity_platform.api.errors import UnknownPath
from identity_platform.semaphore import Semaphore


def test_waiting_operations_run_in_order_of_arrival() -> None:
    semaphore, order = Semaphore("test_order", 1, UnknownPath), list[int]()

    def wait(number: int) -> None:
        with semaphore.acquire(wait=30):
            order.append(number)

    threads = []
    with semaphore.acquire():
        for number in range(12):
            threads.append(threading.Thread(target=wait, args=[number]))
            threads[-1].start()
            while len(semaphore._free._turns) <= number:
                time.sleep(0.001)
    for thread in threads:
        thread.join(30)
    assert order == list(range(12))


def test_place_is_free_again_after_a_wait_that_was_too_long() -> None:
    semaphore = Semaphore("test_wait", 1, UnknownPath)
    with semaphore.acquire():
        for wait in (0, 0.01):
            with pytest.raises(UnknownPath), semaphore.acquire(wait=wait):
                pass
    for _ in range(2):
        with semaphore.acquire():
            pass


def test_no_more_than_the_number_run_at_once() -> None:
    semaphore, running, most = Semaphore("test_number", 3, UnknownPath), list[int](), list[int]()

    def run() -> None:
        for _ in range(50):
            with semaphore.acquire(wait=30):
                running.append(1)
                most.append(len(running))
                time.sleep(0)
                running.pop()

    threads = [threading.Thread(target=run) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(most) == 600
    assert max(most) <= 3
