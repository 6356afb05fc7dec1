"""The two ways out of a fence (`tenants.database_servers.fences`): adopt the installation, or detach this copy of it.

Adopting says that this global database is the installation now. Its epoch rises on every server and in every tenant's
database, so another copy of the global database is fenced from then on. Detaching says that this is a copy, for a test: it gets
an identity of its own and forgets the servers of the original, without a connection to them that writes.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from uuid import UUID, uuid4

import psycopg
from django.db import transaction

from identity_platform.audit.writer import record_for_platform
from tenants.copies.databases import drop, end_sessions, names, template_prefix
from tenants.database_servers import fences, marks, servers
from tenants.errors import UnknownServer, WrongState
from tenants.failure_reasons import why
from tenants.jobs.parallel import on_each_server
from tenants.jobs.relocation import copy_of
from tenants.lifecycle import warm_pool
from tenants.models import DatabaseServer, Installation, Tenant, TenantDatabase, WarmDatabase
from tenants.states import State


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a server and the global database disagree. `database` is empty for the server itself."""

    server: str
    database: str
    message: str


@dataclass(frozen=True, slots=True)
class Adoption:
    """What `adopt` found, and did unless it was a dry run."""

    differences: list[Difference]
    epoch: int
    # Tenants whose database has the new epoch.
    renewed: int = 0


def adopt(*, dry_run: bool = False, progress: Callable[[str], None] = lambda line: None) -> Adoption:
    """Make this global database the installation's: with its servers as they are, and a higher epoch on all of them.

    Databases that it does not know are left alone and named. Spares that belong to a tenant are set aside. Connections to
    tenants' databases are ended, so that processes of other copies notice it. Can be repeated.
    Raises WrongState if a server belongs to an installation with another id: that is not a restore of this one.
    """
    present = list(DatabaseServer.objects.filter(detached=False).order_by("name"))
    marks_by_server = fences.read_marks(present)
    installation = Installation.objects.first()
    known = {mark.installation for mark in marks_by_server.values() if mark is not None}
    foreign = known - {installation.pk} if installation is not None else set(sorted(known)[1:])
    if foreign:
        raise WrongState(
            "A database server belongs to an installation with another id, so this is not a restore of it. Use "
            "detach_installation."
        )
    differences = [difference for server in present for difference in _on_server(server, marks_by_server)]
    epoch = (
        max([installation.epoch if installation else 0, *(mark.epoch for mark in marks_by_server.values() if mark)]) + 1
    )
    if dry_run:
        return Adoption(differences, epoch)
    installation_id = installation.pk if installation else next(iter(known), uuid4())
    _adopt_globally(installation_id, epoch, marks_by_server)
    for server in present:
        if server.pk in marks_by_server:
            fences.set_mark(server, Installation.objects.get())
            progress(f"{server.name} has epoch {epoch}.")
    fences.look(again=True)
    renewed = _renew_tenants(progress)
    record_for_platform("installation.adopted", details={"epoch": epoch, "differences": len(differences)})
    return Adoption(differences, epoch, renewed)


def _adopt_globally(installation_id: UUID, epoch: int, marks_by_server: dict[int, fences.ServerMark | None]) -> None:
    with transaction.atomic():
        Installation.objects.update_or_create(
            one=True, defaults={"id": installation_id, "epoch": epoch, "home": fences.home()}
        )
        for server in DatabaseServer.objects.select_for_update().filter(pk__in=marks_by_server):
            mark = marks_by_server[server.pk]
            if mark is not None:
                # Ahead of every copy of the global database, the one that the servers know included.
                server.fence_revision = max(server.fence_revision, mark.revision) + 1
                server.fence_beats = max(server.fence_beats, mark.beats) + fences.TOLERATED_BEATS + 1
                server.save(update_fields=["fence_revision", "fence_beats"])
        for spare in WarmDatabase.objects.select_related("server").filter(server__in=marks_by_server):
            if _owner(spare):
                warm_pool.set_aside(spare.name)


def _renew_tenants(progress: Callable[[str], None]) -> int:
    mappings = TenantDatabase.objects.select_related("server", "tenant").filter(server__detached=False)
    renewed = 0
    for slug, problem in on_each_server(list(mappings.exclude(status=State.DELETED)), 2, _renew):
        renewed += not problem
        if problem:
            progress(f"{slug} {problem}")
    return renewed


def _renew(mapping: TenantDatabase) -> tuple[str, str]:
    try:
        marks.renew(mapping.server, mapping.name, mapping.pk)
    except Exception as problem:
        # A lower epoch is accepted. The other tenants are renewed all the same.
        return mapping.tenant.slug, f"keeps its former epoch: {why(problem)}"
    # Running processes of another copy compare the epoch only when they connect.
    try:
        with servers.maintenance(mapping.server) as raw:
            ended = end_sessions(raw, mapping.name)
    except psycopg.Error as problem:
        return mapping.tenant.slug, f"may still be used by another copy: {why(problem)}"
    return mapping.tenant.slug, "" if ended else "may still be used by another copy: its sessions do not end"


def _owner(spare: WarmDatabase) -> str:
    """Return which tenant's a spare or copy is, empty if it is no tenant's. One that cannot be read counts as a tenant's."""
    try:
        mark = marks.read(spare.server, spare.name)
        if mark is not None and mark.tenant_id is not None:
            mapping = TenantDatabase.objects.select_related("server").filter(pk=mark.tenant_id).first()
            # The copy that a move or restore was about to switch to, or the database that it has switched from.
            is_copy = copy_of(spare) == mark.tenant_id
            return "" if is_copy and mapping and _exists(mapping) else f"it belongs to {mark.owner}"
        users = marks.number_of_users(spare.server, spare.name)
    except psycopg.OperationalError as problem:
        return "" if fences.is_missing(problem, spare.name) else f"it cannot be read: {why(problem)}"
    return f"it has {users} users" if users else ""


def _exists(mapping: TenantDatabase) -> bool:
    with servers.maintenance(mapping.server) as raw:
        return mapping.name in names(raw)


def _on_server(server: DatabaseServer, marks_by_server: dict[int, fences.ServerMark | None]) -> Iterator[Difference]:
    difference = partial(Difference, server.name)
    if server.pk not in marks_by_server:
        yield difference("", "it does not respond: run this again when it does")
        return
    if (mark := marks_by_server[server.pk]) is not None and mark.revision > server.fence_revision:
        number = mark.revision - server.fence_revision
        yield difference("", f"{number} created, moved or deleted databases are missing in the global database")
    mappings = {
        mapping.name: mapping
        for mapping in TenantDatabase.objects.select_related("tenant")
        .filter(server=server)
        .exclude(status=State.DELETED)
    }
    spares = {spare.name: spare for spare in WarmDatabase.objects.select_related("server").filter(server=server)}
    with servers.maintenance(server) as raw:
        existing = names(raw)
    for name in sorted(existing):
        if name not in mappings and name not in spares and not name.startswith(template_prefix()):
            yield difference(name, f"the global database does not know it: {_described(server, name)}")
    for name, spare in sorted(spares.items()):
        if name in existing and (owner := _owner(spare)):
            yield difference(name, f"it is listed as a spare, and {owner}; it is set aside")
    for name, mapping in sorted(mappings.items()):
        if name not in existing:
            yield difference(
                name, f"the database of {mapping.tenant.slug} is missing: it was moved, restored or deleted since"
            )
        elif message := _ahead(server, mapping):
            yield difference(name, message)


def _described(server: DatabaseServer, database: str) -> str:
    try:
        mark, users = marks.read(server, database), marks.number_of_users(server, database)
    except Exception as problem:
        return f"it cannot be read: {why(problem)}"
    if mark is None or mark.tenant_id is None:
        return f"it has no tenant's mark and {users} users"
    tenant = Tenant.objects.filter(pk=mark.tenant_id).first()
    whose = f"the tenant {tenant.slug}" if tenant else f"a tenant that it does not know, {mark.tenant_id}"
    return f"it belongs to {whose} and has {users} users"


def _ahead(server: DatabaseServer, mapping: TenantDatabase) -> str:
    try:
        mark = marks.read(server, mapping.name)
    except Exception as problem:
        return f"the database of {mapping.tenant.slug} cannot be read: {why(problem)}"
    if mark is None:
        return f"the database of {mapping.tenant.slug} has no mark"
    if mark.tenant_id != mapping.pk:
        return f"the database of {mapping.tenant.slug} belongs to {mark.owner}"
    if (installation := Installation.objects.first()) is None or mark.epoch > installation.epoch:
        return f"the database of {mapping.tenant.slug} is ahead: it has epoch {mark.epoch}"
    return ""


# --- a copy for a test -----------------------------------------------------------------------------------------------


def servers_to_detach(keep: Collection[str] = ()) -> list[DatabaseServer]:
    """Return the servers that `detach` forgets: those of an installation, and those whose mark cannot be read now.

    Raises UnknownServer for a name in `keep`.
    """
    present = list(DatabaseServer.objects.filter(detached=False).order_by("name"))
    if unknown := set(keep) - {server.name for server in present}:
        raise UnknownServer(f"No database server is named {', '.join(sorted(unknown))}.")
    marks_by_server = fences.read_marks(present)
    marked = [
        server for server in present if server.pk not in marks_by_server or marks_by_server[server.pk] is not None
    ]
    return [server for server in marked if server.name not in keep]


def detach(*, keep: Collection[str] = ()) -> list[DatabaseServer]:
    """Make this copy an installation of its own, without the servers of the original; return these.

    They are only read. Their tenants respond with 503 here, until they are restored on other servers. Servers in `keep` were
    copied too: their databases get the new installation's marks. Raises UnknownServer.
    """
    detached = servers_to_detach(keep)
    with transaction.atomic():
        former = Installation.objects.select_for_update().first()
        Installation.objects.all().delete()
        epoch = former.epoch + 1 if former else 1
        Installation.objects.create(id=uuid4(), epoch=epoch, home=fences.home())
        for server in detached:
            server.detached, server.accepts_tenants = True, False
            server.revision += 1
            if server.name != servers.MAIN:
                # Forgotten, not only unused.
                server.url_sealed, server.admin_url_sealed = b"", None
            server.save()
        record_for_platform(
            "installation.detached",
            details={"former": str(former.pk) if former else None, "servers": [server.name for server in detached]},
        )
    for server in DatabaseServer.objects.filter(name__in=keep):
        fences.set_mark(server, Installation.objects.get())
    fences.look(again=True)
    for server in DatabaseServer.objects.filter(name__in=keep):
        _take_over(server, former)
    return detached


def _take_over(server: DatabaseServer, former: Installation | None) -> None:
    """Mark the databases of a copied server as this installation's. Its templates and spares are made again."""
    for mapping in TenantDatabase.objects.filter(server=server).exclude(status=State.DELETED):
        mark = marks.read(server, mapping.name)
        if mark is not None and mark.tenant_id == mapping.pk and former is not None and mark.installation == former.pk:
            marks.stamp(server, mapping.name, mapping.pk)
    with servers.maintenance(server) as raw:
        for spare in WarmDatabase.objects.select_related("server").filter(server=server):
            if _owner(spare):
                warm_pool.set_aside(spare.name)
            else:
                drop(raw, spare.name)
                spare.delete()
        for name in names(raw):
            if name.startswith(template_prefix()):
                drop(raw, name)
