"""What the index of end users holds, for tests of everything that creates, changes or deletes end users."""

from contextlib import suppress
from uuid import UUID

from tenants.errors import UnknownTenant
from tests.world import TestTenant
from userflow.user_index.entries import deliver, digest_of
from userflow.user_index.models import IndexedEndUser


def indexed(tenant: TestTenant, email: str) -> list[UUID]:
    """Return the ids of the tenant's end users that the index has with this address, once it was delivered."""
    # A deleted tenant has nothing to deliver.
    with suppress(UnknownTenant):
        deliver(tenant.id)
    rows = IndexedEndUser.objects.filter(tenant_id=tenant.id, digest=digest_of(email.lower()))
    return list(rows.values_list("user_id", flat=True))
