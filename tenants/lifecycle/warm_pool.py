"""The warm pool: spare databases, so that creating a tenant needs no copy of the template."""

from collections.abc import Callable

from django.db.models import Count, Q

from tenants import job_steps, operating_modes
from tenants.copies import databases
from tenants.copies.database_names import new_database_name
from tenants.database_servers import fences, marks
from tenants.entering.schema import is_older, schema_version
from tenants.errors import JobRunning
from tenants.failure_reasons import why
from tenants.models import DatabaseServer, WarmDatabase

# The name of the task that calls `refill_all`.
REFILL = "refill_warm_pool"
# In place of the schema version: a spare that is not taken and not dropped, since it may be a tenant's database.
SET_ASIDE = "set aside"


def refill_all(size: int, *, until: Callable[[], bool] = lambda: False) -> tuple[int, list[str]]:
    """Fill the pool of every server that accepts tenants; return the number of databases created, and error messages.

    With full pools this is one statement. A failing server does not affect the others. `until` returns whether to stop.
    """
    ready = Count(
        "warm_databases", filter=Q(warm_databases__ready=True, warm_databases__schema_version=schema_version())
    )
    aside = Count("warm_databases", filter=Q(warm_databases__schema_version=SET_ASIDE))
    others = Count("warm_databases") - ready - aside
    taking = DatabaseServer.objects.filter(accepts_tenants=True).exclude(pk__in=operating_modes.closed_servers())
    short = taking.annotate(ready=ready, others=others)
    made, problems = 0, []
    for server in short.filter(Q(ready__lt=size) | Q(others__gt=0)):
        try:
            made += refill(server, size, until=until)
        except Exception as problem:
            problems.append(f"{server.name}: {why(problem)}")
    return made, problems


def refill(server: DatabaseServer, size: int, *, until: Callable[[], bool] = lambda: False) -> int:
    """Create spare databases until the server has `size` of this schema version; return how many were created.

    Drops spares of an older schema version and finishes unfinished ones. Does nothing if another process is doing the same.
    One failing spare does not stop the others; the first error is raised at the end. `until` returns whether to stop.
    """
    try:
        with databases.job_lock(server, databases.WARM_POOL_JOB, timeout=0) as raw:
            return _refill(raw, server, size, until)
    except JobRunning:
        return 0


def _refill(raw: databases.Raw, server: DatabaseServer, size: int, until: Callable[[], bool]) -> int:
    spares = WarmDatabase.objects.filter(server=server)
    failed: list[Exception] = []
    for spare in spares.exclude(schema_version=schema_version()):
        # Marked first: an older release that still runs may be claiming it.
        if is_older(spare.schema_version) and spares.filter(pk=spare.pk).update(ready=False):
            try:
                installation, _ = fences.own_mark()
                if databases.exists(raw, spare.name) and marks.owner_of_spare(server, spare.name, installation):
                    set_aside(spare.name)
                    continue
                databases.drop(raw, spare.name)
                spare.delete()
            except Exception as problem:
                failed.append(problem)
    current = spares.filter(schema_version=schema_version())
    made = 0
    for spare in current.filter(ready=False):
        if until():
            break
        try:
            made += _copy_spare(raw, server, spare)
        except Exception as problem:
            failed.append(problem)
    while not until() and current.filter(ready=True).count() < size:
        made += _copy_spare(raw, server, _reserve_spare(server))
    if failed:
        raise failed[0]
    return made


def set_aside(database: str) -> None:
    """Keep a spare from being taken or dropped. `check_tenants` names it."""
    WarmDatabase.objects.filter(name=database).update(ready=False, schema_version=SET_ASIDE)


def _copy_spare(raw: databases.Raw, server: DatabaseServer, spare: WarmDatabase) -> int:
    copy(raw, server, spare.name)
    WarmDatabase.objects.filter(pk=spare.pk).update(ready=True)
    return 1


def _reserve_spare(server: DatabaseServer) -> WarmDatabase:
    spare = WarmDatabase.objects.create(server=server, name=new_database_name(), schema_version=schema_version())
    job_steps.completed("reserved")
    return spare


def copy(raw: databases.Raw, server: DatabaseServer, database: str) -> None:
    """Copy the template and set its timeouts. Can be repeated."""
    databases.copy_template(raw, server, database)
    job_steps.completed("copied")
    databases.set_limits(raw, database)
    job_steps.completed("limited")
