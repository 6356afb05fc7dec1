"""Whom an MFA call names: by e-mail address, in a tenant or among the admin users."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from uuid import UUID

from django.db import connection

from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import ValidationFailed
from mfa.errors import UnknownPerson
from tenants import routes
from tenants.context import current_tenant, in_tenant
from tenants.states import Purpose
from userflow.clients.credentials import PROOF_COLUMNS
from userflow.realms import ADMINS, END_USERS, Realm
from userflow.signin import attempts


@contextmanager
def entered(realm: Realm, tenant_id: UUID | None, purpose: Purpose = Purpose.WRITE) -> Iterator[None]:
    """The home of the realm's users: the tenant's database for end users, the global one for admin users.

    Refuses with UnknownTenant, TenantSuspended or TenantBusy.
    """
    if realm is END_USERS:
        assert tenant_id is not None  # every end-user call names its tenant
        with in_tenant(tenant_id, purpose):
            yield
    else:
        yield


def find_user(realm: Realm, email: str) -> Any | None:
    """The active user with this address, or None; an inactive user is as good as unknown, as in signing in.

    Refuses with TooManyFromAddress (429) whoever has asked for too many that are not there.
    """
    attempts.refuse_listing_address()
    user: Any = realm.users._default_manager.filter(email_key=email_key(email), active=True).first()
    if user is not None and realm is ADMINS and user.tenant_id is not None:
        routes.find(user.tenant_id).check(Purpose.READ)
    return user


def require_user(realm: Realm, email: str) -> Any:
    """The active user with this address; the refusals of `refuse_unknown`."""
    user = find_user(realm, email)
    if user is None:
        refuse_unknown()
    return user


def refuse_unknown() -> NoReturn:
    """Refuse with UnknownPerson (404), or with TooManyFromAddress (429) so that nobody lists people by trying."""
    attempts.limit_address("unknown_user")
    raise UnknownPerson


def lock(realm: Realm, user_id: UUID) -> Any | None:
    """The active user, locked until the transaction ends. Every change of a user's factors begins here."""
    return realm.users._default_manager.select_for_update(no_key=True).filter(pk=user_id, active=True).first()


def check_client(client_id: UUID | None, tenant_id: UUID) -> None:
    """ValidationFailed when a call names a client that is not an active one of the tenant."""
    if client_id is not None and not active_client(client_id, tenant_id):
        raise ValidationFailed(details={"client_id": ["No active client of this tenant has this id."]})


def active_client(client_id: UUID | None, tenant_id: UUID) -> tuple[Any, ...] | None:
    """`credentials.PROOF_COLUMNS` of this active client of the tenant; None if there is none.

    A client that is switched off signs nobody in.
    """
    if client_id is None:
        return None
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {PROOF_COLUMNS} FROM userflow_client c WHERE c.id = %s AND c.tenant_id = %s AND c.active",
            [client_id, tenant_id],
        )
        row: tuple[Any, ...] | None = cursor.fetchone()
        return row


def settings_of(realm: Realm, user: Any) -> dict[str, Any]:
    """The tenant settings that hold for the user; none for operators."""
    if realm is END_USERS:
        return current_tenant().settings
    return routes.find(user.tenant_id).settings if user.tenant_id else {}
