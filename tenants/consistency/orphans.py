"""Databases that are listed nowhere: which of them may have the only data of a tenant."""

from tenants.database_servers import fences, marks
from tenants.failure_reasons import why
from tenants.models import DatabaseServer, Tenant
from tenants.states import State


class OrphanKept(Exception):
    """A database is not dropped: it may have the only data of a tenant. The text says why, for operators."""


def why_needed(server: DatabaseServer, name: str) -> str:
    """Return why a database that is listed nowhere may have a tenant's only data, for operators; empty if it does not.

    After a restore of the global database those look like that which tenants have got since.
    """
    try:
        mark = marks.read(server, name)
    except Exception as problem:
        return f"its mark cannot be read: {why(problem)}"
    if mark is None or mark.tenant_id is None:
        return ""
    if mark.installation != fences.stored_id():
        return f"it belongs to {mark.owner}"
    tenant = Tenant.objects.filter(pk=mark.tenant_id).select_related("database").first()
    if tenant is None:
        return (
            f"it belongs to {mark.tenant_id}, a tenant that the global database does not know, such as one that was created "
            "after the backup which the global database was restored from"
        )
    if tenant.database.status != State.DELETED:
        return (
            f"it belongs to the tenant {tenant.slug}, whose database is {tenant.database.name}; it may be the newer one"
        )
    return ""
