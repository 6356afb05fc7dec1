"""Test and synchronise directories: the use cases that send the stored secret.

Changes to users are in the tenant's audit log; the run itself is in the platform's, like its configuration.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.utils.timezone import now

from identity_platform.api.errors import ApiError
from identity_platform.crypto import SealBroken
from identity_platform.semaphore import Semaphore
from tenants.entering import lookup
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.errors import DataKeyLocked
from tenants.states import State
from userflow.accounts.principals import Principal
from userflow.directory import configs, ldap, runs
from userflow.directory.configs import client_of, config_of, record, reject_beyond
from userflow.directory.engine import Synchronisation
from userflow.directory.graph import GraphReading
from userflow.directory.models import ACTIVE_DIRECTORY, BY_REQUEST, FAILED, INTERRUPTED, DirectoryConfig, DirectoryRun
from userflow.directory.objects import DirectoryReader, Entry, attributes_read, to_entry
from userflow.directory.runs import RunLost, Tally
from userflow.errors import DirectoriesBusy, DirectoryBusy, DirectorySecretLocked, UnknownDirectory
from userflow.events.outbox import publish_for_each

log = structlog.get_logger("identity.directory")

# Runs in between read changes only; a daily full read also finds what was changed here.
FULL_READ_AFTER: Final = timedelta(days=1)
SAMPLED: Final = 5
# A directory that answers slowly holds a thread.
_semaphore = Semaphore.for_slow_requests("directory", DirectoriesBusy)


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished run with its counts and a preview that holds names, which the stored run does not."""

    run: DirectoryRun
    tally: Tally


@dataclass(frozen=True, slots=True)
class Tried:
    """Whether a directory can be read, the problem if not, and a sample of the users it would create."""

    problem: str
    sample: Sequence[Entry] = ()


def try_directory(*, tenant_id: UUID, config_id: UUID) -> Tried:
    """Connect, authenticate and read the first users, without changes.

    An unreadable directory is a result, not an error. Raises UnknownDirectory, LdapNotInstalled,
    DataKeyLocked, DirectorySecretLocked, DirectoriesBusy.
    """
    config = config_of(tenant_id, config_id)
    if config.kind == ACTIVE_DIRECTORY:
        ldap.must_be_installed()
    deadline = time.monotonic() + settings.DIRECTORY_REQUEST_SECONDS
    try:
        reading = _reading(config, full=True, deadline=deadline, page=SAMPLED)
        with _semaphore.acquire(), contextlib.closing(reading.pages()) as pages:
            first = next(pages, [])
    except (DataKeyLocked, DirectorySecretLocked, DirectoriesBusy):
        raise
    except ApiError as error:
        record("directory.tried", config, outcome="failed")
        return Tried(error.text)
    record("directory.tried", config)
    return Tried("", [to_entry(directory_object, config.mapping) for directory_object in first[:SAMPLED]])


def synchronise(
    *,
    tenant_id: UUID,
    config_id: UUID,
    trigger: str = BY_REQUEST,
    dry_run: bool = False,
    force: bool = False,
    full: bool = False,
    seconds: float,
    by: Principal | None = None,
    progress: Callable[[int], None] = lambda objects_read: None,
) -> Ran:
    """Bring the tenant's users in line with the directory.

    Args:
        dry_run: write nothing in the tenant.
        force: deactivate users however many they are.
        full: read everything even if a read of changes is possible.
        seconds: after this time the run ends between two pages with the state `incomplete`.
        by: the caller of a request. It needs all permissions that the directory may grant, and only some requests may run
            at once.
        progress: called with the number of objects read.

    Raises GrantsMoreThanHeld, UnknownDirectory, DirectoryBusy, DirectoryFailed, DirectoryAddressRejected,
    LdapNotInstalled, DataKeyLocked, DirectorySecretLocked, DirectoriesBusy, UnknownTenant, TenantSuspended, TenantBusy,
    UnknownClient. A failed run is in the history with its reason, and the pages that it wrote stay.
    """
    config = config_of(tenant_id, config_id)
    if config.kind == ACTIVE_DIRECTORY:
        ldap.must_be_installed()
    deadline, tally = time.monotonic() + seconds, Tally()
    with contextlib.nullcontext() if by is None else _semaphore.acquire():
        run = runs.claim(config, trigger=trigger, dry_run=dry_run)
        with _recording_failures(run, tally):
            # From here on `update_directory` rejects changes that matter; read what it changed before.
            config.refresh_from_db()
            if by is not None and not dry_run:
                reject_beyond(by, tenant_id=tenant_id, config_id=config_id, groups=config.groups.values())
            reading = _reading(config, full=full or dry_run, deadline=deadline)
            synchronisation = Synchronisation(
                config=config,
                run=run,
                reading=reading,
                client_id=client_of(tenant_id, config.client_id),
                living=list(DirectoryConfig.objects.filter(tenant_id=tenant_id).values_list("pk", flat=True)),
                force=force,
                deadline=deadline,
                progress=progress,
                tally=tally,
            )
            outcome = synchronisation.run_to_end()
        runs.finish(run, tally, state=outcome.state, reason=outcome.reason, cursor=outcome.cursor, full=reading.full)
        _publish_finished(run)
    return Ran(run, tally)


@contextlib.contextmanager
def _recording_failures(run: DirectoryRun, tally: Tally) -> Iterator[None]:
    """End the run with the reason of an exception. Raises DirectoryBusy if another run took the directory over."""
    try:
        yield
    except RunLost as lost:
        raise DirectoryBusy("Another run took this directory over, because this one was silent for too long.") from lost
    except (ApiError, KeyboardInterrupt) as problem:
        if isinstance(problem, ApiError):
            runs.finish(run, tally, state=FAILED, reason=problem.text)
        else:
            reason = "Interrupted. What was applied stays; the next run reads it again."
            runs.finish(run, tally, state=INTERRUPTED, reason=reason)
        _publish_finished(run)
        raise
    except BaseException as problem:
        reason = f"Internal error ({type(problem).__name__}). See the platform's log."
        runs.finish(run, tally, state=FAILED, reason=reason)
        raise


def directories_to_run(*, due_only: bool) -> list[DirectoryConfig]:
    """Return the enabled directories of all active tenants, the longest due first; with `due_only` those that are due."""
    directories = DirectoryConfig.objects.filter(enabled=True, tenant__database__status=State.ACTIVE)
    if due_only:
        directories = directories.filter(next_run_at__lte=now())
    return list(directories.select_related("tenant").order_by("next_run_at", "created_at"))


def directories_of(*, tenant_id: UUID, name_or_id: str | None = None) -> list[DirectoryConfig]:
    """Return a tenant's enabled directories, or the one with this name or id. Raises UnknownDirectory."""
    directories = DirectoryConfig.objects.filter(tenant_id=tenant_id).select_related("tenant").order_by("created_at")
    if name_or_id is None:
        return list(directories.filter(enabled=True))
    matching = [config for config in directories if name_or_id.lower() in (config.name.lower(), str(config.pk))]
    if not matching:
        raise UnknownDirectory(f"The tenant has no directory {name_or_id}.")
    return matching


def _reading(config: DirectoryConfig, *, full: bool, deadline: float | None, page: int = ldap.PAGE) -> DirectoryReader:
    try:
        secret = configs.open_secret(config)
    except SealBroken as problem:
        log.error("directory_secret_unreadable", config_id=config.pk)
        record("directory.secret_unreadable", config, outcome="failed")
        raise DirectorySecretLocked from problem
    attributes, groups = attributes_read(config.mapping), list(config.groups)
    authorities = lookup.find(config.tenant_id).authorities
    if config.kind == ACTIVE_DIRECTORY:
        return ldap.LdapReading(
            config.target,
            secret,
            user_filter=config.user_filter,
            attributes=attributes,
            groups=groups,
            page=page,
            deadline=deadline,
            authorities=authorities,
        )
    recent = config.read_in_full_at is not None and config.read_in_full_at > now() - FULL_READ_AFTER
    cursor = config.cursor if recent and not full else ""
    return GraphReading(
        config.target,
        secret,
        cursor=cursor,
        attributes=attributes,
        groups=groups,
        deadline=deadline,
        authorities=authorities,
    )


def _publish_finished(run: DirectoryRun) -> None:
    """Publish `directory.sync_finished`. A process that dies between the two databases leaves the message out."""
    if run.dry_run:
        return
    # A tenant that is suspended or moving by now gets no message.
    with contextlib.suppress(ApiError), in_tenant(run.tenant_id), tenant_atomic():
        facts = {"run_id": run.pk, "directory_id": run.config_id, "state": run.state, "reason": run.reason}
        figures = {name: getattr(run, name) for name in Tally().figures()}
        # `publish_for_each` asks the tenant's database: an endpoint may have been created since the run began.
        publish_for_each("directory.sync_finished", [{**facts, **figures}])
