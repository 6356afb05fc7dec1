"""External services of a tenant and their credentials: the registry's use cases.

The registry lives in the global database, and its audit events in the platform's audit log (with the tenant's id). The event
about a read secret is in the transaction of the read, so a secret whose event cannot be written is not returned. A back end
also gets its secrets while its tenant's own database is being migrated, moved or unavailable.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, TypedDict, Unpack
from uuid import UUID

import orjson
import structlog
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils.timezone import now

from identity_platform.api.pagination import Page
from identity_platform.audit.differences import differences
from identity_platform.audit.writer import record_for_each_on_platform, record_for_platform
from identity_platform.crypto import SealBroken
from identity_platform.postgresql.row_errors import first_or, unique_or
from identity_platform.row_checks import RowCheck, no_check
from registry import errors, queries
from registry.models import (
    ACTIVE,
    CREDENTIAL,
    EXPIRED,
    REVOKED,
    Secret,
    Service,
    ServiceCredential,
    open_secret,
    seal_secret,
)
from userflow.accounts.principals import Principal
from userflow.accounts.rank import Reach, require_reach
from userflow.sessions.assurance import Action, require_assurance

log = structlog.get_logger("identity.registry")

SERVICE = "service"
READ_SECRETS: Final = "services:credentials"
STRONGER: Final = f"The service has credentials, which are sent to its base_url: changing it needs {READ_SECRETS}."


@dataclass(frozen=True, slots=True)
class ReadCredentials:
    """The credentials of a service, with the secrets of active ones by credential id.

    `unreadable` holds the ids of credentials that do not open.
    """

    service: Service
    credentials: list[ServiceCredential]
    secrets: dict[UUID, Secret]
    unreadable: list[UUID]
    at: datetime


class ServiceFields(TypedDict, total=False):
    """The fields of a service that callers set."""

    name: str
    description: str
    type: str
    status: str
    base_url: str
    api_version: str
    metadata: dict[str, object]


class CredentialFields(TypedDict, total=False):
    """The fields of a new credential that callers set, besides its secret."""

    name: str
    type: str
    status: str
    metadata: dict[str, object]
    expires_at: datetime | None


# --- services --------------------------------------------------------------------------------------------------------


def list_services(
    *,
    tenant_id: UUID,
    page: int,
    limit: int,
    name: str | None = None,
    type: str | None = None,
    status: str | None = None,
) -> Page:
    """Return one page of a tenant's services, newest first; `rows` is ready JSON.

    `name` and `type` match the whole value without regard to case.
    """
    total, rows = queries.page_of_services(
        tenant_id=tenant_id, page=page, limit=limit, name=name, type=type, status=status
    )
    return Page(rows, page, limit, total)


def read_service(*, tenant_id: UUID, service_id: UUID) -> orjson.Fragment:
    """Return one service as ready JSON. Raises ServiceNotFound."""
    service = queries.one_service(tenant_id, service_id)
    if service is None:
        raise errors.ServiceNotFound
    return service


def create_service(*, tenant_id: UUID, **fields: Unpack[ServiceFields]) -> Service:
    """Create a service. Raises ServiceExists."""
    service = Service(tenant_id=tenant_id, **fields)
    with unique_or(errors.ServiceExists), transaction.atomic():
        service.save(force_insert=True)
        record_for_platform("service.created", tenant_id=tenant_id, target=(SERVICE, service.pk))
    return service


def update_service(
    *,
    tenant_id: UUID,
    service_id: UUID,
    changes: dict[str, object],
    by: Principal | None,
    check: RowCheck = no_check,
) -> Service:
    """Change the given fields; metadata is replaced as a whole.

    Back ends send the service's secrets to its `base_url`, so another one needs `services:credentials` once there are any.
    Secrets are not sealed to the address as those of directories are: back ends read them by the service's id, and would
    stop to work at every move. Raises ServiceNotFound, ServiceExists, GrantsMoreThanHeld.
    """
    with unique_or(errors.ServiceExists), transaction.atomic():
        service = _locked(tenant_id, service_id)
        check()
        before = {"base_url": service.base_url, "status": service.status}
        if changes.get("base_url", service.base_url) != service.base_url and service.credentials.exists():
            require_reach(by, Reach(frozenset({READ_SECRETS})), STRONGER)
        for field, value in changes.items():
            setattr(service, field, value)
        service.save(update_fields=[*changes, "updated_at"])
        record_for_platform(
            "service.updated",
            tenant_id=tenant_id,
            target=(SERVICE, service_id),
            details=differences(before, {"base_url": service.base_url, "status": service.status}, changes.keys()),
        )
    return service


def delete_service(*, tenant_id: UUID, service_id: UUID) -> None:
    """Delete a service with its inactive credentials. Raises ServiceNotFound, ServiceInUse (active credentials)."""
    with transaction.atomic():
        # FOR UPDATE: the creation or activation of a credential at the same moment waits, or is waited for and counted.
        service = _service(tenant_id, service_id, Service.objects.select_for_update())
        in_time = Q(expires_at=None) | Q(expires_at__gt=Now())
        active = service.credentials.filter(in_time, status=ACTIVE).count()
        if active:
            raise errors.ServiceInUse(details={"active_credentials": active})
        service.delete()
        record_for_platform("service.deleted", tenant_id=tenant_id, target=(SERVICE, service_id))


# --- credentials -----------------------------------------------------------------------------------------------------


def read_credentials(*, tenant_id: UUID, service_id: UUID, status: str = ACTIVE) -> ReadCredentials:
    """Return the credentials of a service with this status, newest first, with the secrets of active ones.

    Each secret is one audit event. A row that does not open (altered, or moved from another service or tenant) is reported
    and audited; the others are returned. Raises ServiceNotFound, ServiceInactive (active credentials only), DataKeyLocked.
    """
    read = partial(queries.credentials_by_status, status=status)
    service_credentials = _read(read, tenant_id, service_id, "service_credential.read")
    if status == ACTIVE:
        _must_be_active(service_credentials.service)
    return service_credentials


def create_credential(
    *, tenant_id: UUID, service_id: UUID, secret: Secret, **fields: Unpack[CredentialFields]
) -> ServiceCredential:
    """Create a credential with its secret. Raises ServiceNotFound, CredentialExists, AlreadyExpired, DataKeyLocked."""
    expires_at = fields.get("expires_at")
    if expires_at is not None and expires_at <= now():
        raise errors.AlreadyExpired
    credential = ServiceCredential(tenant_id=tenant_id, service_id=service_id, **fields)
    with unique_or(errors.CredentialExists), transaction.atomic():
        _locked(tenant_id, service_id)
        credential.secret = _sealed(credential, secret)
        credential.save(force_insert=True)
        _record("service_credential.created", credential)
    return credential


def update_credential(
    *,
    tenant_id: UUID,
    service_id: UUID,
    credential_id: UUID,
    changes: dict[str, object],
    check: RowCheck = no_check,
) -> ServiceCredential:
    """Change the given fields of `secret` (a rotation), `status`, `metadata` and `expires_at`.

    Raises ServiceNotFound, CredentialNotFound, DataKeyLocked.
    """
    with transaction.atomic():
        # The service is locked first, so that it cannot be deleted while a credential is activated.
        _locked(tenant_id, service_id)
        credential = _credential(service_id, credential_id)
        check()
        fields = {name: value for name, value in changes.items() if name != "secret"}
        for field, value in fields.items():
            setattr(credential, field, value)
        if "secret" in changes:
            credential.secret = _sealed(credential, changes["secret"])
        credential.save(update_fields=[*changes, "updated_at"])
        _record(_event_of(changes), credential, changed=sorted(changes))
    return credential


def delete_credential(*, tenant_id: UUID, service_id: UUID, credential_id: UUID) -> None:
    """Delete a credential with its secret. Raises ServiceNotFound, CredentialNotFound."""
    with transaction.atomic():
        _locked(tenant_id, service_id)
        credential = _credential(service_id, credential_id)
        _record("service_credential.deleted", credential)
        credential.delete()


def read_credential(
    *, tenant_id: UUID, service_id: UUID, credential_id: UUID
) -> tuple[ServiceCredential, Secret | None]:
    """Return one credential with its secret, which is None unless the credential is active.

    Raises ServiceNotFound, CredentialNotFound, ServiceInactive, DataKeyLocked, SecretBroken.
    """
    return _read_one(tenant_id, service_id, credential_id, "service_credential.read")


def reveal_credential(
    *, tenant_id: UUID, service_id: UUID, credential_id: UUID, reason: str, by: Principal
) -> tuple[ServiceCredential, Secret]:
    """Return one active credential with its secret for a person who gives a reason, which the audit event holds.

    Raises InsufficientAuthentication, CredentialNotActive, and what `read_credential` raises.
    """
    require_assurance(Action.REVEAL_SECRET, by)
    credential, secret = _read_one(tenant_id, service_id, credential_id, "service_credential.revealed", reason=reason)
    if secret is None:
        raise errors.CredentialNotActive
    return credential, secret


def _read_one(
    tenant_id: UUID, service_id: UUID, credential_id: UUID, action: str, **details: object
) -> tuple[ServiceCredential, Secret | None]:
    """Return a credential and its secret, if it is active. Raises SecretBroken for a row that was altered or moved."""
    read = partial(queries.one_credential, credential_id=credential_id)
    service_credentials = _read(read, tenant_id, service_id, action, **details)
    if not service_credentials.credentials:
        raise errors.SecretBroken if service_credentials.unreadable else errors.CredentialNotFound
    [credential] = service_credentials.credentials
    return credential, service_credentials.secrets.get(credential_id)


def _read(
    read: Callable[[UUID, UUID], queries.StoredCredentials | None],
    tenant_id: UUID,
    service_id: UUID,
    action: str,
    **details: object,
) -> ReadCredentials:
    """Return what `read` finds, with the secrets of active credentials; each is audited as `action`.

    Two statements and no lock between them: the second stores the events only for the secrets that the first one has read.
    If one was rotated, revoked or deleted meanwhile, all are read again.
    """
    while True:
        stored = read(tenant_id, service_id)
        if stored is None:
            raise errors.ServiceNotFound
        service, rows = stored
        moment = now()
        active = [row for row in rows if status_of(row, moment) == ACTIVE]
        if active:
            _must_be_active(service)
        secrets, unreadable = opened_secrets(tenant_id, active)
        opened = [row for row in active if row.pk in secrets]
        audit_details = {"service_id": str(service_id), **details}
        if not opened or queries.record_reads(tenant_id, opened, moment, action=action, details=audit_details):
            break
    for row in opened:
        row.last_read_at = moment
    if unreadable:
        record_for_each_on_platform(
            "service_credential.unreadable",
            tenant_id=tenant_id,
            kind=CREDENTIAL,
            ids=unreadable,
            outcome="failed",
            details={"service_id": str(service_id)},
        )
        log.error("service_credential_unreadable", service_id=service_id, rows=unreadable)
    return ReadCredentials(service, [row for row in rows if row.pk not in unreadable], secrets, unreadable, moment)


def status_of(credential: ServiceCredential, at: datetime) -> str:
    """Return `active`, `revoked` or `expired` (active, but past its time)."""
    if credential.status == ACTIVE and credential.expires_at is not None and credential.expires_at <= at:
        return EXPIRED
    return credential.status


def _service(tenant_id: UUID, service_id: UUID, rows: QuerySet[Service] | None = None) -> Service:
    services = Service.objects.all() if rows is None else rows
    return first_or(services.filter(pk=service_id, tenant_id=tenant_id), errors.ServiceNotFound)


def _must_be_active(service: Service) -> None:
    """Raise ServiceInactive. Every entry point that returns a secret calls this, except the export, which is a copy."""
    if service.status != ACTIVE:
        raise errors.ServiceInactive


def _locked(tenant_id: UUID, service_id: UUID) -> Service:
    """Return the service, locked against deletion until the transaction ends; readers do not wait."""
    return _service(tenant_id, service_id, Service.objects.select_for_update(no_key=True))


def _credential(service_id: UUID, credential_id: UUID) -> ServiceCredential:
    rows = ServiceCredential.objects.select_for_update(no_key=True)
    return first_or(rows.filter(pk=credential_id, service_id=service_id), errors.CredentialNotFound)


def _sealed(credential: ServiceCredential, secret: object) -> bytes:
    return seal_secret(
        secret, tenant_id=credential.tenant_id, service_id=credential.service_id, credential_id=credential.pk
    )


def opened_secrets(tenant_id: UUID, rows: list[ServiceCredential]) -> tuple[dict[UUID, Secret], list[UUID]]:
    """Return the secrets of the rows by id, and the ids of those that do not open.

    The tenant is the caller's, not the row's: a row that was moved here from another tenant must not open.
    """
    opened: dict[UUID, Secret] = {}
    unreadable = []
    for row in rows:
        try:
            opened[row.pk] = open_secret(
                bytes(row.secret), tenant_id=tenant_id, service_id=row.service_id, credential_id=row.pk
            )
        except SealBroken:
            unreadable.append(row.pk)
    return opened, unreadable


def _event_of(changes: Mapping[str, object]) -> str:
    if "secret" in changes:
        return "service_credential.rotated"
    events = {REVOKED: "service_credential.revoked", ACTIVE: "service_credential.activated"}
    return events.get(str(changes.get("status")), "service_credential.updated")


def _record(action: str, credential: ServiceCredential, **details: object) -> None:
    record_for_platform(
        action,
        tenant_id=credential.tenant_id,
        target=(CREDENTIAL, credential.pk),
        details={"service_id": str(credential.service_id), **details},
    )
