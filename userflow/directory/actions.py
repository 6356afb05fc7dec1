"""Directory configurations of a tenant: list, create, change, delete. `synchronising` tests and runs them.

Configurations live in the global database, so their changes are in the platform's audit log (with the tenant's id). What a
run does to users is in the tenant's own audit log.
"""

from dataclasses import dataclass
from typing import Final, TypedDict, Unpack, cast
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Lower
from django.utils.timezone import now

from identity_platform.api.errors import ValidationFailed
from identity_platform.api.pagination import Page, offset, page_of
from identity_platform.postgresql.row_errors import first_or, unique_or
from identity_platform.row_checks import RowCheck, no_check
from tenants.entering.context import in_tenant
from tenants.models import Tenant
from tenants.states import Purpose
from userflow.accounts.models import Group, Role
from userflow.accounts.principals import Principal
from userflow.accounts.rank import require_grantable
from userflow.directory import configs, ldap, runs
from userflow.directory.configs import client_of, config_of, record, reject_beyond
from userflow.directory.connections import reject_plainly_forbidden
from userflow.directory.graph import clouds
from userflow.directory.models import ACTIVE_DIRECTORY, ENTRA_ID, DirectoryConfig, DirectoryRun, Target
from userflow.directory.objects import DEFAULT_MAPPING, AttributeMapping
from userflow.errors import (
    DirectoryAddressRejected,
    DirectoryBusy,
    DirectoryNameTaken,
    TooManyDirectories,
    UnknownDirectory,
)
from userflow.sessions.assurance import Action, require_assurance

# The fields of a configuration that name the server for which the secret was entered.
TARGET: Final = {
    ACTIVE_DIRECTORY: ("server", "port", "tls", "ca_certificate", "base_dn", "bind_dn"),
    ENTRA_ID: ("directory_tenant_id", "application_id", "cloud"),
}
REQUIRED: Final = {
    ACTIVE_DIRECTORY: ("server", "base_dn", "bind_dn"),
    ENTRA_ID: ("directory_tenant_id", "application_id"),
}
# Fields that decide who becomes which user: a caller who changes them must hold all that the directory may grant.
RETARGETS: Final = frozenset(
    {*TARGET[ACTIVE_DIRECTORY], *TARGET[ENTRA_ID], "secret", "user_filter", "mapping", "groups"}
)
# Fields that may change during a run.
WHILE_RUNNING: Final = frozenset({"name", "enabled", "sync_every_minutes", "max_deactivation_percent"})
# Fields that are stored as they are sent.
OPTIONS: Final = WHILE_RUNNING | {"user_filter", "mapping", "groups", "client_id"}


class DirectoryFields(TypedDict, total=False):
    """The fields of a configuration that callers set."""

    kind: str
    name: str
    enabled: bool
    secret: str
    server: str | None
    port: int | None
    tls: str | None
    ca_certificate: str | None
    base_dn: str | None
    bind_dn: str | None
    directory_tenant_id: str | None
    application_id: str | None
    cloud: str | None
    user_filter: str
    client_id: UUID | None
    mapping: AttributeMapping
    groups: dict[str, str]
    max_deactivation_percent: int
    sync_every_minutes: int | None


@dataclass(frozen=True, slots=True)
class DirectoryWithLastRun:
    """A configuration with its last run, or None if it never ran."""

    config: DirectoryConfig
    last_run: DirectoryRun | None


def list_directories(*, tenant_id: UUID, page: int, limit: int) -> Page:
    """Return one page of a tenant's directories with their last runs, newest first."""
    directories = DirectoryConfig.objects.filter(tenant_id=tenant_id)
    start = offset(page, limit)
    rows = _with_last_runs(directories.order_by("-created_at", "-id")[start : start + limit])
    return Page(rows, page, limit, directories.count())


def find_directory(*, tenant_id: UUID, config_id: UUID) -> DirectoryWithLastRun:
    """Return one directory with its last run. Raises UnknownDirectory."""
    directories = _with_last_runs(DirectoryConfig.objects.filter(pk=config_id, tenant_id=tenant_id))
    if not directories:
        raise UnknownDirectory
    return directories[0]


def create_directory(*, tenant_id: UUID, by: Principal, **fields: Unpack[DirectoryFields]) -> DirectoryWithLastRun:
    """Configure a directory.

    Raises DirectoryNameTaken, LdapNotInstalled, UnknownClient, ValidationFailed (missing fields, a forbidden address,
    unknown groups), GrantsMoreThanHeld (a mapped group, or a user that this directory may take over from a deleted one,
    holds permissions that the caller does not), TooManyDirectories, DataKeyLocked, InsufficientAuthentication.
    """
    require_assurance(Action.CHANGE_CONNECTIONS, by)
    kind, secret = fields["kind"], fields["secret"]
    if kind == ACTIVE_DIRECTORY:
        ldap.must_be_installed()
    missing = [name for name in REQUIRED[kind] if fields.get(name) is None]
    if missing:
        raise ValidationFailed(
            details={name: [f"This field is required for a directory of kind {kind}."] for name in missing}
        )
    config = DirectoryConfig(tenant_id=tenant_id, kind=kind, name=fields["name"], target=_target(kind, {}, fields))
    _set_options(config, fields)
    _reject_groups(tenant_id, by, config.groups)
    reject_beyond(by, tenant_id=tenant_id, config_id=config.pk, groups=())
    config.mapping = DEFAULT_MAPPING | config.mapping
    config.next_run_at = now() if config.sync_every_minutes is not None else None
    _seal(config, secret)
    with unique_or(DirectoryNameTaken), transaction.atomic():
        # Lock before counting, or parallel requests would all pass the limit.
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant_id)
        if DirectoryConfig.objects.filter(tenant_id=tenant_id).count() >= settings.DIRECTORIES_PER_TENANT:
            raise TooManyDirectories
        config.save(force_insert=True)
        record("directory.created", config)
    return DirectoryWithLastRun(config, None)


def update_directory(
    *,
    tenant_id: UUID,
    config_id: UUID,
    by: Principal,
    check: RowCheck = no_check,
    **changes: Unpack[DirectoryFields],
) -> DirectoryWithLastRun:
    """Change the given fields; `mapping` and `groups` are replaced as a whole.

    A change of the target (server, port, names) needs the secret again, as the stored one would otherwise be sent to the
    new server. That server decides who is in a mapped group, so the caller must hold all that the directory may grant
    (`reject_beyond`). Raises UnknownDirectory, DirectoryNameTaken, DirectoryBusy (a run would continue with the old
    target), UnknownClient, ValidationFailed, GrantsMoreThanHeld, DataKeyLocked, InsufficientAuthentication.
    """
    require_assurance(Action.CHANGE_CONNECTIONS, by)
    seen = config_of(tenant_id, config_id)  # 404 before any other check
    _reject_groups(tenant_id, by, changes.get("groups", {}))
    retargets = bool(RETARGETS & set(changes))
    if retargets:
        mapped = changes.get("groups", seen.groups)
        reject_beyond(by, tenant_id=tenant_id, config_id=config_id, groups=mapped.values())
    with unique_or(DirectoryNameTaken), transaction.atomic():
        config = _locked(tenant_id, config_id)
        check()
        if retargets and config.groups != seen.groups:
            raise DirectoryBusy("This directory was changed at the same moment. Read it again and retry.")
        if set(changes) - WHILE_RUNNING:
            if runs.is_running(config_id):
                raise DirectoryBusy
            # The delta link belongs to the old mapping and target.
            config.cursor = ""
        _set_target(config, changes)
        _set_options(config, changes)
        if "secret" in changes:
            _seal(config, changes["secret"])
        if "sync_every_minutes" in changes:
            config.next_run_at = now() if config.sync_every_minutes is not None else None
        config.save()
        record("directory.updated", config, changed=sorted(changes))
    return find_directory(tenant_id=tenant_id, config_id=config_id)


def delete_directory(*, tenant_id: UUID, config_id: UUID, by: Principal) -> None:
    """Delete a directory with its secret and its runs; its users stay unchanged.

    A new configuration that reads the same objects takes the users over, so the caller must hold all that they hold.
    Raises UnknownDirectory, DirectoryBusy, GrantsMoreThanHeld, InsufficientAuthentication.
    """
    require_assurance(Action.CHANGE_CONNECTIONS, by)
    config_of(tenant_id, config_id)
    reject_beyond(by, tenant_id=tenant_id, config_id=config_id, groups=())
    with transaction.atomic():
        config = _locked(tenant_id, config_id)
        if runs.is_running(config_id):
            raise DirectoryBusy
        record("directory.deleted", config)
        config.delete()


def list_runs(*, tenant_id: UUID, config_id: UUID, page: int, limit: int) -> Page:
    """Return one page of a directory's runs, newest first. Raises UnknownDirectory."""
    config_of(tenant_id, config_id)
    return page_of(DirectoryRun.objects.filter(config_id=config_id).order_by("-started_at", "-id"), page, limit)


def _with_last_runs(queryset: QuerySet[DirectoryConfig]) -> list[DirectoryWithLastRun]:
    newest = DirectoryRun.objects.filter(config=OuterRef("pk")).order_by("-started_at", "-id")
    configs = list(queryset.annotate(last_run_id=Subquery(newest.values("pk")[:1])))
    ids = [config.last_run_id for config in configs if config.last_run_id]
    last = DirectoryRun.objects.in_bulk(ids)
    return [DirectoryWithLastRun(config, last.get(config.last_run_id)) for config in configs]


def _locked(tenant_id: UUID, config_id: UUID) -> DirectoryConfig:
    rows = DirectoryConfig.objects.select_for_update(no_key=True)
    return first_or(rows.filter(pk=config_id, tenant_id=tenant_id), UnknownDirectory)


def _target(kind: str, present: Target, changes: DirectoryFields) -> Target:
    """Return the target after a change. A port that was never stated is the default of the TLS mode."""
    foreign = [
        name for other, names in TARGET.items() if other != kind for name in names if changes.get(name) is not None
    ]
    if foreign:
        raise ValidationFailed(details={name: [f"A directory of kind {kind} has no such field."] for name in foreign})
    # The fields that the kind requires are checked at its creation.
    target = cast(Target, {name: changes.get(name, present.get(name)) for name in TARGET[kind]})
    if kind == ENTRA_ID:
        target["cloud"] = target["cloud"] or "global"
        if target["cloud"] not in clouds():
            raise ValidationFailed(details={"cloud": [f"Send one of {', '.join(sorted(clouds()))}."]})
        return target
    target["tls"] = target["tls"] or ldap.LDAPS
    if target["tls"] == ldap.PLAIN and not settings.DIRECTORY_ALLOW_PLAIN_LDAP:
        raise ValidationFailed(
            details={"tls": ["LDAP without TLS is not allowed on this server. Send ldaps or starttls."]}
        )
    if changes.get("port") is None and (
        "port" in changes or present.get("port") == ldap.PORTS.get(present.get("tls", ""))
    ):
        target["port"] = ldap.PORTS[target["tls"]]
    target["ca_certificate"] = target["ca_certificate"] or ""
    try:
        reject_plainly_forbidden(target["server"])
    except DirectoryAddressRejected as error:
        raise DirectoryAddressRejected("server") from error
    return target


def _set_target(config: DirectoryConfig, changes: DirectoryFields) -> None:
    """Change the target. Raises ValidationFailed if it changes without a new secret."""
    target = _target(config.kind, config.target, changes)
    if target != config.target and "secret" not in changes:
        raise ValidationFailed(
            "The directory's target changes: enter the secret again.",
            details={"secret": ["Required with every change of " + ", ".join(TARGET[config.kind]) + "."]},
        )
    config.target = target


def _set_options(config: DirectoryConfig, fields: DirectoryFields) -> None:
    for field in OPTIONS & fields.keys():
        setattr(config, field, fields.get(field))
    config.mapping = DEFAULT_MAPPING | config.mapping
    if fields.get("client_id") is not None:
        client_of(config.tenant_id, fields["client_id"])


def _reject_groups(tenant_id: UUID, by: Principal, mapping: dict[str, str]) -> None:
    """Raise if a tenant group of the mapping does not exist, or grants what the caller does not hold."""
    if not mapping:
        return
    group_keys = {name.lower() for name in mapping.values()}
    with in_tenant(tenant_id, Purpose.READ):
        keys_by_id = dict(Group.objects.annotate(key=Lower("name")).filter(key__in=group_keys).values_list("pk", "key"))
        missing = group_keys - set(keys_by_id.values())
        if missing:
            says = [f"The tenant has no group {name!r}. Create it first." for name in sorted(missing)]
            raise ValidationFailed(details={"groups": says})
        carried = Role.objects.filter(groups__in=list(keys_by_id)).values_list("permissions", flat=True)
        require_grantable(by, {permission for permissions in carried for permission in permissions})


def _seal(config: DirectoryConfig, secret: str) -> None:
    config.secret = configs.seal_secret(secret, config)
    config.secret_set_at = now()
