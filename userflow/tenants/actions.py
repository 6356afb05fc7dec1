"""Tenants for operators: create with database, default client and admin; change, suspend, delete."""

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from identity_platform.api.errors import NotAllowed, ValidationFailed
from identity_platform.api.pagination import Page, filtered, page_of
from identity_platform.audit.differences import differences
from identity_platform.audit.writer import record_for_platform
from identity_platform.postgresql.row_errors import first_or, unique_or
from identity_platform.row_checks import RowCheck, no_check
from tenants.addresses import former_slugs
from tenants.addresses.webauthn_claims import claim
from tenants.entering import lookup
from tenants.errors import NotConfirmed, SlugNotConfirmed, SlugTaken, UnknownTenant, WrongRegion
from tenants.lifecycle import provisioning, slugs
from tenants.lifecycle.capacity import check_region, region_of
from tenants.lifecycle.final_backups import Deletion
from tenants.models import DatabaseServer, Tenant, TenantDatabase
from tenants.records.tenant_records import changing_tenant
from tenants.settings.declarations import SETTINGS, EffectiveSettings
from tenants.settings.values import merged
from tenants.signals import tenant_settings_changing
from tenants.states import State
from userflow.accounts.admin_notices import notify_of_routes
from userflow.accounts.models import AdminUser, Client
from userflow.accounts.principals import OPERATOR, Principal
from userflow.accounts.rank import EVERYTHING, require_reach
from userflow.admins.actions import create_admin_user
from userflow.events import wakeups
from userflow.sessions.assurance import Action, require_assurance

ROUTING: Final = (
    "These settings decide where links of the users' mails lead, or where their passkeys are used. Only an admin with all "
    "permissions of the role tenant-admin, or an operator with them, can change them."
)
SLUG = re.compile(r"[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class NewTenant:
    """A new tenant, with its first admin if requested."""

    tenant: Tenant
    client_id: UUID
    admin: AdminUser | None = None


def open_tenant(
    *,
    name: str,
    slug: str | None = None,
    tenant_settings: Mapping[str, object] | None = None,
    server: str | None = None,
    server_labels: Sequence[str] = (),
    admin: Mapping[str, str] | None = None,
    by: Principal | None = None,
) -> NewTenant:
    """Create a tenant with its database, its default client and optionally its first admin.

    `by` is None for a command, and for a job of the console, whose start has asked. `admin` holds `username`, `email`,
    `password`. Calling it again with the same slug finishes an interrupted creation. Raises SlugTaken, NoRoom, WrongRegion,
    RelyingPartyTaken, ValidationFailed, AdminNameTaken, EmailTaken, WeakPassword, GrantsMoreThanHeld (a setting that routes
    mails, by a caller who could not change it).
    """
    _check_slug(slug)
    if _routed({}, tenant_settings or {}):
        require_reach(by, EVERYTHING, ROUTING)
    first_admin: list[AdminUser] = []

    def create_admin(tenant: Tenant) -> None:
        if admin is not None:
            user, _ = create_admin_user(
                tenant_id=tenant.pk, username=admin["username"], email=admin["email"], password=admin["password"]
            )
            first_admin.append(user)

    initial_settings = merged({}, tenant_settings or {})
    _check_region_exists(region_of(initial_settings))
    tenant = provisioning.create_tenant(
        name=name,
        slug=slug,
        tenant_settings=initial_settings,
        server=server,
        server_labels=server_labels,
        initialize=create_admin,
    )
    client = Client.objects.only("pk").get(tenant=tenant, is_default=True)
    return NewTenant(tenant, client.pk, *first_admin)


def _check_slug(slug: str | None) -> None:
    if slug is None:
        return
    if SLUG.fullmatch(slug) is None:
        raise ValidationFailed(
            details={"slug": ["Use 1 to 50 characters: a-z, 0-9 and dashes, not starting or ending with a dash."]}
        )
    if slugs.is_reserved(slug):
        raise ValidationFailed(details={"slug": ["This slug is reserved for commands. Choose another one."]})


def _check_region_exists(region: str | None) -> None:
    if region is None:
        return
    regions = DatabaseServer.objects.exclude(region="").values_list("region", flat=True).distinct().order_by("region")
    if region not in regions:
        said = f"No database server is in the region {region}. Regions: {', '.join(regions) or 'none'}."
        raise ValidationFailed(details={"settings.region": [said]})


def generated_password() -> str:
    """Return a password of 120 random bits for a first sign-in."""
    return secrets.token_urlsafe(15)


def list_tenants(
    *, page: int, limit: int, name: str | None = None, slug: str | None = None, status: str | None = None
) -> Page:
    """Return tenants that are not deleted, newest first.

    `name` matches a part of the name, `slug` the whole slug, both case-insensitively; `status` is a state of the tenant's
    database.
    """
    # Slugs are lower-case.
    exact = slug.lower() if slug is not None else None
    matching = filtered(_existing(), name__icontains=name, slug=exact, database__status=status)
    return page_of(matching.order_by("-created_at", "id"), page, limit)


def find_tenant(*, tenant_id: UUID) -> Tenant:
    """Return one tenant with its database. Raises UnknownTenant."""
    return _found(_existing(), tenant_id)


def _found(tenants: "QuerySet[Tenant]", tenant_id: UUID) -> Tenant:
    return first_or(tenants.filter(pk=tenant_id), UnknownTenant)


def default_clients(tenants: Collection[Tenant]) -> dict[UUID, UUID]:
    """Return the ids of the default clients by tenant id."""
    return dict(Client.objects.filter(tenant__in=tenants, is_default=True).values_list("tenant_id", "pk"))


def _existing() -> "QuerySet[Tenant]":
    return Tenant.objects.select_related("database__server").exclude(database__status=State.DELETED)


def read_settings(*, tenant_id: UUID) -> tuple[dict[str, object], EffectiveSettings]:
    """Return the tenant's own settings, and every setting with its effective value. Raises UnknownTenant."""
    tenant = lookup.find(tenant_id)
    return tenant.settings, tenant.effective


def update_tenant(*, tenant_id: UUID, by: Principal, changes: dict[str, Any], check: RowCheck = no_check) -> Tenant:
    """Change `name`, `slug`, `status` (active or suspended) and `settings` (merged; null restores a default).

    `reason` goes with the status suspended and is in the audit event. A tenant's own admin can change only some settings.
    A new slug needs `confirm`, the present one: it changes the issuer. Settings, slug and status need a recent proof. Settings
    that decide where links of mails lead, and the slug, which does so too, can be changed by those who hold everything in the
    tenant, and its admins are told. Raises UnknownTenant, SlugTaken, SlugNotConfirmed, RelyingPartyTaken, ValidationFailed
    (also if enrolled factors depend on a setting), WrongState, InsufficientAuthentication, NotAllowed, GrantsMoreThanHeld.
    """
    changes = dict(changes)
    confirm = changes.pop("confirm", "")
    status, setting_changes, reason = (changes.pop(name, None) for name in ("status", "settings", "reason"))
    if by.kind != OPERATOR and (changes or status is not None):
        raise NotAllowed("Only operators can change more than the settings of a tenant.")
    if setting_changes is not None:
        require_assurance(Action.CHANGE_TENANT_SETTINGS, by)
    if status is not None:
        require_assurance(Action.CHANGE_TENANT_STATE, by)
    _check_slug(changes.get("slug"))
    if changes.get("slug") is not None:
        _check_slug_change(tenant_id, changes["slug"], confirm=confirm, by=by)
    _check_status(status, reason)
    # Its lock prevents lost updates of concurrent changes.
    with unique_or(SlugTaken), changing_tenant(tenant_id) as tenant:
        check()
        before = {"slug": tenant.slug, "name": tenant.name, **tenant.settings}
        routed = _routed(before, {**changes, **(setting_changes or {})})
        if routed:
            require_reach(by, EVERYTHING, ROUTING)
        if "slug" in changes and changes["slug"] != tenant.slug:
            former_slugs.change(tenant, changes["slug"])
        if "name" in changes:
            tenant.name = changes["name"]
        if setting_changes is not None:
            settings = merged(tenant.settings, setting_changes, by_operator=by.kind == OPERATOR)
            tenant_settings_changing.send(sender=Tenant, tenant_id=tenant_id, before=tenant.settings, after=settings)
            claim(tenant_id, before=tenant.settings, after=settings)
            if region_of(settings) != region_of(tenant.settings):
                _check_place(tenant_id, region_of(settings))
            tenant.settings = settings
        tenant.save()
        if changes or setting_changes:
            record_for_platform(
                "tenant.updated",
                tenant_id=tenant_id,
                target=("tenant", tenant_id),
                details=differences(
                    before,
                    {"slug": tenant.slug, "name": tenant.name, **tenant.settings},
                    [*changes, *(setting_changes or {})],
                ),
            )
        if routed:
            notify_of_routes(tenant_id=tenant_id, by=by, what="A setting", fields=routed)
    lookup.forget()
    # A reason is audited also for a tenant that is suspended already.
    if status is not None and (reason or TenantDatabase.objects.get(pk=tenant_id).status != status):
        _set_status(tenant_id, status, by=by, reason=reason or "")
    return find_tenant(tenant_id=tenant_id)


def _routed(before: Mapping[str, object], changes: Mapping[str, object]) -> set[str]:
    """Return the changed fields and settings that decide where tokens of the tenant's users are sent."""
    routes = {"slug", *(name for name, setting in SETTINGS.items() if setting.routes)}
    return {name for name in routes & changes.keys() if changes[name] != before.get(name)}


def _check_slug_change(tenant_id: UUID, slug: str, *, confirm: str, by: Principal | None) -> None:
    """Raise unless the caller may change the issuer of the tenant, and says so."""
    present = find_tenant(tenant_id=tenant_id).slug
    if slug == present:
        return
    require_assurance(Action.CHANGE_TENANT_STATE, by)
    require_reach(by, EVERYTHING, ROUTING)
    if confirm != present:
        raise SlugNotConfirmed


def change_slug(*, tenant_id: UUID, slug: str, confirm: str, by: Principal | None = None) -> Tenant:
    """Give a tenant another slug, and with it another issuer. `confirm` is the present slug; `by` is None for a command.

    The former slug stays reserved to the tenant: its pages redirect, and its keys stay published. Its metadata, its other
    endpoints and its tokens are not valid any more. Raises UnknownTenant, SlugTaken, SlugNotConfirmed, ValidationFailed,
    InsufficientAuthentication, GrantsMoreThanHeld.
    """
    _check_slug(slug)
    _check_slug_change(tenant_id, slug, confirm=confirm, by=by)
    with unique_or(SlugTaken), changing_tenant(tenant_id) as tenant:
        if slug != tenant.slug:
            former = former_slugs.change(tenant, slug)
            record_for_platform(
                "tenant.updated",
                tenant_id=tenant_id,
                target=("tenant", tenant_id),
                details=differences({"slug": former}, {"slug": slug}, ["slug"]),
            )
            notify_of_routes(tenant_id=tenant_id, by=by, what="A setting", fields=["slug"])
    lookup.forget()
    return find_tenant(tenant_id=tenant_id)


def applications_of(*, tenant_id: UUID) -> list[tuple[str, UUID]]:
    """Return name and id of the tenant's active clients, which are configured with its issuer."""
    return list(Client.objects.filter(tenant_id=tenant_id, active=True).order_by("name").values_list("name", "pk"))


def _set_status(tenant_id: UUID, status: str, *, by: Principal, reason: str) -> None:
    if status == State.ACTIVE:
        resume_tenant(tenant_id=tenant_id, by=by)
    else:
        suspend_tenant(tenant_id=tenant_id, by=by, reason=reason)


def _check_status(status: str | None, reason: str | None) -> None:
    if status not in (None, State.ACTIVE, State.SUSPENDED):
        raise ValidationFailed(details={"status": ["Send active or suspended."]})
    if reason is not None and status != State.SUSPENDED:
        raise ValidationFailed(details={"reason": ["Send it with the status suspended."]})


def _check_place(tenant_id: UUID, region: str | None) -> None:
    # A move locks the tenant's row as the caller does; a change of the server's region locks the server's.
    server = DatabaseServer.objects.select_for_update().get(databases=tenant_id)
    try:
        check_region(server, region)
    except WrongRegion as problem:
        raise ValidationFailed(details={"settings.region": [f"{problem.text} Move it first."]}) from problem


def suspend_tenant(*, tenant_id: UUID, by: Principal, reason: str = "") -> None:
    """Suspend a tenant; applies at the next request. Raises UnknownTenant, WrongState, InsufficientAuthentication.

    `reason` is in the audit event. The deliverer then ends the sessions of applications that receive logout tokens.
    """
    require_assurance(Action.CHANGE_TENANT_STATE, by)
    provisioning.suspend_tenant(tenant_id=tenant_id, reason=reason)
    if lookup.find(tenant_id).has_webhooks:
        wakeups.wake(tenant_id)


def resume_tenant(*, tenant_id: UUID, by: Principal) -> None:
    """Resume a suspended tenant. Raises UnknownTenant, WrongState, InsufficientAuthentication."""
    require_assurance(Action.CHANGE_TENANT_STATE, by)
    provisioning.resume_tenant(tenant_id=tenant_id)


def remove_tenant(*, tenant_id: UUID, confirm: str, final_backup: bool = True, by: Principal | None = None) -> Deletion:
    """Delete a tenant; `confirm` must be its slug. Return until when its final backup is kept.

    `by` is None for a command, and for a job of the console, whose start has asked. Raises UnknownTenant, NotConfirmed,
    WrongState, InsufficientAuthentication, and CopyFailed or ProgramMissing if that backup cannot be written.
    """
    require_assurance(Action.CHANGE_TENANT_STATE, by)
    tenant = find_tenant(tenant_id=tenant_id)
    if confirm != tenant.slug:
        raise NotConfirmed
    return provisioning.delete_tenant(tenant_id=tenant_id, final_backup=final_backup)
