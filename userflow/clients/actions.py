"""Clients: for now the default one that comes with every tenant."""

from uuid import UUID

from userflow.clients.models import PUBLIC, Client

DEFAULT_CLIENT = "Default client"


def make_default_client(tenant_id: UUID) -> Client:
    """The client that every tenant begins with: public, open for self-registration, not deletable."""
    return Client.objects.create(
        tenant_id=tenant_id, name=DEFAULT_CLIENT, type=PUBLIC, is_default=True, self_registration=True
    )
