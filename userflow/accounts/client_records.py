"""Clients: what the tenant's database has in `TenantClient`, and changes of them."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import ClassVar, Final
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet

from identity_platform.audit.models import PlatformEvent
from tenants.models import GlobalCopy, TenantDatabase
from tenants.records.projections import Projection
from userflow.accounts.client_fields import ClientFields
from userflow.accounts.models import Client, TenantClient
from userflow.errors import UnknownClient

CLIENT_DELETED: Final = "client.deleted"
_COLUMNS: Final = tuple(column.attname for column in ClientFields._meta.local_fields if not column.primary_key)


class ClientProjection(Projection[Client]):
    """Clients."""

    copy_model: ClassVar[type[GlobalCopy]] = TenantClient

    def rows_of(self, tenant_id: UUID) -> QuerySet[Client]:
        return Client.objects.select_related("tenant__database__server").filter(tenant_id=tenant_id)

    def mapping(self, row: Client) -> TenantDatabase:
        return row.tenant.database

    def key(self, row: Client) -> object:
        return row.pk

    def columns(self, row: Client) -> dict[str, object]:
        return {name: getattr(row, name) for name in _COLUMNS}

    def apply(self, tenant_id: UUID, *, direct: bool = False, newer: bool = False) -> int:
        """Write the copies; with `newer` also end all tokens that clients have of their own.

        What was revoked is in the database that was restored or overwritten, and not in the one that is used from now on.
        """
        with transaction.atomic():
            if newer:
                clients = Client.objects.filter(tenant_id=tenant_id)
                clients.update(generation=F("generation") + 1, revision=F("revision") + 1)
            return super().apply(tenant_id, direct=direct, newer=newer)

    def deleted(self, keys: Collection[object]) -> Collection[object]:
        targets = {str(key): key for key in keys}
        events = PlatformEvent.objects.filter(action=CLIENT_DELETED, target_id__in=targets) if targets else ()
        return {targets[event.target_id] for event in events if event.target_id}


CLIENTS: Final = ClientProjection()


@contextmanager
def changing_client(tenant_id: UUID, client_id: UUID, *, may_lag: bool = False) -> Iterator[Client]:
    """Open the global transaction that changes or deletes a client of the tenant; yield the client, locked.

    Every change of a client except the time of its last use is in this one. A new client is saved in `CLIENTS.changing`. See
    there. Raises UnknownClient.
    """
    with CLIENTS.changing(tenant_id, client_id, may_lag=may_lag) as client:
        if client is None:
            raise UnknownClient
        yield client
