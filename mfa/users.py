"""Find the user that an MFA request names: by e-mail address, in a tenant or among the admin users."""

from typing import NoReturn
from uuid import UUID

from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import ValidationFailed
from identity_platform.crypto import hash_token
from mfa.errors import UnknownEmail
from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tenants.states import Purpose
from userflow.accounts.models import Account, AdminUser, TenantClient
from userflow.accounts.realms import ADMINS, Realm
from userflow.credentials import attempts
from userflow.signin.caller import Caller, id_in


def find_user(
    realm: Realm, email: str | None, caller: Caller | None = None, *, mfa_token: str | None = None
) -> Account | None:
    """Return the active user with this address, or None; without an address the caller's own user.

    Several admin users may have the same address while none of them has verified it. The address then means the one whose
    token or ticket the caller sends. Call it in `attempts.guess`, and `check_tenant` on the result.
    """
    if email is None:
        user_id = id_in(realm, caller.principal) if caller is not None else None
        return realm.users._default_manager.filter(pk=user_id, active=True).first() if user_id is not None else None
    if realm is ADMINS:
        return _find_admin(email_key(email), caller, mfa_token)
    return realm.users._default_manager.filter(email_key=email_key(email), active=True).first()


def _find_admin(key: str, caller: Caller | None, mfa_token: str | None) -> AdminUser | None:
    admins = list(AdminUser.objects.filter(email_key=key).order_by("created_at"))
    candidates = [user for user in admins if user.email_verified_at is not None] or admins
    if len(admins) > 1:
        candidates = _admins_of_caller(admins, caller, mfa_token) or candidates
    return candidates[0] if len(candidates) == 1 and candidates[0].active else None


def _admins_of_caller(admins: list[AdminUser], caller: Caller | None, mfa_token: str | None) -> list[AdminUser]:
    """Return those of the users that the caller's token or, if it is of none of them, the caller's tickets belong to."""
    user_id = id_in(ADMINS, caller.principal) if caller is not None else None
    sent = [token for token in (caller.ticket if caller is not None else None, mfa_token) if token is not None]
    digests = [hash_token(token) for token in sent]
    ticket_user_ids = set(ADMINS.tickets._default_manager.filter(digest__in=digests).values_list("user_id", flat=True))
    return [user for user in admins if user.pk == user_id] or [user for user in admins if user.pk in ticket_user_ids]


@attempts.guess(attempts.UNKNOWN_USER)
def require_user(realm: Realm, email: str, caller: Caller | None = None) -> Account:
    """Return the active user with this address. Raises UnknownEmail (404), TooManyFromAddress (429), TenantSuspended."""
    user = find_user(realm, email, caller)
    if user is None:
        raise_unknown_email()
    check_tenant(user)
    return user


def is_exempt(realm: Realm, caller: Caller, email: str | None, *, mfa_token: str | None = None) -> bool:
    """Return whether a guess at a factor counts for its user alone (`attempts.guess`).

    So it does with the ticket of a login, which is checked before the guess is compared, and for the user whose access token
    the caller has.
    """
    if mfa_token is not None:
        return True
    principal = caller.principal
    if principal is None or principal.kind not in realm.kinds:
        return False
    return email is None or email_key(email) == email_key(str(principal.user["email"]))


def check_tenant(user: Account) -> None:
    """Raise TenantSuspended for an admin of a tenant that lets no admins in."""
    if isinstance(user, AdminUser) and user.tenant_id is not None:
        lookup.find_row(user.tenant_id).check(Purpose.READ)


def raise_unknown_email() -> NoReturn:
    """Count the unknown address; raise UnknownEmail (404), or TooManyFromAddress (429) against listing users."""
    attempts.count_unknown_user()
    raise UnknownEmail


def check_client(client_id: UUID | None, tenant_id: UUID | None) -> None:
    """Raise ValidationFailed (400) if the request names a client that is not an active one of the tenant."""
    if client_id is None or tenant_id is None:
        return
    with in_tenant(tenant_id, Purpose.READ):
        is_active = TenantClient.objects.filter(pk=client_id, active=True).exists()
    if not is_active:
        raise ValidationFailed(details={"client_id": ["No active client of this tenant has this id."]})


def settings_of(realm: Realm, user: Account) -> dict[str, object]:
    """Return the tenant settings that apply to the user; none for operators."""
    tenant_id = user.home_tenant_id
    return lookup.find_row(tenant_id).settings if tenant_id else {}
