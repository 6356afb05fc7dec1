"""What a tenant's database has of the tenant and its clients, and interruptions of changes."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connection

from identity_platform.api.errors import Unavailable
from tenants.entering.context import in_tenant
from tenants.models import TenantRecord
from tenants.records.tenant_records import TENANTS
from tenants.states import Purpose
from tests.tenants.conftest import connect_to
from tests.world import TestTenant
from userflow.accounts.client_records import CLIENTS
from userflow.accounts.models import TenantClient


def differing(tenant: TestTenant) -> list[str]:
    """Return the copies in the tenant's database that differ from the global rows."""
    with in_tenant(tenant.id, Purpose.INSPECT):
        return [str(found) for projection in (TENANTS, CLIENTS) for found in projection.differences(tenant.id)]


def record_of(tenant: TestTenant) -> TenantRecord:
    with in_tenant(tenant.id, Purpose.INSPECT):
        return TenantRecord.objects.get()


def client_copies(tenant: TestTenant) -> dict[str, TenantClient]:
    with in_tenant(tenant.id, Purpose.INSPECT):
        return {str(copy.pk): copy for copy in TenantClient.objects.all()}


def is_back(tenant: TestTenant) -> bool:
    """Whether the database that was gone accepts connections. A pooler tries it again after some seconds only."""
    try:
        record_of(tenant)
    except (OperationalError, Unavailable):
        return False
    return True


@contextmanager
def sessions_locked(tenant: TestTenant) -> Iterator[None]:
    """Lock the sessions of end users: a client can be changed, and its sessions cannot follow yet."""
    with connect_to(tenant.row) as raw, raw.transaction():
        raw.execute("LOCK TABLE userflow_endusersession IN ACCESS EXCLUSIVE MODE")
        yield


@contextmanager
def commits_fail(table: str) -> Iterator[None]:
    """Let each global transaction that changes the table fail at its commit, when the tenant's database has the change."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION fail_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$"
            " BEGIN RAISE EXCEPTION 'interrupted' USING ERRCODE = 'serialization_failure'; END $$"
        )
        cursor.execute(
            f"CREATE CONSTRAINT TRIGGER fail_at_commit AFTER INSERT OR UPDATE OR DELETE ON {table} DEFERRABLE"
            f" INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail_at_commit()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TRIGGER fail_at_commit ON {table}")
            cursor.execute("DROP FUNCTION fail_at_commit()")
