"""Export services, with their secrets only on request; each exported secret is audited as read."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import transaction

from identity_platform.audit.writer import record_for_each_on_platform, record_for_platform
from identity_platform.postgresql.transactions import read_one_snapshot
from registry import actions, models
from registry.models import ACTIVE, Secret, Service, ServiceCredential
from registry.transfer.importing import CREDENTIAL, SERVICES

AT_ONCE = 200
# What an import reads.
COLUMNS: Final = tuple(name for name in SERVICES.fields if name != "kind")


def export_services(*, tenant_id: UUID, credentials: bool, secrets: bool) -> Iterator[dict[str, object]]:
    """Yield every service as a row, with `credentials` followed by the rows of its credentials, from one snapshot.

    With `secrets` the rows of active ones hold the plain secret, audited before the row is yielded. A secret that does not
    open is left out and audited too. Raises DataKeyLocked.
    """
    # In a transaction of its own, so that the event stays if the export fails.
    record_for_platform(
        "services.exported", tenant_id=tenant_id, target=("tenant", tenant_id), details={"secrets": secrets}
    )
    with transaction.atomic():
        read_one_snapshot("default", read_only=False)
        # The first page has no lower bound, as an import may state any id, even the lowest.
        left = Service.objects.filter(tenant_id=tenant_id).order_by("pk")
        behind = left
        while rows := list(behind[:AT_ONCE]):
            bound = _credentials(tenant_id, rows, secrets=secrets) if credentials else {}
            for row in rows:
                yield {name: _plain(getattr(row, name)) for name in COLUMNS}
                yield from bound.get(row.pk, [])
            behind = left.filter(pk__gt=rows[-1].pk)


def _credentials(tenant_id: UUID, services: list[Service], *, secrets: bool) -> dict[UUID, list[dict[str, object]]]:
    names = {service.pk: service.name for service in services}
    rows = list(ServiceCredential.objects.filter(service_id__in=names).order_by("service_id", "created_at", "pk"))
    opened: dict[UUID, Secret] = {}
    if secrets:
        opened, shut = actions.opened_secrets(tenant_id, [row for row in rows if row.status == ACTIVE])
        for action, ids, outcome in (
            ("service_credential.read", list(opened), "success"),
            ("service_credential.unreadable", shut, "failed"),
        ):
            if ids:
                record_for_each_on_platform(
                    action,
                    tenant_id=tenant_id,
                    kind=models.CREDENTIAL,
                    ids=ids,
                    outcome=outcome,
                    details={"via": "export"},
                )
    credentials: dict[UUID, list[dict[str, object]]] = {}
    for row in rows:
        credentials.setdefault(row.service_id, []).append(
            {
                "kind": CREDENTIAL,
                "service": names[row.service_id],
                "name": row.name,
                "type": row.type,
                "status": row.status,
                "secret": opened.get(row.pk),
                "metadata": row.metadata,
                "expires_at": _plain(row.expires_at),
                "created_at": _plain(row.created_at),
            }
        )
    return credentials


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else (None if value == "" else value)
