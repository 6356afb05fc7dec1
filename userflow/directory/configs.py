"""Look-ups and audit events that configuring and running a directory share."""

from typing import Final
from uuid import UUID

from identity_platform.audit.writer import record_for_platform
from userflow.accounts.models import Client
from userflow.directory.errors import UnknownDirectory
from userflow.directory.models import DirectoryConfig
from userflow.errors import UnknownClient

DIRECTORY: Final = "directory"


def config_of(tenant_id: UUID, config_id: UUID) -> DirectoryConfig:
    """Return the tenant's configuration with this id. Raises UnknownDirectory."""
    config = DirectoryConfig.objects.filter(pk=config_id, tenant_id=tenant_id).first()
    if config is None:
        raise UnknownDirectory
    return config


def client_of(tenant_id: UUID, client_id: UUID | None) -> UUID:
    """Return the client of new users, by default the tenant's default client. Raises UnknownClient."""
    found = Client.objects.filter(tenant_id=tenant_id)
    found = found.filter(is_default=True) if client_id is None else found.filter(pk=client_id)
    known = found.values_list("pk", flat=True).first()
    if known is None:
        raise UnknownClient
    return known


def record(action: str, config: DirectoryConfig, outcome: str = "success", **details: object) -> None:
    """Write one event about a directory to the platform's audit log."""
    record_for_platform(
        action, tenant_id=config.tenant_id, target=(DIRECTORY, config.pk), outcome=outcome, details=details
    )
