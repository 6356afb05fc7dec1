"""Mails to the admins of a tenant about what decides over its users."""

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from django.utils.timezone import now

from identity_platform.audit.origin import current_origin
from tenants.entering import lookup
from userflow.accounts.models import AdminUser
from userflow.accounts.principals import ADMIN, CLIENT, END_USER, OPERATOR, Principal
from userflow.mail.queue import queue_mail

MACHINE: Final = "a command on the server"
_KINDS: Final = {OPERATOR: "operator", ADMIN: "admin user", CLIENT: "application", END_USER: "user"}


def actor_name(by: Principal | None) -> str:
    """Return how mails name the caller. None is a command on the machine."""
    if by is None:
        return MACHINE
    return f"the {_KINDS[by.kind]} {by.user.get('username') or by.user.get('name') or by.id}"


def notify_admins(template: str, *, tenant_id: UUID, by: str, facts: Mapping[str, object]) -> None:
    """Mail the tenant's active admins once the running transaction of the global database is committed."""
    known: dict[str, object] = {
        "tenant": lookup.find_row(tenant_id).name,
        "who": by,
        "moment": f"{now():%Y-%m-%d %H:%M} UTC",
        "address": current_origin().address,
    }
    for email in AdminUser.objects.filter(tenant_id=tenant_id, active=True).values_list("email", flat=True):
        queue_mail(template, to=email, facts={**known, **facts}, after="default", tenant_id=tenant_id)


def notify_of_routes(*, tenant_id: UUID, by: Principal | None, what: str, fields: Collection[str] = ()) -> None:
    """Tell the tenant's admins that something changed which decides where tokens, codes or links of its users are sent."""
    facts = {"what": what, "fields": ", ".join(sorted(fields))}
    notify_admins("routes_changed", tenant_id=tenant_id, by=actor_name(by), facts=facts)
