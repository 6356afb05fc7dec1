"""Sign in admin users and end users with a password."""

from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper

from identity_platform.api.email_addresses import email_key
from identity_platform.api.response_time import rounding
from identity_platform.audit.origin import set_end_user_address
from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tenants.states import Purpose
from userflow.accounts.admin_names import admins_named, key_of_name, may_enter
from userflow.accounts.models import Account, AdminUser, EndUser
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.credentials import attempts, email_verification, passwords, pending_registrations
from userflow.credentials.attempts import Counter
from userflow.errors import ClientNotAuthenticated, EmailNotVerified, HashersBusy, WrongCredentials
from userflow.sessions import client_uses
from userflow.sessions.client_authentication import StoredClient, find_client, reject_sign_in
from userflow.signin import pipeline, queries
from userflow.signin.delivery import ApplicationTokens, BrowserCookie, Delivery
from userflow.signin.pipeline import SignedIn, Waiting
from userflow.signin.proofs import PASSWORD_AMR


@rounding(WrongCredentials)
@attempts.guess("signin", attempts.WRONG_SECRET)
def sign_in_admin(*, username: str, password: str, delivery: Delivery) -> SignedIn[AdminUser] | Waiting[AdminUser]:
    """Sign an admin user in by username or e-mail address and password.

    Raises WrongCredentials, AttemptsLocked, TooManyFromAddress, HashersBusy. An unknown user, a wrong password, an inactive
    user and a tenant that admits no admins all give WrongCredentials: a difference would tell that the password is right.
    """
    enters = ExpressionWrapper(may_enter(), output_field=BooleanField())
    user = admins_named(username).annotate(enters=enters).first()
    user_id_or_name = user.pk if user else key_of_name(username)
    known = user is not None and attempts.is_known_network(ADMINS, user.pk)
    caller = attempts.KNOWN_NETWORK if known else attempts.UNKNOWN_NETWORK
    with attempts.counted(ADMINS, user_id_or_name, factor=attempts.PASSWORD, caller=caller):
        right = passwords.matches(password, user.password if user else None)
        if not right or user is None or not user.active or not user.enters:
            reason = _reason(user, right=right) or "tenant_inactive"
            raise _rejected(ADMINS, user, reason, tenant_id=user.tenant_id if user else None)
        _renew_hash(ADMINS, user, password)
    counter = Counter(attempts.PASSWORD, caller)
    return pipeline.sign_in(ADMINS, user, amr=PASSWORD_AMR, counter=counter, delivery=delivery)


@rounding(WrongCredentials)
def sign_in_end_user(
    *,
    client_id: UUID,
    email: str,
    password: str,
    tenant_id: UUID | None = None,
    client_secret: str | None = None,
    ip_address: str | None = None,
    user_agent: str = "",
) -> SignedIn[EndUser] | Waiting[EndUser]:
    """Sign an end user in through a client of the tenant. A confidential client authenticates with its secret.

    The address of the connection is then that of its server. `ip_address`, the end user's as the client saw it, takes its
    place; without it only the attempts at the user are limited. From other callers it has no effect.

    Raises WrongCredentials (unknown user, wrong password, inactive user and inactive client alike), EmailNotVerified,
    ClientNotAuthenticated, DirectSignInDisabled, AttemptsLocked, TooManyFromAddress, HashersBusy, TenantSuspended, TenantBusy.
    """
    client = find_client(client_id)
    if client is not None and not client.accepts(client_secret):
        reject_sign_in(client.tenant, client_id)
    if client is not None:
        client.check_direct_sign_in()
    by_server = client is not None and client.confidential
    if by_server and ip_address is not None:
        set_end_user_address(ip_address, client_id=client_id)
    with attempts.guess("signin", attempts.WRONG_SECRET, exempt=by_server and ip_address is None):
        if client is not None and client.gets_bound_tokens_only:
            raise ClientNotAuthenticated(ClientNotAuthenticated.BOUND_ONLY)
        if client is None or (tenant_id is not None and tenant_id != client.tenant.tenant_id):
            passwords.matches(password, None)
            attempts.count_wrong_secret()
            raise WrongCredentials
        tenant = lookup.remember(client.tenant)
        with in_tenant(tenant.tenant_id, Purpose.SIGN_IN):
            delivery = ApplicationTokens(user_agent, client=client)
            return _sign_in_end_user(tenant, client, email=email, password=password, delivery=delivery)


@rounding(WrongCredentials, EmailNotVerified)
@attempts.guess("signin", attempts.WRONG_SECRET)
def sign_in_browser(
    *, tenant_id: UUID, email: str, password: str, delivery: BrowserCookie
) -> SignedIn[EndUser] | Waiting[EndUser]:
    """Sign an end user in at the tenant's hosted pages.

    Raises WrongCredentials (unknown user, wrong password and inactive user alike), EmailNotVerified, which the page must not
    show, AttemptsLocked, TooManyFromAddress, HashersBusy, TenantSuspended, TenantBusy, UnknownTenant.
    """
    with in_tenant(tenant_id, Purpose.SIGN_IN) as tenant:
        return _sign_in_end_user(tenant, None, email=email, password=password, delivery=delivery)


def _sign_in_end_user(
    tenant: lookup.TenantContext, client: StoredClient | None, *, email: str, password: str, delivery: Delivery
) -> SignedIn[EndUser] | Waiting[EndUser]:
    """Sign in through a client, or without one in a browser."""
    user, caller = queries.count_password_attempt(email_key(email))
    user_id_or_name = user.pk if user else email_key(email)
    with attempts.given_back_when_busy(END_USERS, user_id_or_name, factor=attempts.PASSWORD, caller=caller):
        right = passwords.matches(password, user.password if user else None)
        if not right or user is None or not user.active or (client is not None and not client.active):
            if email_verification.is_required(tenant) and (client is None or client.active):
                _reject_pending(
                    tenant,
                    email_key(email),
                    password,
                    user_id_or_name=user_id_or_name,
                    caller=caller,
                    hosted=client is None,
                )
            raise _rejected(END_USERS, user, _reason(user, right=right) or "client_inactive")
        _renew_hash(END_USERS, user, password)
    if client is not None:
        client_uses.note(client.id)
    try:
        return pipeline.sign_in(
            END_USERS,
            user,
            amr=PASSWORD_AMR,
            counter=Counter(attempts.PASSWORD, caller),
            delivery=delivery,
            client_id=client.id if client is not None else None,
        )
    except EmailNotVerified:
        if client is None:
            # Hosted registration does not tell whether an address was taken. Counted like a wrong password, so that the
            # password chosen there does not tell it either.
            attempts.count_wrong_secret()
        else:
            attempts.clear(END_USERS, user_id_or_name, factor=attempts.PASSWORD, caller=caller)
        END_USERS.record("signin.address_not_proven", target=("user", user.pk), outcome="refused")
        raise


def _reject_pending(
    tenant: lookup.TenantContext, key: str, password: str, *, user_id_or_name: object, caller: str, hosted: bool
) -> None:
    """Raise EmailNotVerified if a registration of the address with this password waits for its verification.

    Also where a user has the address: the password of a registration must not tell whether it was taken.
    """
    registration = pending_registrations.find_by_password(key, password, tenant)
    if registration is None:
        return
    if hosted:
        attempts.count_wrong_secret()
    else:
        # Given back, not cleared: the caller may also be guessing the password of the user who has the address.
        attempts.give_back(END_USERS, user_id_or_name, factor=attempts.PASSWORD, caller=caller)
    END_USERS.record("signin.address_not_proven", target=("user", registration.pk), outcome="refused")
    raise EmailNotVerified


def _reason(user: Account | None, *, right: bool) -> str:
    """Return why the user cannot sign in, for the audit log only; "" if the reason is not the user or the password."""
    if user is None:
        return "unknown_user"
    if not right:
        return "wrong_password" if user.password else "no_password"
    return "" if user.active else "deactivated"


def _rejected(realm: Realm, user: Account | None, reason: str, *, tenant_id: UUID | None = None) -> WrongCredentials:
    attempts.count_wrong_secret()
    target, details = ("user", user.pk) if user else None, {"reason": reason}
    # Outside any transaction: the event must survive the error. Names of unknown users are not stored.
    realm.record("signin.refused", target=target, outcome="refused", tenant_id=tenant_id, details=details)
    return WrongCredentials()


def _renew_hash(realm: Realm, user: Account, password: str) -> None:
    """Replace a hash of another system, or of weaker parameters, while the password is known."""
    if not passwords.is_outdated(user.password):
        return
    try:
        renewed = passwords.renewed(password)
    except HashersBusy:
        return  # the password was right; the next sign-in renews the hash
    # Not over a password that was changed in the meantime.
    if realm.users._default_manager.filter(pk=user.pk, password=user.password).update(password=renewed):
        user.password = renewed
        return
    # Another sign-in has renewed the hash at the same moment, or the password was changed.
    user.refresh_from_db(fields=["password"])
    if not passwords.matches(password, user.password):
        raise WrongCredentials
