"""Send logout tokens to applications (OpenID Connect Back-Channel Logout 1.0), from the outbox of the webhooks.

`userflow.events.logouts` queues them. A token is signed when it is sent, because it is valid for two minutes only.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode, urlsplit
from uuid import UUID

import orjson

from identity_platform.audit.writer import record_for_tenant
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.entering.lookup import TenantContext
from tenants.states import Purpose, State
from userflow.accounts.models import Client
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.clients.models import PendingClientChange
from userflow.events.models import DEAD, PENDING, WebhookEndpoint, WebhookMessage
from userflow.sessions import id_tokens
from userflow.sessions.ending import end_found
from userflow.webhooks.queue import Message, PendingEndpoint, queue_again

FORM: Final = "application/x-www-form-urlencoded"
# The application has read the request and rejects it (section 2.8), or is gone. A retry would not end otherwise.
FINAL: Final = (400, 410)


def receives_logout_tokens(tenant_id: UUID) -> bool:
    """Return whether a client of the tenant has a logout address."""
    return Client.objects.filter(tenant_id=tenant_id).exclude(backchannel_logout_uri="").exists()


def hosts(tenant_id: UUID, endpoints: Sequence[PendingEndpoint]) -> dict[UUID, str]:
    """Return the host of each endpoint's address; of an application that of its client's, or of the kept one."""
    application_ids = [endpoint.endpoint_id for endpoint in endpoints if not endpoint.url]
    clients = Client.objects.filter(tenant_id=tenant_id, pk__in=application_ids).values_list(
        "pk", "backchannel_logout_uri"
    )
    addresses = dict(clients) if application_ids else {}
    return {
        endpoint.endpoint_id: urlsplit(endpoint.url or addresses.get(endpoint.endpoint_id, "")).hostname or ""
        for endpoint in endpoints
    }


def request_of(message: Message, *, tenant: TenantContext, client_id: UUID) -> tuple[str, bytes, dict[str, str]]:
    """Return the address, the body and the headers of a logout request (section 2.5), with a new token.

    The address is empty if the client has none any more. A deactivated or deleted client is told too: that has ended the
    sessions. Raises what `signing.signer` and `in_tenant` raise.
    """
    address, algorithm = _receiver(tenant.tenant_id, client_id)
    if not address:
        return "", b"", {}
    ended = orjson.loads(message.body)
    token = id_tokens.logout_token(
        tenant=tenant,
        client_id=client_id,
        user_id=UUID(ended["sub"]),
        session_id=UUID(ended["sid"]),
        algorithm=algorithm,
    )
    return address, urlencode({"logout_token": token}).encode(), {"Content-Type": FORM}


def _receiver(tenant_id: UUID, client_id: UUID) -> tuple[str, str]:
    """Return the client's logout address and algorithm; of a deleted client those that were kept."""
    columns = ("backchannel_logout_uri", "id_token_signed_response_alg")
    receiver = Client.objects.filter(pk=client_id, tenant_id=tenant_id).values_list(*columns).first()
    if receiver is None:
        # In this order: the note goes after the address is kept.
        noted = PendingClientChange.objects.filter(pk=client_id, tenant_id=tenant_id)
        receiver = noted.values_list("backchannel_logout_uri", "signed_response_alg").first()
    if receiver is None:
        with in_tenant(tenant_id, Purpose.SIGN_OUT):
            stored_endpoints = WebhookEndpoint.objects.filter(pk=client_id, client_id=client_id)
            receiver = stored_endpoints.values_list("url", "signed_response_alg").first()
    return receiver or ("", "")


def end_sessions_before_resuming(sender: object, *, tenant_id: UUID, **_: object) -> None:
    """End the sessions that a suspension ends before the tenant is resumed, in case no deliverer has looked meanwhile.

    Receiver of `tenant_resuming`. Raises what `in_tenant` raises.
    """
    with in_tenant(tenant_id, Purpose.SIGN_OUT) as tenant:
        end_sessions_of_suspended(tenant)


def end_sessions_of_suspended(tenant: TenantContext) -> None:
    """End the sessions of applications that keep one of their own, so that a suspension applies there too.

    The other sessions continue when the tenant is resumed. Call it in the tenant.
    """
    if tenant.status is State.SUSPENDED:
        sessions = EndUserSession._default_manager.filter(backchannel_logout=True)
        end_found(END_USERS, sessions, reason="tenant_suspended")


def list_deliveries(
    *, tenant_id: UUID, client_id: UUID, limit: int, purpose: Purpose = Purpose.READ
) -> Sequence[WebhookMessage]:
    """Return the latest logout tokens of the client, newest first. Raises UnknownTenant, TenantSuspended, TenantBusy."""
    with in_tenant(tenant_id, purpose):
        messages = WebhookMessage.objects.filter(endpoint_id=client_id).order_by("-pk")
        return list(messages.defer("body", "attempt_log")[:limit])


def retry_deliveries(*, tenant_id: UUID, client_id: UUID) -> int:
    """Send the client's dead and waiting logout tokens again at once; return how many.

    Each counts as new: it is retried for as long as the first time. Raises UnknownTenant, TenantSuspended, TenantBusy.
    """
    with in_tenant(tenant_id), tenant_atomic():
        endpoints = WebhookEndpoint.objects.filter(pk=client_id, client_id=client_id)
        # The address may be another by now: the failures belong to the old one.
        endpoints.update(paused_until=None, failing_since=None)
        number = queue_again(WebhookMessage.objects.filter(endpoint_id=client_id, status__in=[DEAD, PENDING]))
        record_for_tenant("client.logouts_retried", target=("client", client_id), details={"messages": number})
    return number
