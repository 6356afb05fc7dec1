"""Ids without a foreign key: `check_consistency` compares each, or the table below says why it does not."""

from collections.abc import Iterator

from django.apps import apps
from django.db.models import Field, UUIDField

import openid.consistency
import userflow.consistency
from tenants.consistency.references import Reference
from tenants.entering.router import lives_in_tenant
from tenants.entering.schema import own_apps

COMPARED: tuple[Reference, ...] = (*userflow.consistency.REFERENCES, *openid.consistency.REFERENCES)

EXPIRES = "ends by itself within minutes or days, and is of no use without what it refers to"
SAME = "in the same database, and written or deleted in the same transaction"
LOG = "history: what it refers to may be gone"
COUNTER = "a counter, which is compared with the rows that it counts"
INDEX = "compared as `index of end users`"
NO_ID = "a random value or an id of another system, not of a row"
UNCHECKED = {
    "audit.ChainHead.owner": "compared as `audit chain`",
    "audit.PlatformEvent.actor_id": LOG,
    "audit.PlatformEvent.request_id": NO_ID,
    "audit.PlatformEvent.target_id": LOG,
    "audit.PlatformEvent.tenant_id": LOG,
    "audit.PlatformSeal.from_id": SAME,
    "audit.PlatformSeal.to_id": SAME,
    "audit.TenantEvent.actor_id": LOG,
    "audit.TenantEvent.request_id": NO_ID,
    "audit.TenantEvent.target_id": LOG,
    "audit.TenantSeal.from_id": SAME,
    "audit.TenantSeal.to_id": SAME,
    "console.Job.tenant_id": LOG,
    "console.TenantFigures.last_event_id": "compared as `metrics ahead of audit log`",
    "mfa.AdminChallenge.client_id": EXPIRES,
    "mfa.AdminPasskey.aaguid": NO_ID,
    "mfa.AdminPasskey.credential_id": NO_ID,
    "mfa.AdminPasskey.rp_id": "the platform's CONSOLE_RP_ID",
    "mfa.EndUserChallenge.client_id": EXPIRES,
    "mfa.EndUserPasskey.aaguid": NO_ID,
    "mfa.EndUserPasskey.credential_id": NO_ID,
    "mfa.EndUserPasskey.rp_id": "compared as `passkeys of unknown domain`",
    "openid.AuthorizationCode.client_id": EXPIRES,
    "openid.AuthorizationRequest.client_id": EXPIRES,
    "openid.DeviceCode.client_id": EXPIRES,
    "registry.ServiceCount.tenant_id": COUNTER,
    "registry.ServiceImport.holder": NO_ID,
    "tenants.ConnectionLease.process": NO_ID,
    "tenants.TenantRecord.installation": "compared when a connection is opened (`tenants.database_servers.marks`)",
    "tenants.TenantRecord.tenant_id": "compared when a connection is opened (`tenants.database_servers.marks`)",
    "tenants.DataKey.owner": "compared as `data key` and `data key without tenant`",
    "tenants.DataKey.ring_key_id": "ENCRYPTION_KEYS, compared as `data key`",
    "userflow.AdminAttempts.subject": EXPIRES,
    "userflow.AdminEmailProof.session_id": SAME,
    "userflow.AdminInvitation.invited_by_id": SAME,
    "userflow.AdminInvitation.user_id": SAME,
    "userflow.AdminSession.client_id": "always null",
    "userflow.AdminTicket.client_id": "always null",
    "userflow.AdminTicket.session_id": SAME,
    "tenants.JournaledRevocation.tenant_id": "the tenant may be deleted; purge_expired deletes the entry with its data key",
    "userflow.Client.owner_id": "free text",
    "userflow.Client.project_id": "free text",
    "userflow.DirectoryConfig.client_id": SAME,
    "userflow.DirectoryConfig.running": EXPIRES,
    "userflow.DirectoryLink.external_id": NO_ID,
    "userflow.EndUser.external_id": NO_ID,
    "userflow.EndUserInvitation.external_id": NO_ID,
    "userflow.EmailProof.session_id": SAME,
    "userflow.EndUserAttempts.subject": EXPIRES,
    "userflow.EndUserCount.client_id": COUNTER,
    "userflow.EndUserImport.holder": NO_ID,
    "userflow.EndUserInvitation.user_id": SAME,
    "userflow.EndUserTicket.client_id": EXPIRES,
    "userflow.EndUserTicket.session_id": SAME,
    "userflow.IndexedEndUser.tenant_id": INDEX,
    "userflow.IndexedEndUser.user_id": INDEX,
    "userflow.PendingClientChange.client_id": "the client may be deleted; the deliverer applies the change and deletes the row",
    "userflow.PendingRegistration.client_id": EXPIRES,
    "userflow.TenantClient.owner_id": "free text",
    "userflow.TenantClient.project_id": "free text",
    "userflow.UnindexedEndUser.user_id": "the user may be deleted; deliver_events deletes the row",
    "userflow.WebhookEndpoint.lease": NO_ID,
    "userflow.WebhookMessage.endpoint_id": "the endpoint may be deleted; purge_expired deletes the message",
    "userflow.WebhookMessage.message_id": NO_ID,
    "userflow.WebhookMessage.subject_id": SAME,
}
NAMES = {"holder", "lease", "owner", "running", "subject"}


def ids_without_foreign_key() -> Iterator[str]:
    """Yield the columns that look like an id, with their model."""
    for model in apps.get_models():
        if model._meta.app_label in own_apps():
            for column in model._meta.concrete_fields:
                if not column.is_relation and column.name != "id" and _is_id(column):
                    yield f"{model._meta.label}.{column.name}"


def _is_id(column: "Field[object, object]") -> bool:
    return isinstance(column, UUIDField) or column.name.endswith("_id") or column.name in NAMES


def test_every_id_without_foreign_key_is_considered() -> None:
    compared = {f"{reference.model._meta.label}.{reference.column}" for reference in COMPARED}
    assert compared.isdisjoint(UNCHECKED)
    assert set(ids_without_foreign_key()) == compared | UNCHECKED.keys()


def test_references_lead_from_tenants_to_the_platform() -> None:
    crossing = {(lives_in_tenant(reference.model), lives_in_tenant(reference.to)) for reference in COMPARED}
    assert crossing == {(True, False)}
