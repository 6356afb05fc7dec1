"""Directories tried out and synchronised: the use cases that go out with a secret.

What a run does to people is in the tenant's own trail; that it ran is in the platform's, as its configuration is.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import structlog
from django.conf import settings
from django.utils.timezone import now

from identity_platform.api.errors import ApiError
from identity_platform.crypto import SealBroken
from identity_platform.semaphore import Semaphore
from tenants import keys
from tenants.context import in_tenant, tenant_atomic
from tenants.errors import DataKeyLocked
from tenants.states import State
from userflow.accounts.principals import Principal
from userflow.directory import ldap, runs, secrets
from userflow.directory.configs import client_of, config_of, record
from userflow.directory.engine import Synchronisation
from userflow.directory.errors import DirectoriesBusy, DirectoryBusy, DirectorySecretLocked, UnknownDirectory
from userflow.directory.grants import reject_beyond
from userflow.directory.graph import GraphReading
from userflow.directory.models import (
    ACTIVE_DIRECTORY,
    BY_REQUEST,
    FAILED,
    INTERRUPTED,
    DirectoryConfig,
    DirectoryRun,
)
from userflow.directory.objects import Entry, Reading, attributes_read, normalised
from userflow.directory.runs import RunLost, Tally
from userflow.events.outbox import publish_for_each

log = structlog.get_logger("identity.directory")

# What has changed is read in between; once a day everything is, which also finds what was changed here.
FULL_READ_AFTER: Final = timedelta(days=1)
SAMPLED: Final = 5
# A directory that answers slowly holds a thread.
_semaphore = Semaphore.for_slow_requests(DirectoriesBusy)


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that has ended, and what it did in the words of its answer: with names, which its record does not keep."""

    run: DirectoryRun
    tally: Tally


@dataclass(frozen=True, slots=True)
class Tried:
    """Whether a directory can be read, why not, and the first few people as they would come."""

    problem: str
    sample: Sequence[Entry] = ()


def try_directory(*, tenant_id: UUID, config_id: UUID) -> Tried:
    """Connect, prove who we are and read the first people, changing nothing.

    A directory that cannot be read is an answer, not an error. Raises UnknownDirectory, LdapNotInstalled,
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
    return Tried("", [normalised(found, config.mapping) for found in first[:SAMPLED]])


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
    progress: Callable[[int], None] = lambda found: None,
) -> Ran:
    """Make a tenant's people what the directory says.

    `dry_run` writes nothing in the tenant; `force` switches off however many; `full` reads everything also where changes
    would do; after `seconds` the run ends between two pages and its record says `incomplete`. `by` is the caller of a
    request: it takes one of the places for those, and is rejected what goes beyond the caller's permissions. `progress` gets
    the number of objects read.

    Raises GrantsMoreThanHeld, UnknownDirectory, DirectoryBusy, DirectoryFailed, DirectoryAddressRejected,
    LdapNotInstalled, DataKeyLocked, DirectorySecretLocked, DirectoriesBusy, UnknownTenant, TenantSuspended, TenantBusy,
    UnknownClient; a rejected run is in the history with its reason, and what it did before stays.
    """
    config = config_of(tenant_id, config_id)
    if config.kind == ACTIVE_DIRECTORY:
        ldap.must_be_installed()
    deadline = time.monotonic() + seconds
    with contextlib.nullcontext() if by is None else _semaphore.acquire():
        return _synchronise(
            config,
            by=by,
            trigger=trigger,
            dry_run=dry_run,
            force=force,
            full=full,
            deadline=deadline,
            progress=progress,
        )


def _synchronise(
    config: DirectoryConfig,
    *,
    by: Principal | None,
    trigger: str,
    dry_run: bool,
    force: bool,
    full: bool,
    deadline: float,
    progress: Callable[[int], None],
) -> Ran:
    run = runs.claim(config, trigger=trigger, dry_run=dry_run)
    tally = Tally()

    def end(state: str, reason: str = "", **more: Any) -> None:
        runs.finish(run, tally, state=state, reason=reason, **more)
        _tell(run)

    try:
        # Nothing that matters changes from here on (`update_directory`); a moment ago it could.
        config.refresh_from_db()
        if by is not None and not dry_run:
            reject_beyond(by, tenant_id=config.tenant_id, config_id=config.pk, groups=config.groups.values())
        reading = _reading(config, full=full or dry_run, deadline=deadline)
        synchronisation = Synchronisation(
            config=config,
            run=run,
            reading=reading,
            client_id=client_of(config.tenant_id, config.client_id),
            living=list(DirectoryConfig.objects.filter(tenant_id=config.tenant_id).values_list("pk", flat=True)),
            force=force,
            deadline=deadline,
            progress=progress,
            tally=tally,
        )
        outcome = synchronisation.carry_out()
    except RunLost as lost:
        raise DirectoryBusy("Another run took this directory over, as this one was silent for too long.") from lost
    except ApiError as error:
        end(FAILED, error.text)
        raise
    except KeyboardInterrupt:
        end(INTERRUPTED, "Interrupted: run it again to go on.")
        raise
    except BaseException as problem:
        runs.finish(
            run, tally, state=FAILED, reason=f"A fault of the platform ({type(problem).__name__}): see its log."
        )
        raise
    end(outcome.state, outcome.reason, cursor=outcome.cursor, full=reading.full)
    return Ran(run, tally)


def directories_to_run(*, due_only: bool) -> list[DirectoryConfig]:
    """The enabled directories of all active tenants, the longest due first; or of them those whose time has come."""
    found = DirectoryConfig.objects.filter(enabled=True, tenant__database__status=State.ACTIVE)
    if due_only:
        found = found.filter(next_run_at__lte=now())
    return list(found.select_related("tenant").order_by("next_run_at", "created_at"))


def directories_of(*, tenant_id: UUID, named: str | None = None) -> list[DirectoryConfig]:
    """A tenant's enabled directories, or the one of this name or id, enabled or not; UnknownDirectory if there is none."""
    found = DirectoryConfig.objects.filter(tenant_id=tenant_id).select_related("tenant").order_by("created_at")
    if named is None:
        return list(found.filter(enabled=True))
    matching = [config for config in found if named.lower() in (config.name.lower(), str(config.pk))]
    if not matching:
        raise UnknownDirectory(f"The tenant has no directory {named}.")
    return matching


def _reading(config: DirectoryConfig, *, full: bool, deadline: float | None, page: int = ldap.PAGE) -> Reading:
    try:
        secret = secrets.open_secret(
            bytes(config.secret),
            data_key=keys.tenant_key(config.tenant_id),
            tenant_id=config.tenant_id,
            config_id=config.pk,
            target=config.target,
        )
    except SealBroken as problem:
        log.error("directory_secret_unreadable", config_id=config.pk)
        record("directory.secret_unreadable", config, outcome="failed")
        raise DirectorySecretLocked from problem
    attributes, groups = attributes_read(config.mapping), list(config.groups)
    if config.kind == ACTIVE_DIRECTORY:
        return ldap.LdapReading(
            config.target,
            secret,
            user_filter=config.user_filter,
            attributes=attributes,
            groups=groups,
            page=page,
            deadline=deadline,
        )
    recent = config.read_in_full_at is not None and config.read_in_full_at > now() - FULL_READ_AFTER
    cursor = config.cursor if recent and not full else ""
    return GraphReading(config.target, secret, cursor=cursor, attributes=attributes, groups=groups, deadline=deadline)


def _tell(run: DirectoryRun) -> None:
    """Tell the tenant's systems that a run has ended. The run is in the global database, the message in the tenant's: a
    process that dies between the two leaves the message out, and the run in the list."""
    if run.dry_run:
        return
    # A tenant that was suspended or is being moved meanwhile takes no message.
    with contextlib.suppress(ApiError), in_tenant(run.tenant_id), tenant_atomic():
        facts = {"run_id": run.pk, "directory_id": run.config_id, "state": run.state, "reason": run.reason}
        figures = {name: getattr(run, name) for name in Tally().figures()}
        # By the writer that asks the tenant's database: an endpoint may have been made since the run began.
        publish_for_each("directory.sync_finished", [{**facts, **figures}])
