"""Permissions that a caller needs to change the target of a directory, or to run it.

The directory server decides who is in a mapped group and which address each linked user has. A caller who points a
directory at a server of their own could therefore grant its groups' permissions to anyone and take over any linked user.
"""

from collections.abc import Collection
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Lower

from tenants.context import in_tenant
from tenants.states import Purpose
from userflow.accounts.models import Group, Role, RoleBinding
from userflow.accounts.principals import Principal
from userflow.accounts.rank import require_grantable
from userflow.directory.models import DirectoryConfig, DirectoryLink


def reject_beyond(by: Principal, *, tenant_id: UUID, config_id: UUID, groups: Collection[str]) -> None:
    """Raise GrantsMoreThanHeld (403) unless the caller holds all that the directory may grant.

    That is what the named groups grant, and what the directory's users hold, including users of deleted directories.
    """
    others = list(
        DirectoryConfig.objects.filter(tenant_id=tenant_id).exclude(pk=config_id).values_list("pk", flat=True)
    )
    with in_tenant(tenant_id, Purpose.READ):
        wanted = {name.lower() for name in groups}
        mapped = Group.objects.annotate(key=Lower("name")).filter(key__in=wanted)
        people = DirectoryLink.objects.exclude(config_id__in=others).values("user")
        carried = Role.objects.filter(
            Q(pk__in=Role.objects.filter(groups__in=mapped.values("pk")).values("pk"))
            | Q(pk__in=RoleBinding.objects.filter(user__in=people).values("role"))
            | Q(pk__in=Role.objects.filter(groups__memberships__user__in=people).values("pk"))
        )
        require_grantable(
            by, {permission for held in carried.values_list("permissions", flat=True) for permission in held}
        )
