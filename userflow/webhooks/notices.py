"""Mails to the admins of a tenant about its webhooks."""

from uuid import UUID

from tenants.context import current_tenant
from tenants.target import TENANT_ALIAS
from userflow import mail
from userflow.accounts.models import AdminUser
from userflow.accounts.permissions_catalogue import TENANT_ADMIN
from userflow.events.models import WebhookEndpoint

MOST_RECIPIENTS = 20


def notify_admins(endpoint_id: UUID, reason: str) -> None:
    """Mail the admins of the entered tenant after the commit: the endpoint was disabled."""
    tenant = current_tenant()
    endpoint = WebhookEndpoint.objects.get(pk=endpoint_id)
    facts = {
        "tenant": tenant.name,
        "url": endpoint.url.partition("?")[0],
        "gone": reason == WebhookEndpoint.GONE,
        "since": endpoint.failing_since,
        "endpoint_id": endpoint_id,
    }
    admins = AdminUser.objects.filter(tenant_id=tenant.tenant_id, active=True, roles__name=TENANT_ADMIN)
    for address in admins.order_by("pk").values_list("email", flat=True)[:MOST_RECIPIENTS]:
        mail.tell("webhook_disabled", to=address, facts=facts, after=TENANT_ALIAS)
