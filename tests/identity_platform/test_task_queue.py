"""The queue of background work, served by worker processes that are killed and run side by side."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction
from django.utils.timezone import now
from procrastinate.contrib.django.models import ProcrastinateJob, ProcrastinateWorker

from identity_platform import task_queue
from tests.environment import DATABASE
from tests.machine.conftest import ROOT, within

WORKER = """
import sys, time, django
django.setup()
from django.conf import settings
from django.db import connection
from identity_platform import task_queue
settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = sys.argv[1]

def note(word):
    with open(sys.argv[2], "a") as file:
        file.write(f"{word}\\n")

@task_queue.task("slow-at-first", queue="default")
def slow(mark):
    with open(sys.argv[2]) as file:
        first = not file.read()
    note(mark)
    time.sleep(600 if first else 0)

@task_queue.task("note", queue="default")
def note_mark(mark):
    note(mark)

@task_queue.periodic_task("tick")
def tick(context):
    note(context.job.task_kwargs["timestamp"])

every = {"tick": 1.0} if sys.argv[3] == "ticks" else {}
task_queue.run_worker(
    {"default": 3, "periodic": 3}, every=every, poll_seconds=0.05, options={}, ready=lambda: print("Ready.", flush=True)
)
print("Stopped.", flush=True)
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """The file in which the tasks of the workers take notes."""
    file = tmp_path / "notes"
    file.touch()
    return file


@contextmanager
def worker(notes: Path, *, ticks: bool = False) -> Iterator["subprocess.Popen[str]"]:
    """A worker process that is ready."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", WORKER, DATABASE, str(notes), "ticks" if ticks else ""],
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "identity_platform.settings", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "Ready.\n"
        try:
            yield process
        finally:
            process.kill()


def lines(notes: Path) -> list[str]:
    return notes.read_text().splitlines()


def let_heartbeats_expire() -> None:
    ProcrastinateWorker._base_manager.update(last_heartbeat=now() - timedelta(minutes=1))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_task_of_ended_worker_is_run_by_another(number: signal.Signals, notes: Path) -> None:
    lock = f"slow-{number}"
    task_queue.start("slow-at-first", lock=lock, mark="run")
    with worker(notes) as first:
        assert within(60, lambda: lines(notes) == ["run"])
        assert task_queue.is_queued(lock)
        first.send_signal(number)
        assert first.wait(60) == (0 if number == signal.SIGTERM else -number)
    let_heartbeats_expire()
    assert not task_queue.is_queued(lock)
    with worker(notes):
        assert within(90, lambda: lines(notes) == ["run", "run"])
        assert within(60, lambda: not ProcrastinateJob.objects.filter(lock=lock).exists())


def test_two_workers_run_each_task_once(notes: Path) -> None:
    with worker(notes), worker(notes):
        for number in range(60):
            task_queue.start("note", lock=f"note-{number}", mark=str(number))
        assert within(90, lambda: not ProcrastinateJob.objects.filter(task_name="note").exists())
    assert sorted(lines(notes), key=int) == [str(number) for number in range(60)]


def test_periodic_task_runs_once_per_period(notes: Path) -> None:
    with worker(notes, ticks=True) as one, worker(notes, ticks=True) as two:
        assert within(90, lambda: len(lines(notes)) >= 5)
        for process in (one, two):
            process.terminate()
            assert process.wait(60) == 0
    assert len(set(lines(notes))) == len(lines(notes))


def test_idle_worker_stops_within_a_second(notes: Path) -> None:
    took = []
    for _ in range(5):  # again where the machine was busy
        with worker(notes) as process:
            began = time.monotonic()
            process.terminate()
            assert process.stdout is not None
            # What follows is the end of Python itself.
            assert process.stdout.readline() == "Stopped.\n"
        took.append(time.monotonic() - began)
        if took[-1] < 1:
            break
    assert min(took) < 1


def test_rolled_back_start_leaves_nothing() -> None:
    with transaction.atomic():
        task_queue.start("note", lock="rolled-back", mark="none")
        transaction.set_rollback(True)
    assert not task_queue.is_queued("rolled-back")


def test_waiting_periodic_task_is_queued_once() -> None:
    for _ in range(3):
        task_queue.run_soon("refill_warm_pool")
    assert ProcrastinateJob.objects.filter(task_name="refill_warm_pool", status="todo").count() == 1


def test_recovery_leaves_periodic_task_to_its_next_run() -> None:
    entries = ProcrastinateJob._base_manager
    # Of the killed workers of other tests.
    entries.filter(queue_name=task_queue.PERIODIC).delete()
    for _ in range(2):
        task_queue.run_soon("refill_warm_pool")
        task_queue.run_soon("recover_abandoned_tasks")
        # No worker serves them: they are left by ended ones.
        entries.filter(queue_name=task_queue.PERIODIC, status="todo").update(status="doing", lock=None)
    task_queue.run_soon("refill_warm_pool")
    task_queue.start("run_console_job", lock="left-behind")
    entries.filter(lock="left-behind").update(status="doing")
    task_queue.recover_abandoned_tasks()
    assert [entry.status for entry in entries.filter(lock="left-behind")] == ["todo"]
    assert [entry.status for entry in entries.filter(task_name="refill_warm_pool")] == ["todo"]
    assert not entries.filter(task_name="recover_abandoned_tasks").exists()
    entries.filter(lock="left-behind").delete()


@pytest.mark.parametrize(
    ("seconds", "entry"),
    [
        (0.1, "* * * * * */1"),
        (20, "* * * * * */20"),
        (60, "*/1 * * * *"),
        (300, "*/5 * * * *"),
        (3599, "*/59 * * * *"),
        (7200, "0 */2 * * *"),
        (86_400, "17 3 */1 * *"),
    ],
)
def test_intervals_become_crontab_entries(seconds: float, entry: str) -> None:
    assert task_queue.cron(seconds) == entry
