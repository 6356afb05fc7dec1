"""Whom an MFA call names: by e-mail address, in a tenant or among the admin users."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from django.db import connection

from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import ValidationFailed
from identity_platform.crypto import hash_token
from mfa.errors import UnknownEmail
from tenants import lookup
from tenants.context import current_tenant, in_tenant
from tenants.states import Purpose
from userflow.accounts.models import AdminUser
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.credentials import attempts
from userflow.sessions.client_authentication import PROOF_COLUMNS

if TYPE_CHECKING:
    # It imports this module.
    from mfa.enrollment import Caller


@contextmanager
def in_realm(realm: Realm, tenant_id: UUID | None, purpose: Purpose = Purpose.WRITE) -> Iterator[None]:
    """The home of the realm's users: the tenant's database for end users, the global one for admin users.

    Raises UnknownTenant, TenantSuspended or TenantBusy.
    """
    if realm is END_USERS:
        assert tenant_id is not None  # every end-user call names its tenant
        with in_tenant(tenant_id, purpose):
            yield
    else:
        yield


def find_user(realm: Realm, email: str, caller: "Caller | None" = None) -> Any | None:
    """The active user with this address, or None; an inactive user is as good as unknown, as in signing in.

    Several admin users may state an address that none of them has verified: then it names the one whose token or ticket
    the caller sends. Raises TooManyFromAddress (429) whoever has asked for too many that are not there.
    """
    attempts.reject_listing_address()
    key = email_key(email)
    if realm is ADMINS:
        return _admin_at(key, caller)
    return realm.users._default_manager.filter(email_key=key, active=True).first()


def _admin_at(key: str, caller: "Caller | None") -> Any | None:
    found = list(AdminUser.objects.filter(email_key=key).order_by("created_at"))
    named = [user for user in found if user.email_verified_at is not None] or found
    if len(found) > 1 and caller is not None:
        own = {caller.principal.id} if caller.principal is not None else set()
        if caller.ticket is not None:
            held = ADMINS.tickets._default_manager.filter(digest=hash_token(caller.ticket))
            own |= set(held.values_list("user_id", flat=True))
        named = [user for user in found if user.pk in own] or named
    if len(named) != 1 or not named[0].active:
        return None
    if named[0].tenant_id is not None:
        lookup.find(named[0].tenant_id).check(Purpose.READ)
    return named[0]


def require_user(realm: Realm, email: str, caller: "Caller | None" = None) -> Any:
    """The active user with this address; the errors of `raise_unknown_email`."""
    user = find_user(realm, email, caller)
    if user is None:
        raise_unknown_email()
    return user


def raise_unknown_email() -> NoReturn:
    """Raise UnknownEmail (404), or with TooManyFromAddress (429) so that nobody lists people by trying."""
    attempts.limit_address("unknown_user")
    raise UnknownEmail


def lock_user(realm: Realm, user_id: UUID) -> Any | None:
    """The active user, locked until the transaction ends. Every change of a user's factors begins here."""
    return realm.users._default_manager.select_for_update(no_key=True).filter(pk=user_id, active=True).first()


def check_client(client_id: UUID | None, tenant_id: UUID) -> None:
    """ValidationFailed when a call names a client that is not an active one of the tenant."""
    if client_id is not None and not active_client(client_id, tenant_id):
        raise ValidationFailed(details={"client_id": ["No active client of this tenant has this id."]})


def active_client(client_id: UUID | None, tenant_id: UUID) -> tuple[Any, ...] | None:
    """`credentials.PROOF_COLUMNS` of this active client of the tenant; None if there is none.

    A deactivated client signs no user in.
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
    return lookup.find(user.tenant_id).settings if user.tenant_id else {}
