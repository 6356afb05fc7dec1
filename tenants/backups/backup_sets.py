"""Backup sets: one encrypted file per tenant, one of the global database, and a signed list of them, in a folder or a bucket.

A tenant's file is encrypted under its data key. The global database, which holds all data keys, is encrypted under a key of
the set; that key is in the list, wrapped by the key ring. So ENCRYPTION_KEYS opens everything, and nothing else does. The same
key signs the list, which has the SHA-256 of every file: a file of another set does not pass, nor a missing one.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.utils.timezone import now

from identity_platform.audit.writer import record_for_platform
from identity_platform.crypto import SealBroken, SealingWriter, new_data_key, unseal_file
from identity_platform.transfer.temporary_folder import temporary_folder
from tenants import job_steps
from tenants.backups.backup_lists import BackupSet, File, read, signed
from tenants.backups.backup_storage import PREFIX, Storage, digest_of
from tenants.copies import databases, dumps
from tenants.entering.schema import schema_version
from tenants.errors import BackupUnfit, JobRunning, UnknownTenant
from tenants.failure_reasons import why
from tenants.jobs.parallel import on_each_server
from tenants.jobs.relocation import back_up_tenant, restore_tenant, try_backup
from tenants.lifecycle.capacity import main_server
from tenants.models import TenantDatabase
from tenants.states import State

GLOBAL = "global.backup"
_JOB = "backup of all tenants"
_PURPOSE = "backup of the global database"
# Those that have a database.
_BACKED_UP = (State.ACTIVE, State.SUSPENDED, State.MIGRATING, State.MOVING, State.FAILED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one tenant. `reason` is for operators and contains no user data; without one it is done."""

    slug: str
    seconds: float
    reason: str = ""


Start = Callable[[int], None]
Progress = Callable[[Outcome], None]


# --- writing ---------------------------------------------------------------------------------------------------------


def write(
    storage: Storage,
    *,
    jobs: int = 2,
    only: Sequence[str] = (),
    start: Start = lambda total: None,
    progress: Progress = lambda outcome: None,
) -> BackupSet:
    """Back up all tenants (or `only` these slugs) and then the global database into a new set; return it.

    `jobs` tenants at a time on each server; all stay in use. A tenant that fails is left out and does not stop the others.
    The set counts only when it is complete. For a bucket every file is written to the folder for temporary files, uploaded and
    removed there. Raises UnknownTenant, JobRunning (another machine does it), OSError,
    and CopyFailed or ProgramMissing if the global database cannot be backed up.
    """
    mappings, key = _mappings(only), new_data_key()
    start(len(mappings))
    with _alone() as moment, storage.new_set(f"{PREFIX}{moment:%Y%m%dT%H%M%SZ}") as new:

        def back_up(mapping: TenantDatabase) -> tuple[Outcome, list[File]]:
            done: list[File] = []
            name = f"tenant-{mapping.pk}.backup"

            def work() -> None:
                back_up_tenant(tenant_id=mapping.pk, file=new.folder / name)
                done.append(File(name, *new.store(name), str(mapping.pk), mapping.tenant.slug))

            return _tried(mapping.tenant.slug, work), done

        files: list[File] = []
        failed: dict[str, str] = {}
        for outcome, done in on_each_server(mappings, jobs, back_up):
            progress(outcome)
            if outcome.reason:
                failed[outcome.slug] = outcome.reason
            files += done
        # Not those that were deleted meanwhile.
        failed = {slug: failed[slug] for slug in _slugs_in_use() if slug in failed}
        # Last, so that it has the data key of every tenant in the set.
        _seal_global_database(new.folder / GLOBAL, key)
        files.append(File(GLOBAL, *new.store(GLOBAL)))
        job_steps.completed("stored")
        started = moment.isoformat(timespec="seconds")
        written = BackupSet(new.location, started, schema_version(), tuple(files), failed, key, whole=not only)
        new.finish(signed(written))
    details = {"tenants": len(files) - 1, "failed": len(failed), "whole": written.whole}
    record_for_platform("backup.written", details=details)
    return written


@contextmanager
def _alone() -> Iterator[datetime]:
    """Keep other runs out; yield the time of this one, which no other has to the second: sets have their names from it."""
    try:
        with databases.job_lock(main_server(), _JOB):
            moment = now()
            yield moment
            next_second = moment.replace(microsecond=0) + timedelta(seconds=1)
            time.sleep(max(0.0, (next_second - now()).total_seconds()))
    except JobRunning as problem:
        raise JobRunning("Another backup of all tenants is running. Try again when it has finished.") from problem


def _mappings(slugs: Sequence[str]) -> list[TenantDatabase]:
    mappings = TenantDatabase.objects.select_related("tenant", "server").filter(status__in=_BACKED_UP)
    if slugs:
        mappings = mappings.filter(tenant__slug__in=slugs)
        if missing := sorted(set(slugs) - {mapping.tenant.slug for mapping in mappings}):
            raise UnknownTenant(f"No tenant has the slug {', '.join(missing)}. `list_tenants` shows all tenants.")
    return list(mappings.order_by("tenant__slug"))


def _slugs_in_use() -> list[str]:
    mappings = TenantDatabase.objects.filter(status__in=_BACKED_UP).order_by("tenant__slug")
    return list(mappings.values_list("tenant__slug", flat=True))


def _tried(slug: str, work: Callable[[], object]) -> Outcome:
    began, reason = time.monotonic(), ""
    try:
        work()
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
    except Exception as problem:
        reason = why(problem)
    return Outcome(slug, time.monotonic() - began, reason)


def _seal_global_database(file: Path, key: bytes) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as out:
        with SealingWriter(out, data_key=key, purpose=_PURPOSE) as sealed:
            dumps.stream_out(main_server(), str(settings.DATABASES["default"]["NAME"]), sealed)
        out.flush()
        os.fsync(out.fileno())


# --- reading ---------------------------------------------------------------------------------------------------------


def newest(storage: Storage) -> BackupSet:
    """Return the newest set of all tenants in a storage, else the newest one, or the set that the storage is.

    Raises BackupUnfit, OSError.
    """
    locations = storage.sets()
    if not locations:
        raise BackupUnfit(f"{storage} contains no backup set.")
    backup_sets = map(read, locations)
    first = next(backup_sets)
    return first if first.whole else next((later for later in backup_sets if later.whole), first)


def find_problems(backup_set: BackupSet) -> Iterator[str]:
    """Yield what is wrong with a set: its date, files that are missing or altered, and tenants that are not in it."""
    if backup_set.is_of_future:
        yield "It is dated in the future: a clock is or was wrong. Write a new backup, then remove this one."
    for slug, reason in backup_set.failed.items():
        yield f"{slug} is not in the set: {reason}"
    for file in backup_set.files:
        if reason := _reason_against(backup_set, file):
            yield reason


def _reason_against(backup_set: BackupSet, file: File) -> str:
    about = f"{file.name} ({file.slug or 'global database'})"
    try:
        return "" if backup_set.location.describe(file.name) == (file.size, file.sha256) else f"{about} was altered"
    except OSError as problem:
        return f"{about} cannot be read: {problem.strerror}"


@contextmanager
def _fetched(backup_set: BackupSet, file: File) -> Iterator[Path]:
    """Yield the path of a file that is as it was written. Raises BackupUnfit, OSError."""
    with backup_set.location.fetched(file.name) as path:
        if digest_of(path) != (file.size, file.sha256):
            raise BackupUnfit(f"{file.name} ({file.slug or 'global database'}) was altered.")
        yield path


def unseal_global_database(backup_set: BackupSet, to: Path) -> None:
    """Write the global database of a set to a new file, for `pg_restore`. Raises BackupUnfit, OSError."""
    with temporary_folder(to.absolute().parent) as draft:
        opened = draft / "opened"
        handle = os.open(opened, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            with (
                os.fdopen(handle, "wb") as out,
                backup_set.location.fetched(GLOBAL) as fetched,
                fetched.open("rb") as source,
            ):
                unseal_file(source, out, data_key=backup_set.key, purpose=_PURPOSE)
        except SealBroken as problem:
            raise BackupUnfit(f"{backup_set.location}/{GLOBAL}: {problem}") from problem
        opened.replace(to)


def try_restore(backup_set: BackupSet, slug: str) -> Outcome:
    """Restore a tenant's file into a copy, compare its rows with those backed up, and drop it; return the outcome.

    Raises UnknownTenant (not in the set).
    """
    file = _file_of(backup_set, slug)

    def work() -> None:
        with _fetched(backup_set, file) as path:
            try_backup(tenant_id=UUID(file.tenant_id), file=path)

    return _tried(slug, work)


def restore_tenants(
    backup_set: BackupSet,
    slugs: Sequence[str],
    *,
    jobs: int = 2,
    start: Start = lambda total: None,
    progress: Progress = lambda outcome: None,
) -> list[Outcome]:
    """Restore these tenants from a set, `jobs` at a time on each server; return the outcomes of those that failed.

    See `relocation.restore_tenant`. Raises UnknownTenant (not in the set, or no tenant of this platform any more).
    """
    files = {UUID(file.tenant_id): file for file in (_file_of(backup_set, slug) for slug in slugs)}
    mappings = list(TenantDatabase.objects.select_related("tenant", "server").filter(pk__in=files))
    gone = [file.slug for tenant_id, file in files.items() if tenant_id not in {mapping.pk for mapping in mappings}]
    if gone:
        raise UnknownTenant(f"No tenant of this platform: {', '.join(gone)}. Restore the global database first.")
    start(len(mappings))

    def restore(mapping: TenantDatabase) -> None:
        with _fetched(backup_set, files[mapping.pk]) as path:
            restore_tenant(tenant_id=mapping.pk, file=path)

    failed = []
    for outcome in on_each_server(
        mappings, jobs, lambda mapping: _tried(mapping.tenant.slug, lambda: restore(mapping))
    ):
        progress(outcome)
        if outcome.reason:
            failed.append(outcome)
    return failed


def existing_tenants(backup_set: BackupSet) -> list[str]:
    """Return the slugs of the set's tenants that have not been deleted since."""
    return _in_state(backup_set, *_BACKED_UP)


def lost_tenants(backup_set: BackupSet) -> list[str]:
    """Return the slugs of the set's tenants whose database is lost: `check_tenants --repair` has marked them as failed."""
    return _in_state(backup_set, State.FAILED)


def _in_state(backup_set: BackupSet, *states: State) -> list[str]:
    mappings = TenantDatabase.objects.filter(pk__in=[file.tenant_id for file in backup_set.tenants], status__in=states)
    ids = {str(tenant_id) for tenant_id in mappings.values_list("pk", flat=True)}
    return [file.slug for file in backup_set.tenants if file.tenant_id in ids]


def _file_of(backup_set: BackupSet, slug: str) -> File:
    file = next((file for file in backup_set.tenants if file.slug == slug), None)
    if file is None:
        raise UnknownTenant(f"{slug} is not in this backup.")
    return file


# --- retention -------------------------------------------------------------------------------------------------------


def remove_old(storage: Storage, keep: int) -> list[str]:
    """Remove all sets but the newest `keep`; return their names.

    A set that has the newest backup of an existing tenant stays, so a tenant whose backups fail keeps its last one. A set
    whose list cannot be verified stays as well, and so does one that is dated in the future: it does not count, because later
    ones would be older forever. Raises OSError.
    """
    existing = {str(pk) for pk in TenantDatabase.objects.filter(status__in=_BACKED_UP).values_list("pk", flat=True)}
    removed, number = [], 0
    for location in storage.sets():
        with suppress(BackupUnfit):
            backup_set = read(location)
            if backup_set.is_of_future:
                continue
            number += 1
            newest_of = {file.tenant_id for file in backup_set.tenants} & existing
            existing -= newest_of
            if number > keep and not newest_of:
                storage.remove(location)
                removed.append(location.name)
    storage.remove_unfinished()
    return removed
