"""Where a user comes from and signs in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.frame.access import Staff
from console.frame.records import Text
from identity_platform.audit.models import TenantEvent
from tenants.models import Tenant
from userflow.accounts.models import LOCAL, EndUser
from userflow.directory.models import ACTIVE_DIRECTORY, ENTRA_ID, DirectoryConfig, DirectoryLink
from userflow.invitations.models import EndUserInvitation

METHODS: Final[Mapping[str, Text]] = {
    LOCAL: _("Password on this platform"),
    ACTIVE_DIRECTORY: _("Active Directory"),
    ENTRA_ID: _("Microsoft Entra ID"),
}
# The registration is among the first events about a user.
FIRST_EVENTS: Final = 20


@dataclass(frozen=True, slots=True)
class Source:
    """The identity source of a user, with a link to it for readers who may open it, and the method of signing in."""

    name: Text
    method: Text
    link: str = ""
    # A directory has deactivated the user, and may activate the user again.
    has_deactivated: bool = False


def source_of(user: EndUser, *, tenant: Tenant, staff: Staff) -> Source:
    """Return where a user of the entered tenant comes from."""
    method = METHODS.get(user.provider, user.provider)
    linked = DirectoryLink.objects.filter(user=user).first()
    if linked is None:
        return Source(_registration(user), method)
    config = DirectoryConfig.objects.filter(pk=linked.config_id, tenant_id=tenant.pk).first()
    if config is None:
        return Source(_("A deleted directory"), method, has_deactivated=linked.switched_off)
    name = _("Directory %(name)s") % {"name": config.name}
    link = reverse("admin:directory", args=[config.pk]) if staff.may("directory:read") else ""
    return Source(name, method, link, linked.switched_off)


def _registration(user: EndUser) -> Text:
    if user.self_registered:
        return _("Self-registration")
    if EndUserInvitation.objects.filter(user_id=user.pk).exists():
        return _("Invitation")
    first = TenantEvent.objects.filter(target_id=str(user.pk)).order_by("id")[:FIRST_EVENTS]
    if TenantEvent.objects.filter(pk__in=first.values("pk"), action="end_user.registered").exists():
        return _("Added by an administrator")
    # Imports leave no event of each user, and old events are deleted.
    return _("Import, or registered long ago")
