"""What whoever points a directory somewhere, or runs it, must hold: all that it may give, and all whom it may become.

The server decides who is in a mapped group, and which address each linked person has. So a directory that is pointed at a
server of one's own gives its groups' permissions to anybody, and signs in as whomever whose address it states.
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
    """GrantsMoreThanHeld (403) unless the caller holds what the tenant's groups of these names carry and what the people
    hold that the directory has, or may take over from directories that are no more."""
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
