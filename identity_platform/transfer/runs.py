"""An import that can be killed: how far it has come is written in the transaction of what it has done.

A run belongs to the digest of its file, so it never goes on in another file, or in the same one after an edit. Who works
on it holds it: each batch is committed only while it is still held, so of two processes that believe to be the one, one
is rejected and nothing is done twice. A held run is not taken away from a process that has given a sign of life lately,
unless it is asked for (`--resume`): PgBouncer in transaction mode leaves no session whose lock would end with a process.
"""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, TypeVar

from django.db import IntegrityError, models
from django.utils.timezone import now

from identity_platform.transfer.errors import ImportRunning, ImportTakenOver, NothingToResume
from identity_platform.transfer.report import Tally
from identity_platform.transfer.rows import Row, RowError

# A process that has not committed a batch for so long is believed to be gone.
SILENT_AFTER: Final = timedelta(seconds=30)
# For how long finished and given-up runs are kept: the audit trail has them for longer.
RUN_KEPT: Final = timedelta(days=30)

SKIP, FAIL, UPDATE = "skip", "fail", "update"
ON_CONFLICT: Final = (FAIL, SKIP, UPDATE)


class ImportRun(models.Model):
    """How far the import of one file has come."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    digest = models.CharField(max_length=64, help_text="SHA-256 of the file.")
    # Changes hands when another process takes over.
    holder = models.UUIDField(default=uuid.uuid4)
    line = models.BigIntegerField(default=0)
    offset = models.BigIntegerField(default=0)
    created = models.BigIntegerField(default=0)
    updated = models.BigIntegerField(default=0)
    skipped = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    begun_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(default=now)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True

    @classmethod
    def expired(cls, moment: datetime) -> models.Q:
        """Ended, or given up by everybody, a month ago."""
        return models.Q(touched_at__lt=moment - RUN_KEPT)

    def tally(self) -> Tally:
        """What it has done so far."""
        return Tally(self.created, self.updated, self.skipped, self.failed)


@dataclass(frozen=True, slots=True)
class Options:
    """What every import can be told."""

    dry_run: bool = False
    on_conflict: str = FAIL
    create_missing: bool = False
    batch_size: int = 1000
    resume: bool = False
    restart: bool = False


Judged = TypeVar("Judged")
Run = TypeVar("Run", bound=ImportRun)


@dataclass(slots=True)
class Batch:
    """What became of some rows."""

    tally: Tally = field(default_factory=Tally)
    faults: list[RowError] = field(default_factory=list)

    def fail(self, faults: list[RowError]) -> None:
        """Count the lines of these faults as failed."""
        self.faults += faults
        self.tally.failed += len({fault.line for fault in faults})


def begin(runs: "models.QuerySet[Run]", owner: dict[str, object], *, digest: str, options: Options) -> Run:
    """Return the run of this file: a new one, or the interrupted one, ours from now on. Call it in a transaction.

    `runs` are those of one tenant, `owner` the columns that say so. Raises ImportRunning, NothingToResume.
    """
    unfinished = runs.filter(digest=digest, ended_at=None).select_for_update().first()
    if unfinished is None and options.resume:
        raise NothingToResume
    if unfinished is not None:
        asked_for = options.resume or options.restart
        if not asked_for and unfinished.touched_at > now() - SILENT_AFTER:
            raise ImportRunning
        if not options.restart:
            unfinished.holder, unfinished.touched_at = uuid.uuid4(), now()
            unfinished.save(update_fields=["holder", "touched_at"])
            return unfinished
        unfinished.ended_at = now()
        unfinished.save(update_fields=["ended_at"])
    try:
        return runs.create(digest=digest, **owner)
    except IntegrityError as clash:
        raise ImportRunning from clash


def advance(runs: "models.QuerySet[Run]", run: Run, *, last: Row, tally: Tally) -> None:
    """Write, in the transaction of a batch, that it is done. Raises ImportTakenOver if another process holds the run."""
    run.line, run.offset, run.touched_at = last.line, last.end, now()
    for name, number in tally.counts().items():
        setattr(run, name, getattr(run, name) + number)
    changes = {name: getattr(run, name) for name in ("line", "offset", "touched_at", *tally.counts())}
    if not runs.filter(pk=run.pk, holder=run.holder, ended_at=None).update(**changes):
        raise ImportTakenOver


def finish(runs: "models.QuerySet[Run]", run: Run) -> None:
    """The file is at its end. Raises ImportTakenOver if another process holds the run."""
    moment = now()
    if not runs.filter(pk=run.pk, holder=run.holder, ended_at=None).update(ended_at=moment, touched_at=moment):
        raise ImportTakenOver


def take_all(
    rows: Iterator[Row],
    *,
    size: int,
    judge: Callable[[list[Row]], Judged],
    apply: Callable[[list[Row], Judged], Batch],
    seen: Callable[[Tally, int], None] = lambda tally, offset: None,
    tally: Tally | None = None,
) -> Tally:
    """Validate and apply the batches. Return the counts, added to `tally`. `seen` gets the position in the file.

    `judge` runs in a thread of its own, a batch ahead, while the database works on the one before: it must not ask a
    database. No more than two batches are in memory.
    """
    total = tally or Tally()

    def next_one() -> tuple[list[Row], Judged] | None:
        batch = list(islice(rows, size))
        return (batch, judge(batch)) if batch else None

    with ThreadPoolExecutor(1, "import-reader") as reader:
        coming = reader.submit(next_one)
        while (judged_batch := coming.result()) is not None:
            coming = reader.submit(next_one)
            batch, judged = judged_batch
            total.add(apply(batch, judged).tally)
            seen(total, batch[-1].end)
    return total
