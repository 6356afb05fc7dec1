"""Directories of a tenant: configured, tried out, synchronised.

Configurations live in the global database, so the trail of their changes is the platform's (with the tenant's id). What
a run does to people is in the tenant's own trail.
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
from django.db import IntegrityError, transaction
from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Lower
from django.utils.timezone import now

from identity_platform.api.errors import ApiError, ValidationFailed
from identity_platform.api.pagination import Page, offset
from identity_platform.audit.writer import record_for_platform
from identity_platform.crypto import RingKeyMissing, SealBroken
from tenants import keys
from tenants.context import in_tenant, tenant_atomic
from tenants.models import DataKey
from tenants.states import Purpose, State
from userflow.clients.models import Client
from userflow.directory import ldap, runs, secrets
from userflow.directory.addresses import refuse_plainly_forbidden
from userflow.directory.engine import Synchronisation
from userflow.directory.graph import GraphReading, clouds
from userflow.directory.models import (
    ACTIVE_DIRECTORY,
    BY_REQUEST,
    ENTRA_ID,
    FAILED,
    INTERRUPTED,
    DirectoryConfig,
    DirectoryRun,
)
from userflow.directory.objects import DEFAULT_MAPPING, Entry, Reading, attributes_read, normalised
from userflow.directory.runs import RunLost, Tally
from userflow.errors import (
    DirectoryAddressRefused,
    DirectoryBusy,
    DirectoryNameTaken,
    DirectorySecretLocked,
    UnknownClient,
    UnknownDirectory,
)
from userflow.groups.models import Group
from userflow.principals import Principal
from userflow.roles.actions import refuse_granting
from userflow.roles.models import Role
from userflow.webhooks.outbox import publish_for_each

log = structlog.get_logger("identity.directory")

DIRECTORY: Final = "directory"
# The members of a configuration that say whom the secret is for.
TARGET: Final = {
    ACTIVE_DIRECTORY: ("server", "port", "tls", "ca_certificate", "base_dn", "bind_dn"),
    ENTRA_ID: ("directory_tenant_id", "application_id", "cloud"),
}
REQUIRED: Final = {
    ACTIVE_DIRECTORY: ("server", "base_dn", "bind_dn"),
    ENTRA_ID: ("directory_tenant_id", "application_id"),
}
# What may change while a run goes on.
WHILE_RUNNING: Final = frozenset({"name", "enabled", "sync_every_minutes", "max_deactivation_percent"})
# What has changed is read in between; once a day everything is, which also finds what was changed here.
FULL_READ_AFTER: Final = timedelta(days=1)
SAMPLED: Final = 5


@dataclass(frozen=True, slots=True)
class Shown:
    """A configuration with its last run, if there was one."""

    config: DirectoryConfig
    last_run: DirectoryRun | None


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


# --- configurations --------------------------------------------------------------------------------------------------


def list_directories(*, tenant_id: UUID, page: int, limit: int) -> Page:
    """One page of a tenant's directories with their last runs, newest first."""
    found = DirectoryConfig.objects.filter(tenant_id=tenant_id)
    start = offset(page, limit)
    rows = _with_last_runs(found.order_by("-created_at", "-id")[start : start + limit])
    return Page(rows, page, limit, found.count())


def find_directory(*, tenant_id: UUID, config_id: UUID) -> Shown:
    """One directory with its last run; UnknownDirectory if the tenant has none of this id."""
    found = _with_last_runs(DirectoryConfig.objects.filter(pk=config_id, tenant_id=tenant_id))
    if not found:
        raise UnknownDirectory
    return found[0]


def create_directory(*, tenant_id: UUID, by: Principal, fields: dict[str, Any]) -> Shown:
    """Configure a directory. Refuses with DirectoryNameTaken, LdapNotInstalled, UnknownClient, ValidationFailed (members
    that its kind needs, an address that is not allowed, groups that are not there), GrantsMoreThanHeld (a mapped group
    carries more than the caller holds), DirectorySecretLocked."""
    kind, secret = fields["kind"], fields["secret"]
    if kind == ACTIVE_DIRECTORY:
        ldap.must_be_installed()
    missing = [name for name in REQUIRED[kind] if fields.get(name) is None]
    if missing:
        raise ValidationFailed(details={name: [f"A directory of kind {kind} needs it."] for name in missing})
    config = DirectoryConfig(tenant_id=tenant_id, kind=kind, name=fields["name"], target=_target(kind, {}, fields))
    _set_options(config, fields, by)
    config.mapping = DEFAULT_MAPPING | config.mapping
    config.next_run_at = now() if config.sync_every_minutes is not None else None
    _seal(config, secret)
    try:
        with transaction.atomic():
            config.save(force_insert=True)
            _record("directory.created", config)
    except IntegrityError as clash:
        raise DirectoryNameTaken from clash
    return Shown(config, None)


def update_directory(*, tenant_id: UUID, config_id: UUID, by: Principal, changes: dict[str, Any]) -> Shown:
    """Change the members that are there; `mapping` and `groups` are replaced whole.

    Who changes the server, or anything else of the target, must enter the secret again: it would otherwise be sent to
    whatever server is named now. Refuses with UnknownDirectory, DirectoryNameTaken, DirectoryBusy (a run would go on with
    the old target), UnknownClient, ValidationFailed, GrantsMoreThanHeld, DirectorySecretLocked.
    """
    _found(tenant_id, config_id)  # 404 before anything is looked at
    groups_known = _known_groups(tenant_id, by, changes["groups"]) if changes.get("groups") else None
    try:
        with transaction.atomic():
            config = _locked(tenant_id, config_id)
            if set(changes) - WHILE_RUNNING:
                if runs.is_running(config_id):
                    raise DirectoryBusy
                # Another mapping or place: what was read before says nothing about it.
                config.cursor = ""
            target = _target(config.kind, config.target, changes)
            if target != config.target:
                if "secret" not in changes:
                    raise ValidationFailed(
                        "Enter the secret again: the directory's target has changed.",
                        details={"secret": ["Needed with every change of " + ", ".join(TARGET[config.kind]) + "."]},
                    )
                config.target = target
            _set_options(config, changes, by, groups_known=groups_known)
            if "name" in changes:
                config.name = changes["name"]
            if "secret" in changes:
                _seal(config, changes["secret"])
            if "sync_every_minutes" in changes:
                config.next_run_at = now() if config.sync_every_minutes is not None else None
            config.save()
            _record("directory.updated", config, changed=sorted(changes))
    except IntegrityError as clash:
        raise DirectoryNameTaken from clash
    return find_directory(tenant_id=tenant_id, config_id=config_id)


def delete_directory(*, tenant_id: UUID, config_id: UUID) -> None:
    """Remove a directory with its secret and its runs; its people stay as they are. A new configuration that reads the
    same objects takes them over. Refuses with UnknownDirectory, DirectoryBusy."""
    with transaction.atomic():
        config = _locked(tenant_id, config_id)
        if runs.is_running(config_id):
            raise DirectoryBusy
        _record("directory.deleted", config)
        config.delete()


def list_runs(*, tenant_id: UUID, config_id: UUID, page: int, limit: int) -> Page:
    """One page of a directory's runs, newest first; UnknownDirectory if the tenant has none of this id."""
    if not DirectoryConfig.objects.filter(pk=config_id, tenant_id=tenant_id).exists():
        raise UnknownDirectory
    found = DirectoryRun.objects.filter(config_id=config_id)
    start = offset(page, limit)
    return Page(list(found.order_by("-started_at", "-id")[start : start + limit]), page, limit, found.count())


# --- reading ---------------------------------------------------------------------------------------------------------


def try_directory(*, tenant_id: UUID, config_id: UUID) -> Tried:
    """Connect, prove who we are and read the first people, changing nothing.

    A directory that cannot be read is an answer, not a refusal. Refuses with UnknownDirectory, LdapNotInstalled,
    DirectorySecretLocked.
    """
    config = _found(tenant_id, config_id)
    if config.kind == ACTIVE_DIRECTORY:
        ldap.must_be_installed()
    deadline = time.monotonic() + settings.DIRECTORY_REQUEST_SECONDS
    try:
        pages = _reading(config, full=True, deadline=deadline, page=SAMPLED).pages()
        first = next(pages, [])
    except DirectorySecretLocked:
        raise
    except ApiError as refusal:
        _record("directory.tried", config, outcome="failed")
        return Tried(refusal.text)
    _record("directory.tried", config)
    return Tried("", [normalised(found, config.mapping) for found in first[:SAMPLED]])


def synchronise(
    *,
    tenant_id: UUID,
    config_id: UUID,
    trigger: str = BY_REQUEST,
    dry_run: bool = False,
    force: bool = False,
    full: bool = False,
    seconds: float | None = None,
    progress: Callable[[int], None] = lambda found: None,
) -> Ran:
    """Make a tenant's people what the directory says.

    `dry_run` writes nothing in the tenant; `force` switches off however many; `full` reads everything also where changes
    would do; after `seconds` the run ends between two pages and its record says `incomplete`. `progress` gets the number
    of objects read. Refuses with UnknownDirectory, DirectoryBusy, DirectoryFailed, DirectoryAddressRefused,
    LdapNotInstalled, DirectorySecretLocked, UnknownTenant, TenantSuspended, TenantBusy, UnknownClient; a refused run is in
    the history with its reason, and what it did before stays.
    """
    config = _found(tenant_id, config_id)
    if config.kind == ACTIVE_DIRECTORY:
        ldap.must_be_installed()
    deadline = None if seconds is None else time.monotonic() + seconds
    run = runs.claim(config, trigger=trigger, dry_run=dry_run)
    tally = Tally()

    def end(state: str, reason: str = "", **more: Any) -> None:
        runs.finish(run, tally, state=state, reason=reason, **more)
        _tell(run)

    try:
        # Nothing that matters changes from here on (`update_directory`); a moment ago it could.
        config.refresh_from_db()
        reading = _reading(config, full=full or dry_run, deadline=deadline)
        synchronisation = Synchronisation(
            config=config,
            run=run,
            reading=reading,
            client_id=_client(tenant_id, config.client_id),
            living=list(DirectoryConfig.objects.filter(tenant_id=tenant_id).values_list("pk", flat=True)),
            force=force,
            deadline=deadline,
            progress=progress,
            tally=tally,
        )
        outcome = synchronisation.carry_out()
    except RunLost as lost:
        raise DirectoryBusy("Another run took this directory over, as this one was silent for too long.") from lost
    except ApiError as refusal:
        end(FAILED, refusal.text)
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


# --- inside ----------------------------------------------------------------------------------------------------------


def _with_last_runs(found: QuerySet[DirectoryConfig]) -> list[Shown]:
    newest = DirectoryRun.objects.filter(config=OuterRef("pk")).order_by("-started_at", "-id")
    configs = list(found.annotate(last_run_id=Subquery(newest.values("pk")[:1])))
    ids = [config.last_run_id for config in configs if config.last_run_id]
    last = {run.pk: run for run in DirectoryRun.objects.filter(pk__in=ids)} if ids else {}
    return [Shown(config, last.get(config.last_run_id)) for config in configs]


def _found(tenant_id: UUID, config_id: UUID) -> DirectoryConfig:
    config = DirectoryConfig.objects.filter(pk=config_id, tenant_id=tenant_id).first()
    if config is None:
        raise UnknownDirectory
    return config


def _locked(tenant_id: UUID, config_id: UUID) -> DirectoryConfig:
    rows = DirectoryConfig.objects.select_for_update(no_key=True)
    config = rows.filter(pk=config_id, tenant_id=tenant_id).first()
    if config is None:
        raise UnknownDirectory
    return config


def _target(kind: str, present: dict[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    """The target after a change. A port that is not said, also not before, is the usual one of the encryption."""
    foreign = [
        name for other, names in TARGET.items() if other != kind for name in names if stated.get(name) is not None
    ]
    if foreign:
        raise ValidationFailed(details={name: [f"A directory of kind {kind} has no such member."] for name in foreign})
    target: dict[str, Any] = {name: stated.get(name, present.get(name)) for name in TARGET[kind]}
    if kind == ENTRA_ID:
        target["cloud"] = target["cloud"] or "global"
        if target["cloud"] not in clouds():
            raise ValidationFailed(details={"cloud": [f"Send one of {', '.join(sorted(clouds()))}."]})
        return target
    target["tls"] = target["tls"] or ldap.LDAPS
    if target["tls"] == ldap.PLAIN and not settings.DIRECTORY_ALLOW_PLAIN_LDAP:
        raise ValidationFailed(details={"tls": ["LDAP without TLS is not allowed here: send ldaps or starttls."]})
    unsaid = "port" not in stated and present.get("port") in (None, ldap.PORTS.get(present.get("tls", "")))
    target["port"] = ldap.PORTS[target["tls"]] if unsaid or target["port"] is None else target["port"]
    target["ca_certificate"] = target["ca_certificate"] or ""
    try:
        refuse_plainly_forbidden(target["server"])
    except DirectoryAddressRefused as refusal:
        raise DirectoryAddressRefused("server") from refusal
    return target


def _set_options(
    config: DirectoryConfig, stated: dict[str, Any], by: Principal, groups_known: dict[str, str] | None = None
) -> None:
    """Everything that the secret does not depend on."""
    for member in ("enabled", "user_filter", "mapping", "max_deactivation_percent", "sync_every_minutes", "client_id"):
        if member in stated:
            setattr(config, member, stated[member])
    config.mapping = DEFAULT_MAPPING | config.mapping
    if stated.get("client_id") is not None:
        _client(config.tenant_id, stated["client_id"])
    if "groups" in stated:
        known = groups_known if groups_known is not None else _known_groups(config.tenant_id, by, stated["groups"])
        config.groups = known


def _known_groups(tenant_id: UUID, by: Principal, stated: dict[str, str]) -> dict[str, str]:
    """The mapping of groups, if all of the tenant's are there and carry nothing that the caller does not hold."""
    if not stated:
        return {}
    wanted = {name.lower() for name in stated.values()}
    with in_tenant(tenant_id, Purpose.READ):
        found = dict(Group.objects.annotate(key=Lower("name")).filter(key__in=wanted).values_list("pk", "key"))
        missing = wanted - set(found.values())
        if missing:
            says = [f"The tenant has no group {name!r}: make it first." for name in sorted(missing)]
            raise ValidationFailed(details={"groups": says})
        carried = Role.objects.filter(groups__in=list(found)).values_list("permissions", flat=True)
        refuse_granting(by, {permission for permissions in carried for permission in permissions})
    return stated


def _client(tenant_id: UUID, client_id: UUID | None) -> UUID:
    """The client that new people belong to; the tenant's default one if none is named. UnknownClient if it is gone."""
    found = Client.objects.filter(tenant_id=tenant_id)
    found = found.filter(is_default=True) if client_id is None else found.filter(pk=client_id)
    known = found.values_list("pk", flat=True).first()
    if known is None:
        raise UnknownClient
    return known


def _data_key(tenant_id: UUID) -> bytes:
    try:
        return keys.tenant_key(tenant_id)
    except (RingKeyMissing, SealBroken, DataKey.DoesNotExist) as problem:
        log.error("data_key_locked", tenant_id=tenant_id, kind=type(problem).__name__)
        raise DirectorySecretLocked from problem


def _seal(config: DirectoryConfig, secret: str) -> None:
    config.secret = secrets.seal_secret(
        secret,
        data_key=_data_key(config.tenant_id),
        tenant_id=config.tenant_id,
        config_id=config.pk,
        target=config.target,
    )
    config.secret_set_at = now()


def _reading(config: DirectoryConfig, *, full: bool, deadline: float | None, page: int = ldap.PAGE) -> Reading:
    try:
        secret = secrets.open_secret(
            bytes(config.secret),
            data_key=_data_key(config.tenant_id),
            tenant_id=config.tenant_id,
            config_id=config.pk,
            target=config.target,
        )
    except SealBroken as problem:
        log.error("directory_secret_unreadable", config_id=config.pk)
        _record("directory.secret_unreadable", config, outcome="failed")
        raise DirectorySecretLocked from problem
    attributes, groups = attributes_read(config.mapping), list(config.groups)
    if config.kind == ACTIVE_DIRECTORY:
        return ldap.LdapReading(
            config.target, secret, user_filter=config.user_filter, attributes=attributes, groups=groups, page=page
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


def _record(action: str, config: DirectoryConfig, outcome: str = "success", **details: Any) -> None:
    record_for_platform(
        action, tenant_id=config.tenant_id, target=(DIRECTORY, config.pk), outcome=outcome, details=details
    )
