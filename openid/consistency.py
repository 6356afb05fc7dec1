"""What `check_consistency` compares of consents (`tenants.consistency`)."""

from collections.abc import Collection, Iterable
from typing import Final
from uuid import UUID

from openid.models import Consent
from tenants.consistency.findings import Finding
from tenants.consistency.references import Reference, find_missing
from userflow.accounts.client_records import CLIENT_DELETED
from userflow.accounts.models import Client
from userflow.consistency import CLIENT_LOST, CREATE_AGAIN


def _delete_consents(ids: Collection[str]) -> int:
    return Consent.objects.filter(client_id__in=ids).delete()[0]


# Ids in the tenant's database of rows in the global one.
REFERENCES: Final = (
    Reference(
        Consent,
        "client_id",
        Client,
        "consents to lost client",
        CLIENT_LOST,
        f"--repair deletes them. {CREATE_AGAIN}",
        deleted=CLIENT_DELETED,
        created="updated_at",
        repair=_delete_consents,
    ),
)


def examine(tenant_id: UUID | None) -> Iterable[Finding]:
    """Return what is found about the entered tenant."""
    return [] if tenant_id is None else list(find_missing(REFERENCES, tenant_id))
