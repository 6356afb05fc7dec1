"""External services of a tenant and their credentials: the registry's use cases.

Everything here lives in the global database, so the trail of it is the platform's (with the tenant's id): the row about
a read secret is then in the same transaction as the read, and a back end gets its secrets also while its tenant's own
database is being migrated, moved or away. A secret whose audit row cannot be written is not handed out.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
import structlog
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils.timezone import now

from identity_platform.api.pagination import Page
from identity_platform.audit.writer import record_for_each_on_platform, record_for_platform
from identity_platform.crypto import SealBroken
from registry import queries
from registry.errors import (
    AlreadyExpired,
    CredentialExists,
    CredentialNotActive,
    CredentialNotFound,
    SecretBroken,
    ServiceExists,
    ServiceInactive,
    ServiceInUse,
    ServiceNotFound,
)
from registry.models import ACTIVE, EXPIRED, REVOKED, Service, ServiceCredential
from registry.sealing import open_secret, seal_secret
from tenants import keys
from userflow.accounts.principals import Principal
from userflow.sessions.assurance import Action, require_assurance

log = structlog.get_logger("identity.registry")

SERVICE = "service"
CREDENTIAL = "service_credential"


@dataclass(frozen=True, slots=True)
class ReadCredentials:
    """What a read of a service's credentials found: those that may be shown, and those that do not open.

    `secrets` holds the secrets of the active ones by credential id. A revoked or expired credential is shown without.
    """

    service: Service
    credentials: list[ServiceCredential]
    secrets: dict[UUID, str | dict[str, Any]]
    unreadable: list[UUID]
    at: datetime


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
    """One page of a tenant's services, newest first; `rows` is ready JSON.

    `name` and `type` match the whole value without regard to case.
    """
    total, rows = queries.page_of_services(
        tenant_id=tenant_id, page=page, limit=limit, name=name, type=type, status=status
    )
    return Page(rows, page, limit, total)


def read_service(*, tenant_id: UUID, service_id: UUID) -> orjson.Fragment:
    """One service as ready JSON; ServiceNotFound if the tenant has none of this id."""
    found = queries.one_service(tenant_id, service_id)
    if found is None:
        raise ServiceNotFound
    return found


def create_service(*, tenant_id: UUID, **members: Any) -> Service:
    """Register a service; ServiceExists if the name is taken, also by a call at the same moment."""
    service = Service(tenant_id=tenant_id, **members)
    with _raising(ServiceExists), transaction.atomic():
        service.save(force_insert=True)
        record_for_platform("service.created", tenant_id=tenant_id, target=(SERVICE, service.pk))
    return service


def update_service(*, tenant_id: UUID, service_id: UUID, changes: dict[str, Any]) -> Service:
    """Change the members that are there, metadata as a whole. Raises ServiceNotFound, ServiceExists."""
    with _raising(ServiceExists), transaction.atomic():
        service = _locked(tenant_id, service_id)
        for member, value in changes.items():
            setattr(service, member, value)
        service.save(update_fields=[*changes, "updated_at"])
        record_for_platform(
            "service.updated",
            tenant_id=tenant_id,
            target=(SERVICE, service_id),
            details={"changed": sorted(changes)},
        )
    return service


def delete_service(*, tenant_id: UUID, service_id: UUID) -> None:
    """Remove a service and what is left of its credentials. Raises ServiceNotFound, and with ServiceInUse while
    active credentials are bound to it."""
    with transaction.atomic():
        # FOR UPDATE: a credential that is being made or switched on at this moment waits, or is waited for and counted.
        service = Service.objects.select_for_update().filter(pk=service_id, tenant_id=tenant_id).first()
        if service is None:
            raise ServiceNotFound
        active = service.credentials.filter(_is(ACTIVE)).count()
        if active:
            raise ServiceInUse(details={"active_credentials": active})
        service.delete()
        record_for_platform("service.deleted", tenant_id=tenant_id, target=(SERVICE, service_id))


# --- credentials -----------------------------------------------------------------------------------------------------


def read_credentials(*, tenant_id: UUID, service_id: UUID, status: str = ACTIVE) -> ReadCredentials:
    """The credentials of a service in this status (`active`, `revoked`, `expired`), newest first, with the secrets of
    active ones. One audit row for every secret.

    A row that does not open (altered, or moved from another service or tenant) gives no plaintext and is reported and
    audited; the others are not held back. Raises ServiceNotFound, ServiceInactive (active credentials only), DataKeyLocked.
    """
    with transaction.atomic():
        service = _service(tenant_id, service_id)
        if status == ACTIVE:
            _must_be_active(service)
        # Locked in one order: two reads that mark the same rows in different orders would wait for each other for ever.
        rows = list(service.credentials.filter(_is(status)).order_by("id").select_for_update(no_key=True))
        moment = now()
        opened, unreadable = opened_secrets(tenant_id, rows) if status == ACTIVE else ({}, [])
        if opened:
            ServiceCredential.objects.filter(pk__in=opened).update(last_read_at=moment)
            _record_each("service_credential.read", service, list(opened))
        if unreadable:
            _record_each("service_credential.unreadable", service, unreadable, outcome="failed")
            log.error("service_credential_unreadable", service_id=service_id, rows=unreadable)
    shown = [row for row in rows if row.pk not in unreadable]
    for row in shown:
        row.last_read_at = moment if row.pk in opened else row.last_read_at
    shown.sort(key=lambda row: (row.created_at, row.pk), reverse=True)
    return ReadCredentials(service, shown, opened, unreadable, moment)


def create_credential(
    *, tenant_id: UUID, service_id: UUID, secret: str | dict[str, Any], **members: Any
) -> ServiceCredential:
    """Bind a secret to a service. Raises ServiceNotFound, CredentialExists, AlreadyExpired, DataKeyLocked."""
    expires_at = members.get("expires_at")
    if expires_at is not None and expires_at <= now():
        raise AlreadyExpired
    credential = ServiceCredential(tenant_id=tenant_id, service_id=service_id, **members)
    with _raising(CredentialExists), transaction.atomic():
        _locked(tenant_id, service_id)
        credential.secret = _sealed(credential, secret)
        credential.save(force_insert=True)
        _record("service_credential.created", credential)
    return credential


def update_credential(
    *, tenant_id: UUID, service_id: UUID, credential_id: UUID, changes: dict[str, Any]
) -> ServiceCredential:
    """Change `secret` (rotates), `status`, `metadata`, `expires_at`: those that are there.

    Raises ServiceNotFound, CredentialNotFound, DataKeyLocked.
    """
    with transaction.atomic():
        # The service first, as everywhere: a credential that is switched on again must not slip past its deletion.
        _locked(tenant_id, service_id)
        credential = _credential(service_id, credential_id)
        fields = {name: value for name, value in changes.items() if name != "secret"}
        for member, value in fields.items():
            setattr(credential, member, value)
        if "secret" in changes:
            credential.secret = _sealed(credential, changes["secret"])
        credential.save(update_fields=[*changes, "updated_at"])
        _record(_deed(changes), credential, changed=sorted(changes))
    return credential


def delete_credential(*, tenant_id: UUID, service_id: UUID, credential_id: UUID) -> None:
    """Remove a credential with its secret. Raises ServiceNotFound, CredentialNotFound."""
    with transaction.atomic():
        _locked(tenant_id, service_id)
        credential = _credential(service_id, credential_id)
        _record("service_credential.deleted", credential)
        credential.delete()


def read_credential(
    *, tenant_id: UUID, service_id: UUID, credential_id: UUID
) -> tuple[ServiceCredential, str | dict[str, Any] | None]:
    """One credential with its secret, which is None unless the credential is active.

    Raises ServiceNotFound, CredentialNotFound, ServiceInactive, DataKeyLocked, SecretBroken.
    """
    return _read_one(tenant_id, service_id, credential_id, "service_credential.read")


def reveal_credential(
    *, tenant_id: UUID, service_id: UUID, credential_id: UUID, reason: str, by: Principal
) -> tuple[ServiceCredential, str | dict[str, Any]]:
    """One active credential with its secret, for a person who says why; the reason stands in the audit row.

    Raises InsufficientAuthentication, CredentialNotActive, and what `read_credential` raises.
    """
    require_assurance(Action.REVEAL_SECRET, by)
    credential, secret = _read_one(tenant_id, service_id, credential_id, "service_credential.revealed", reason=reason)
    if secret is None:
        raise CredentialNotActive
    return credential, secret


def _read_one(
    tenant_id: UUID, service_id: UUID, credential_id: UUID, action: str, **details: Any
) -> tuple[ServiceCredential, str | dict[str, Any] | None]:
    """A credential and its secret, if it is active; audited as `action`.

    A row that was altered or moved gives no plaintext: SecretBroken, and the attempt is audited.
    """
    with transaction.atomic():
        service = _service(tenant_id, service_id)
        credential = _credential(service_id, credential_id)
        moment = now()
        if status_of(credential, moment) != ACTIVE:
            return credential, None
        _must_be_active(service)
        opened, unreadable = opened_secrets(tenant_id, [credential])
        if opened:
            ServiceCredential.objects.filter(pk=credential_id).update(last_read_at=moment)
            credential.last_read_at = moment
            _record(action, credential, **details)
    if unreadable:
        # Outside the transaction, which the error would roll back.
        _record_each("service_credential.unreadable", service, unreadable, outcome="failed")
        log.error("service_credential_unreadable", service_id=service_id, rows=unreadable)
        raise SecretBroken
    return credential, opened[credential_id]


def status_of(credential: ServiceCredential, at: datetime) -> str:
    """`active`, `revoked`, or `expired` where an active one is past its time."""
    if credential.status == ACTIVE and credential.expires_at is not None and credential.expires_at <= at:
        return EXPIRED
    return credential.status


def _is(status: str) -> Q:
    in_time = Q(expires_at=None) | Q(expires_at__gt=Now())
    return {
        ACTIVE: Q(status=ACTIVE) & in_time,
        REVOKED: Q(status=REVOKED),
        EXPIRED: Q(status=ACTIVE, expires_at__lte=Now()),
    }[status]


def _service(tenant_id: UUID, service_id: UUID) -> Service:
    service = Service.objects.filter(pk=service_id, tenant_id=tenant_id).first()
    if service is None:
        raise ServiceNotFound
    return service


def _must_be_active(service: Service) -> None:
    """Raise ServiceInactive: every entry point that returns a secret asks here. An export is a copy of the records."""
    if service.status != ACTIVE:
        raise ServiceInactive


def _locked(tenant_id: UUID, service_id: UUID) -> Service:
    """The service, held against deletion until the transaction ends; readers are not held up."""
    rows: QuerySet[Service] = Service.objects.select_for_update(no_key=True)
    service = rows.filter(pk=service_id, tenant_id=tenant_id).first()
    if service is None:
        raise ServiceNotFound
    return service


def _credential(service_id: UUID, credential_id: UUID) -> ServiceCredential:
    rows = ServiceCredential.objects.select_for_update(no_key=True)
    credential = rows.filter(pk=credential_id, service_id=service_id).first()
    if credential is None:
        raise CredentialNotFound
    return credential


@contextlib.contextmanager
def _raising(clash: type[ServiceExists] | type[CredentialExists]) -> Iterator[None]:
    """The database's unique constraints decide, also between calls at the same moment."""
    try:
        yield
    except IntegrityError as problem:
        raise clash from problem


def _sealed(credential: ServiceCredential, secret: str | dict[str, Any]) -> bytes:
    return seal_secret(
        secret,
        data_key=keys.tenant_key(credential.tenant_id),
        tenant_id=credential.tenant_id,
        service_id=credential.service_id,
        credential_id=credential.pk,
    )


def opened_secrets(
    tenant_id: UUID, rows: list[ServiceCredential]
) -> tuple[dict[UUID, str | dict[str, Any]], list[UUID]]:
    """The secrets of the rows by id, and the ids of those that do not open.

    The tenant is the caller's, not the row's: a row that somebody moved here from another tenant must not open.
    """
    if not rows:
        return {}, []
    key = keys.tenant_key(tenant_id)
    opened: dict[UUID, str | dict[str, Any]] = {}
    unreadable = []
    for row in rows:
        try:
            opened[row.pk] = open_secret(
                bytes(row.secret),
                data_key=key,
                tenant_id=tenant_id,
                service_id=row.service_id,
                credential_id=row.pk,
            )
        except SealBroken:
            unreadable.append(row.pk)
    return opened, unreadable


def _deed(changes: dict[str, Any]) -> str:
    if "secret" in changes:
        return "service_credential.rotated"
    match changes.get("status"):
        case "revoked":
            return "service_credential.revoked"
        case "active":
            return "service_credential.activated"
        case _:
            return "service_credential.updated"


def _record(action: str, credential: ServiceCredential, **details: Any) -> None:
    record_for_platform(
        action,
        tenant_id=credential.tenant_id,
        target=(CREDENTIAL, credential.pk),
        details={"service_id": str(credential.service_id), **details},
    )


def _record_each(action: str, service: Service, ids: list[UUID], outcome: str = "success") -> None:
    record_for_each_on_platform(
        action,
        tenant_id=service.tenant_id,
        kind=CREDENTIAL,
        ids=ids,
        outcome=outcome,
        details={"service_id": str(service.pk)},
    )
