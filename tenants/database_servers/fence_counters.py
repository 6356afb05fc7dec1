"""Tell database servers what the installation does: the counters of a server's mark, which the global database raises first."""

import psycopg
from django.db.models import F
from django.db.models.expressions import Combinable
from django.db.models.functions import Greatest

from tenants.database_servers import queries, servers
from tenants.database_servers.fences import (
    ServerMark,
    database_of_marks,
    is_missing,
    look,
    mark_at,
    mark_in,
    own_mark,
    parameters_of_mark,
    read_mark,
    require,
    set_mark,
)
from tenants.errors import InstallationFenced, ServerUnfit
from tenants.models import DatabaseServer, Installation


def reject_foreign(raw: servers.Connection, name: str) -> None:
    """Raise ServerUnfit if a server that an operator adds belongs to another installation."""
    installation, epoch = own_mark()
    parameters = raw.info.get_parameters() | {"password": raw.info.password, "dbname": database_of_marks()}
    mark = mark_at({option: value for option, value in parameters.items() if value})
    if mark is not None and (mark.installation != installation or mark.epoch > epoch):
        raise ServerUnfit(
            f"The database server {name} belongs to another installation, or to another copy of this one. Two installations on "
            "one server need different values of TENANT_DATABASE_PREFIX."
        )


def enroll(server: DatabaseServer) -> None:
    """Mark a server that an operator has added."""
    if (mark := read_mark(server)) is not None:
        # It was this installation's before, and removed.
        DatabaseServer.objects.filter(pk=server.pk).update(fence_revision=mark.revision, fence_beats=mark.beats)
    set_mark(server, Installation.objects.get())


def advance(server: DatabaseServer) -> None:
    """Raise the revision before a database on the server is created, taken, moved or deleted: first here, then there.

    Raises InstallationFenced; psycopg.OperationalError if the server does not respond.
    """
    _raise(server, "fence_revision")


def beat(server: DatabaseServer) -> None:
    """Tell the server that the installation uses it, at each check. Raises like `advance`."""
    _raise(server, "fence_beats")


def _raise(server: DatabaseServer, column: str) -> None:
    require()
    is_revision, row = column == "fence_revision", None
    try:
        with servers.connect_for_maintenance(parameters_of_mark(server)) as raw:
            # Before the global database is read, which is raised first.
            mark = mark_in(raw) if is_revision else None
            row = _raised_here(server, column, mark)
            installation, epoch = own_mark()
            if queries.raise_counters(raw, row, installation=installation, epoch=epoch, if_higher=is_revision):
                return
    except psycopg.errors.UndefinedTable:
        pass
    except psycopg.OperationalError as problem:
        if not is_missing(problem, database_of_marks()):
            raise
    if row is None:
        _raised_here(server, column, None)
    # A server without a mark gets one, with the counters as they are now. Or another process has raised it further.
    _look_again()


def _raised_here(server: DatabaseServer, column: str, mark: ServerMark | None) -> queries.Counters:
    """Raise a counter in the global database; return both. Raises InstallationFenced if the server's revision is higher."""
    rows = DatabaseServer.objects.filter(pk=server.pk)
    raised: Combinable = F(column)
    if mark is not None:
        if mark.revision > rows.values_list("fence_revision", flat=True).get():
            _look_again()
        # Several rows of servers may lead to one, whose mark has the highest of their revisions.
        raised = Greatest(raised, mark.revision)
    rows.update(**{column: raised + 1})
    return queries.Counters(*rows.values_list("fence_revision", "fence_beats").get())


def _look_again() -> None:
    if fence_reasons := look(again=True):
        raise InstallationFenced(" ".join(fence_reasons))
