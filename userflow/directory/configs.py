"""What configuring and running a directory share: look-ups, audit events, the check of permissions, the sealed secret.

The target is part of the seal's context. Otherwise an attacker who can write to the table, but holds no key, could change
the server's address and receive the secret.
"""

from collections.abc import Collection
from hashlib import sha256
from typing import Final
from uuid import UUID

import orjson
from django.db.models import Q
from django.db.models.functions import Lower

from identity_platform.audit.writer import record_for_platform
from identity_platform.crypto import SealContext, seal, unseal
from identity_platform.postgresql.row_errors import first_or
from tenants import keys
from tenants.entering.context import in_tenant
from tenants.states import Purpose
from userflow.accounts.models import Client, Group, Role, RoleBinding
from userflow.accounts.principals import Principal
from userflow.accounts.rank import require_grantable
from userflow.directory.models import DirectoryConfig, DirectoryLink
from userflow.errors import UnknownClient, UnknownDirectory

DIRECTORY: Final = "directory"


def config_of(tenant_id: UUID, config_id: UUID) -> DirectoryConfig:
    """Return the tenant's configuration with this id. Raises UnknownDirectory."""
    return first_or(DirectoryConfig.objects.filter(pk=config_id, tenant_id=tenant_id), UnknownDirectory)


def client_of(tenant_id: UUID, client_id: UUID | None) -> UUID:
    """Return the client of new users, by default the tenant's default client. Raises UnknownClient."""
    clients = Client.objects.filter(tenant_id=tenant_id)
    clients = clients.filter(is_default=True) if client_id is None else clients.filter(pk=client_id)
    return first_or(clients.values_list("pk", flat=True), UnknownClient)


def record(action: str, config: DirectoryConfig, outcome: str = "success", **details: object) -> None:
    """Write one event about a directory to the platform's audit log."""
    record_for_platform(
        action, tenant_id=config.tenant_id, target=(DIRECTORY, config.pk), outcome=outcome, details=details
    )


def reject_beyond(by: Principal, *, tenant_id: UUID, config_id: UUID, groups: Collection[str]) -> None:
    """Raise GrantsMoreThanHeld (403) unless the caller holds all that the directory may grant.

    The directory server decides who is in a mapped group and which address each linked user has. A caller who points a
    directory at a server of their own could therefore grant its groups' permissions to anyone and take over any linked user.
    That is what the named groups grant, and what the directory's users hold, including users of deleted directories.
    """
    others = list(
        DirectoryConfig.objects.filter(tenant_id=tenant_id).exclude(pk=config_id).values_list("pk", flat=True)
    )
    with in_tenant(tenant_id, Purpose.READ):
        group_keys = {name.lower() for name in groups}
        mapped = Group.objects.annotate(key=Lower("name")).filter(key__in=group_keys)
        people = DirectoryLink.objects.exclude(config_id__in=others).values("user")
        carried = Role.objects.filter(
            Q(pk__in=Role.objects.filter(groups__in=mapped.values("pk")).values("pk"))
            | Q(pk__in=RoleBinding.objects.filter(user__in=people).values("role"))
            | Q(pk__in=Role.objects.filter(groups__memberships__user__in=people).values("pk"))
        )
        require_grantable(
            by, {permission for granted in carried.values_list("permissions", flat=True) for permission in granted}
        )


def _context(config: DirectoryConfig) -> SealContext:
    digest = sha256(orjson.dumps(config.target, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return SealContext(
        tenant=str(config.tenant_id), table="userflow_directoryconfig", column="secret", row=f"{config.pk}/{digest}"
    )


def seal_secret(secret: str, config: DirectoryConfig) -> bytes:
    """Seal a secret for the configuration and its target (AES-256-GCM under the tenant's data key). Raises DataKeyLocked."""
    return seal(secret.encode(), data_key=keys.tenant_key(config.tenant_id), context=_context(config))


def open_secret(config: DirectoryConfig) -> str:
    """Open the configuration's secret.

    Raises SealBroken if it was altered or entered for another target, and DataKeyLocked.
    """
    sealed = bytes(config.secret)
    return unseal(sealed, data_key=keys.tenant_key(config.tenant_id), context=_context(config)).decode()
