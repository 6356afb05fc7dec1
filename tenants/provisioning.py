"""Making, repairing and dropping tenant databases. Every job can be killed anywhere and run again.

The mapping row comes first: it is the promise that the database's name belongs to the tenant. A database is copied from
a migrated template (STRATEGY wal_log), or claimed from the warm pool of ready-made ones, and counts only when the
mapping says `active`.
"""

import re
import secrets
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Count, F
from django.utils.crypto import get_random_string
from psycopg import sql

from identity_platform.audit.writer import record_for_platform
from tenants import keys, routes, servers
from tenants.backend.base import POOL
from tenants.context import Place
from tenants.errors import NoRoom, SlugTaken, UnknownTenant, WrongState
from tenants.models import DatabaseServer, DataKey, Tenant, TenantDatabase, WarmDatabase
from tenants.schema import schema_version, upgrade
from tenants.states import FOLLOWS, State

TEMPLATE_LOCK = 7_215_001
Furnish = Callable[[Tenant], None]


def after_step(step: str) -> None:
    """Called with the name of the step that has just ended: where the tests kill the process."""


def slug_of(name: str) -> str:
    """A slug from a name: ASCII, lower case, words joined by dashes, at most 50 characters."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:50].strip("-") or "tenant"


def new_database_name() -> str:
    """A name that says nothing about the tenant and never comes twice."""
    return f"{settings.TENANT_DATABASE_PREFIX}{get_random_string(16, 'abcdefghijklmnopqrstuvwxyz0123456789')}"


def template_name() -> str:
    """The template database of this code's schema version."""
    return f"{settings.TENANT_DATABASE_PREFIX}template_{schema_version().replace('-', '_')}"


def main_server() -> DatabaseServer:
    """The server of the global database; its row is made at first use."""
    host = settings.DATABASES["default"]["HOST"] or "localhost"
    # A socket's directory is a path of this machine: answers show the name instead.
    shown = "localhost" if host.startswith("/") else host
    server, _ = DatabaseServer.objects.get_or_create(name=servers.MAIN, defaults={"host": shown})
    return server


def _server_with_room(name: str | None) -> DatabaseServer:
    candidates = DatabaseServer.objects.filter(accepts_tenants=True)
    if name is not None:
        candidates = candidates.filter(name=name)
    elif candidates.count() == 1:
        return candidates.get()
    # The count is only looked at where there is a choice; it is one index scan a server.
    roomiest = (
        candidates.annotate(held=Count("databases")).annotate(room=F("capacity") - F("held")).order_by("-room").first()
    )
    if roomiest is None or roomiest.room <= 0:
        raise NoRoom(f"There is no server {name!r} with room." if name else None)
    return roomiest


# --- template and warm pool ------------------------------------------------------------------------------------------


@contextmanager
def _administering(server: DatabaseServer) -> "Iterator[psycopg.Connection[Any]]":
    with servers.maintenance(server) as raw:
        yield raw


def _exists(raw: "psycopg.Connection[Any]", database: str) -> bool:
    return raw.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database]).fetchone() is not None


def _drop(raw: "psycopg.Connection[Any]", database: str) -> None:
    POOL.close_idle(database)
    if _exists(raw, database):
        raw.execute(sql.SQL("ALTER DATABASE {} WITH IS_TEMPLATE false").format(sql.Identifier(database)))
        raw.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))


def _set_limits(raw: "psycopg.Connection[Any]", database: str) -> None:
    # On the database, not on the connection: it holds behind a pooler, and nothing has to be SET per connection.
    for name, value in (
        ("statement_timeout", f"{settings.TENANT_STATEMENT_TIMEOUT_MS}ms"),
        ("lock_timeout", f"{settings.TENANT_STATEMENT_TIMEOUT_MS}ms"),
        ("idle_in_transaction_session_timeout", "30s"),
        ("timezone", "UTC"),
    ):
        raw.execute(
            sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                sql.Identifier(database), sql.Identifier(name), sql.Literal(value)
            )
        )


def ensure_template(server: DatabaseServer) -> str:
    """Make the server's template database of this schema version unless it is there; gives its name.

    It is migrated under another name and renamed when it is whole, so a half-made one is never copied. Nobody may
    connect to it, so copying is never refused because somebody is in it.
    """
    name = template_name()
    with _administering(server) as raw:
        if _exists(raw, name):
            return name
        raw.execute("SELECT pg_advisory_lock(%s)", [TEMPLATE_LOCK])
        if _exists(raw, name):
            return name
        making = f"{name}_making"
        _drop(raw, making)
        raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(making)))
        upgrade(Place(server.pk, server.revision, making, direct=True))
        raw.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(making), sql.Identifier(name)))
        raw.execute(
            sql.SQL("ALTER DATABASE {} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false").format(sql.Identifier(name))
        )
    return name


def _copy_template(server: DatabaseServer, database: str) -> None:
    template = ensure_template(server)
    with _administering(server) as raw:
        if not _exists(raw, database):
            raw.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY wal_log").format(
                    sql.Identifier(database), sql.Identifier(template)
                )
            )
        after_step("copied")
        _set_limits(raw, database)
    after_step("limited")


def refill_warm_pool(server: DatabaseServer, size: int) -> int:
    """Make ready-made databases until `size` of this schema version wait on the server; gives how many were made.

    Spare ones of an older schema version are dropped.
    """
    for old in WarmDatabase.objects.filter(server=server).exclude(schema_version=schema_version()):
        with _administering(server) as raw:
            _drop(raw, old.name)
        old.delete()
    missing = size - WarmDatabase.objects.filter(server=server, schema_version=schema_version(), ready=True).count()
    for _ in range(max(0, missing)):
        spare = WarmDatabase.objects.create(server=server, name=new_database_name(), schema_version=schema_version())
        _copy_template(server, spare.name)
        WarmDatabase.objects.filter(pk=spare.pk).update(ready=True)
    return max(0, missing)


def _claim_warm(server: DatabaseServer) -> str | None:
    """Take one ready-made database out of the pool, inside the caller's transaction; none if none waits."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM tenants_warmdatabase WHERE id = (SELECT id FROM tenants_warmdatabase"
            " WHERE ready AND server_id = %s AND schema_version = %s ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)"
            " RETURNING name",
            [server.pk, schema_version()],
        )
        row = cursor.fetchone()
    return row[0] if row else None


# --- a tenant's database ---------------------------------------------------------------------------------------------


def create_tenant(
    *,
    name: str,
    slug: str | None = None,
    tenant_settings: dict[str, Any] | None = None,
    server: str | None = None,
    furnish: Furnish = lambda tenant: None,
) -> Tenant:
    """Make a tenant with a database of its own, ready when this returns.

    Takes the name, optionally a slug (made from the name else), settings and the server's name. `furnish` puts into the
    same transaction what must exist with the tenant (its default client, its first admin). A tenant of this slug whose
    making was interrupted is finished. Refuses with SlugTaken or NoRoom.
    """
    stated = slug is not None
    slug = slug or slug_of(name)
    unfinished = TenantDatabase.objects.filter(tenant__slug__iexact=slug, status=State.PROVISIONING).first()
    if unfinished is not None and stated:
        return finish_provisioning(tenant_id=unfinished.tenant_id, furnish=furnish)
    chosen = _server_with_room(server)
    with transaction.atomic():
        tenant = _insert_tenant(name, slug, stated, tenant_settings or {})
        keys.make(str(tenant.pk))
        warm = _claim_warm(chosen)
        mapping = TenantDatabase(
            tenant=tenant,
            server=chosen,
            name=warm or new_database_name(),
            schema_version=schema_version() if warm else "",
            status=State.ACTIVE if warm else State.PROVISIONING,
        )
        mapping.save(force_insert=True)
        tenant.database = mapping
        record_for_platform("tenant.created", tenant_id=tenant.pk, target=("tenant", tenant.pk))
        if warm:
            furnish(tenant)
            return tenant
    after_step("mapped")
    return finish_provisioning(tenant_id=tenant.pk, furnish=furnish)


def _insert_tenant(name: str, slug: str, stated: bool, tenant_settings: dict[str, Any]) -> Tenant:
    for attempt in range(8):
        try:
            with transaction.atomic():
                candidate = slug if attempt == 0 else f"{slug}-{secrets.token_hex(2)}"
                return Tenant.objects.create(name=name, slug=candidate, settings=tenant_settings)
        except IntegrityError as clash:
            # Only a slug that we made ourselves may be varied.
            if stated:
                raise SlugTaken from clash
    raise SlugTaken


def finish_provisioning(*, tenant_id: UUID, furnish: Furnish = lambda tenant: None) -> Tenant:
    """Go on with a tenant that is not active yet, from whatever step it reached; harmless when it is done.

    Raises UnknownTenant, and the database server's errors as they come.
    """
    mapping = TenantDatabase.objects.select_related("tenant", "server").filter(pk=tenant_id).first()
    if mapping is None:
        raise UnknownTenant
    if mapping.status == State.PROVISIONING:
        _copy_template(mapping.server, mapping.name)
        # A database that was copied before a crash may be of an older schema than the code that finishes it.
        upgrade(Place(mapping.server_id, mapping.server.revision, mapping.name, direct=True))
        after_step("verified")
        with transaction.atomic():
            done = TenantDatabase.objects.filter(pk=tenant_id, status=State.PROVISIONING).update(
                status=State.ACTIVE, schema_version=schema_version(), reason=""
            )
            if done:
                furnish(mapping.tenant)
        after_step("activated")
    mapping.refresh_from_db()
    routes.forget()
    tenant: Tenant = mapping.tenant
    tenant.database = mapping
    return tenant


def change_state(tenant_id: UUID, to: State, *, reason: str = "", only_from: State | None = None) -> TenantDatabase:
    """Move a mapping to another state if the table of states allows it; WrongState if not, UnknownTenant if unknown."""
    sources = [state for state, following in FOLLOWS.items() if to in following and only_from in (None, state)]
    moved = TenantDatabase.objects.filter(pk=tenant_id, status__in=sources).update(status=to, reason=reason)
    mapping = TenantDatabase.objects.select_related("tenant", "server").filter(pk=tenant_id).first()
    if mapping is None or (mapping.status == State.DELETED and to != State.DELETED):
        raise UnknownTenant
    if not moved and mapping.status != to:
        raise WrongState(f"The tenant is {mapping.status}: it cannot become {to}.")
    routes.forget()
    return mapping


def suspend_tenant(*, tenant_id: UUID) -> TenantDatabase:
    """Switch a tenant off from the next request on; its data is kept. Refuses with UnknownTenant, WrongState."""
    mapping = change_state(tenant_id, State.SUSPENDED)
    record_for_platform("tenant.suspended", tenant_id=tenant_id, target=("tenant", tenant_id))
    return mapping


def resume_tenant(*, tenant_id: UUID) -> TenantDatabase:
    """Switch a suspended tenant on again. Refuses with UnknownTenant, WrongState."""
    mapping = change_state(tenant_id, State.ACTIVE, only_from=State.SUSPENDED)
    record_for_platform("tenant.resumed", tenant_id=tenant_id, target=("tenant", tenant_id))
    return mapping


def delete_tenant(*, tenant_id: UUID) -> None:
    """Drop a tenant's database and all that the global database holds of it; the row stays as a tombstone.

    Can be run again after a crash at any step. Refuses with UnknownTenant, WrongState.
    """
    mapping = TenantDatabase.objects.select_related("tenant", "server").filter(pk=tenant_id).first()
    if mapping is None or mapping.status == State.DELETED:
        raise UnknownTenant
    if mapping.status == State.ACTIVE:
        change_state(tenant_id, State.SUSPENDED)
    if mapping.status != State.DELETING:
        change_state(tenant_id, State.DELETING)
    after_step("deleting")
    with _administering(mapping.server) as raw:
        _drop(raw, mapping.name)
    after_step("dropped")
    tenant = mapping.tenant
    with transaction.atomic():
        for relation in Tenant._meta.related_objects:
            if relation.related_model is not TenantDatabase:
                relation.related_model._base_manager.filter(**{relation.field.name: tenant}).delete()
        # Without its data key whatever is left in a backup stays closed.
        DataKey.objects.filter(owner=str(tenant_id)).delete()
        # The slug becomes free; the name of a customer is not kept.
        Tenant.objects.filter(pk=tenant_id).update(slug=f"deleted-{tenant_id}", name="deleted", settings={})
        TenantDatabase.objects.filter(pk=tenant_id).update(status=State.DELETED, reason="")
        record_for_platform("tenant.deleted", tenant_id=tenant_id, target=("tenant", tenant_id))
    keys.forget(str(tenant_id))
    routes.forget()
