"""Sign in admin users and end users with a password."""

from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper

from identity_platform.api.email_addresses import email_key
from identity_platform.api.response_time import rounding
from identity_platform.audit.origin import set_actor, set_end_user_address
from tenants import lookup
from tenants.context import in_tenant
from tenants.states import Purpose
from userflow.accounts.admin_names import admins_named, key_of_name, may_enter
from userflow.accounts.models import Account, AdminUser, EndUser
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.accounts.session_policy import AAL2, required_acr
from userflow.credentials import attempts, email_verification, passwords, pending_registrations, tickets
from userflow.credentials.attempts import Counter
from userflow.errors import ClientNotAuthenticated, EmailNotVerified, HashersBusy, WrongCredentials
from userflow.sessions import issue
from userflow.sessions.client_authentication import StoredClient, find_client, note_use, reject_sign_in
from userflow.sessions.issue import TokenPair, TokenSubject
from userflow.sessions.key_pairs import ES256
from userflow.sessions.signing import signer
from userflow.signin import queries
from userflow.signin.proofs import PASSWORD_AMR

User = TypeVar("User", bound=Account)


@dataclass(frozen=True, slots=True)
class SignIn(Generic[User]):
    """The result of a password: tokens, or a ticket for the second step.

    If the policy requires a factor and the user has none, an enrollment ticket comes with the latter.
    """

    user: User
    tenant_id: UUID | None
    client_id: UUID | None
    tokens: TokenPair | None = None
    mfa_token: str | None = None
    methods: tuple[str, ...] = ()
    # For the header X-Enrollment-Ticket, only while the user has no factor.
    enrollment_ticket: str | None = None

    @property
    def enrollment_required(self) -> bool:
        """Whether the user must enroll a first factor to complete the sign-in."""
        return self.mfa_token is not None and self.enrollment_ticket is not None


@rounding(WrongCredentials)
@attempts.guess("signin", attempts.WRONG_SECRET)
def sign_in_admin(*, username: str, password: str, user_agent: str = "") -> SignIn[AdminUser]:
    """Sign an admin user in by username or e-mail address and password.

    Raises WrongCredentials, AttemptsLocked, TooManyFromAddress, HashersBusy. An unknown user, a wrong password, an inactive
    user and a tenant that admits no admins all give WrongCredentials: a difference would tell that the password is right.
    """
    enters = ExpressionWrapper(may_enter(), output_field=BooleanField())
    user = admins_named(username).annotate(enters=enters).first()
    who = user.pk if user else key_of_name(username)
    known = user is not None and attempts.is_known_network(ADMINS, user.pk)
    caller = attempts.KNOWN_NETWORK if known else attempts.UNKNOWN_NETWORK
    with attempts.counted(ADMINS, who, factor=attempts.PASSWORD, caller=caller):
        right = passwords.matches(password, user.password if user else None)
        if not right or user is None or not user.active or not user.enters:
            reason = _reason(user, right=right) or "tenant_inactive"
            raise _rejected(ADMINS, user, reason, tenant_id=user.tenant_id if user else None)
        _renew_hash(ADMINS, user, password)
    tenant = None
    if user.tenant_id:
        tenant = lookup.find(user.tenant_id)
        tenant.check(Purpose.READ)
    set_actor(user.principal_kind, str(user.pk))
    waiting: SignIn[AdminUser] | None = _wait_for_factor(ADMINS, user, tenant=tenant, caller=caller)
    if waiting is not None:
        return waiting
    with ADMINS.atomic():
        tokens = issue.open_session(
            ADMINS,
            user,
            subject_of(user),
            amr=PASSWORD_AMR,
            tenant=tenant,
            user_agent=user_agent,
            password_only=True,
            cleared=Counter(attempts.PASSWORD, caller),
        )
        ticket = tickets.open_enrollment(ADMINS, user, cause=tickets.LOGIN)
    return SignIn(user, user.tenant_id, None, tokens, enrollment_ticket=ticket)


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
) -> SignIn[EndUser]:
    """Sign an end user in through a client of the tenant. A confidential client authenticates with its secret.

    The address of the connection is then that of its server. `ip_address`, the end user's as the client saw it, takes its
    place; without it only the attempts at the user are limited. From other callers it has no effect.

    Raises WrongCredentials (unknown user, wrong password, inactive user and inactive client alike), EmailNotVerified,
    ClientNotAuthenticated, DirectSignInDisabled, AttemptsLocked, TooManyFromAddress, HashersBusy, TenantSuspended, TenantBusy.
    """
    client = find_client(client_id)
    if client is not None and not client.accepts(client_secret):
        reject_sign_in(client.tenant.tenant_id, client_id)
    if client is not None:
        client.check_direct_sign_in()
    by_server = client is not None and client.confidential
    if by_server and ip_address is not None:
        set_end_user_address(ip_address, client_id=client_id)
    with attempts.guess("signin", attempts.WRONG_SECRET, exempt=by_server and ip_address is None):
        return _sign_in_through(client, client_id, tenant_id, email=email, password=password, user_agent=user_agent)


def _sign_in_through(
    client: StoredClient | None,
    client_id: UUID,
    tenant_id: UUID | None,
    *,
    email: str,
    password: str,
    user_agent: str,
) -> SignIn[EndUser]:
    if client is not None and client.gets_bound_tokens_only:
        raise ClientNotAuthenticated(ClientNotAuthenticated.BOUND_ONLY)
    if client is None or (tenant_id is not None and tenant_id != client.tenant.tenant_id):
        passwords.matches(password, None)
        attempts.count_wrong_secret()
        raise WrongCredentials
    tenant = lookup.remember(client.tenant)
    with in_tenant(tenant.tenant_id, Purpose.SIGN_IN):
        return _sign_in_end_user(tenant, client_id, client, email=email, password=password, user_agent=user_agent)


@rounding(WrongCredentials, EmailNotVerified)
@attempts.guess("signin", attempts.WRONG_SECRET)
def sign_in_browser(*, tenant_id: UUID, email: str, password: str, user_agent: str = "") -> SignIn[EndUser]:
    """Sign an end user in at the tenant's hosted pages. Call it in `sessions.browser.opening_browser_session`.

    Raises WrongCredentials (unknown user, wrong password and inactive user alike), EmailNotVerified, which the page must not
    show, AttemptsLocked, TooManyFromAddress, HashersBusy, TenantSuspended, TenantBusy, UnknownTenant.
    """
    if issue.browser_sign_in.get() is None:
        raise RuntimeError("Call this in opening_browser_session.")
    with in_tenant(tenant_id, Purpose.SIGN_IN) as tenant:
        return _sign_in_end_user(tenant, None, None, email=email, password=password, user_agent=user_agent)


def _sign_in_end_user(
    tenant: lookup.TenantContext,
    client_id: UUID | None,
    client: StoredClient | None,
    *,
    email: str,
    password: str,
    user_agent: str,
) -> SignIn[EndUser]:
    user, caller = queries.count_password_attempt(email_key(email))
    who = user.pk if user else email_key(email)
    with attempts.given_back_when_busy(END_USERS, who, factor=attempts.PASSWORD, caller=caller):
        right = passwords.matches(password, user.password if user else None)
        if not right or user is None or not user.active or (client is not None and not client.active):
            if email_verification.is_required(tenant) and (client is None or client.active):
                _reject_pending(tenant, email_key(email), password, who=who, caller=caller, hosted=client is None)
            raise _rejected(END_USERS, user, _reason(user, right=right) or "client_inactive")
        _renew_hash(END_USERS, user, password)
    if email_verification.is_unverified(user, tenant):
        if client is None:
            # Hosted registration does not tell whether an address was taken. Counted like a wrong password, so that the
            # password chosen there does not tell it either.
            attempts.count_wrong_secret()
        else:
            attempts.clear(END_USERS, who, factor=attempts.PASSWORD, caller=caller)
        END_USERS.record("signin.address_not_proven", target=("user", user.pk), outcome="refused")
        raise EmailNotVerified
    set_actor(user.principal_kind, str(user.pk))
    if client is not None and client_id is not None and client.stale:
        note_use(client_id)
    waiting = _wait_for_factor(END_USERS, user, tenant=tenant, client_id=client_id, caller=caller)
    if waiting is not None:
        return waiting
    subject = _subject_at(client, user, tenant)
    tokens, ticket = queries.complete_login(
        user, subject, amr=PASSWORD_AMR, tenant=tenant, user_agent=user_agent, caller=caller
    )
    return SignIn(user, tenant.tenant_id, client_id, tokens, enrollment_ticket=ticket)


def _subject_at(client: StoredClient | None, user: EndUser, tenant: lookup.TenantContext) -> TokenSubject:
    """Return the subject of a new session at a client; without one, of a browser's. Raises SigningKeyNotPublished."""
    if client is None:
        return subject_of(user)
    algorithm = client.access_token_signed_response_alg
    # Before a session is stored: the key may be too new to sign.
    signer(tenant.tenant_id, algorithm)
    seconds = client.access_token_seconds
    return subject_of(user, client.id, access_token_seconds=seconds, access_token_alg=algorithm)


def _reject_pending(
    tenant: lookup.TenantContext, key: str, password: str, *, who: object, caller: str, hosted: bool
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
        attempts.give_back(END_USERS, who, factor=attempts.PASSWORD, caller=caller)
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


def subject_of(
    user: Account,
    client_id: UUID | None = None,
    *,
    access_token_seconds: int | None = None,
    access_token_alg: str = ES256,
) -> TokenSubject:
    """Return the subject of a new session of the user; an end user's session is bound to a client.

    `access_token_seconds` is the client's own lifetime of access tokens, `access_token_alg` the algorithm that signs them.
    """
    return TokenSubject(
        user.principal_kind,
        user.pk,
        user.home_tenant_id,
        client_id,
        access_token_seconds=access_token_seconds,
        access_token_alg=access_token_alg,
    )


def _wait_for_factor(
    realm: Realm, user: User, *, tenant: lookup.TenantContext | None, caller: str, client_id: UUID | None = None
) -> SignIn[User] | None:
    """Issue the tickets of a right password that needs a second step; return None if the password is enough.

    The attempts of `caller` are cleared in the same transaction; those of other callers stay: a sign-in from a known network
    gives unknown networks no new attempts. Raises WrongCredentials when the password was replaced, the user deactivated, or
    a first factor enrolled since the comparison.
    """
    has_factor = bool(user.mfa_methods)
    if not has_factor and required_acr(user.principal_kind, tenant.settings if tenant else {}) != AAL2:
        return None
    enrollment = None
    with realm.atomic():
        _lock(realm, user, without_factor=not has_factor)
        attempts.clear(realm, user.pk, factor=attempts.PASSWORD, caller=caller)
        if has_factor:
            ticket = tickets.issue_ticket(realm, user, tickets.SECOND_STEP, client_id=client_id, amr=PASSWORD_AMR)
        else:
            # No session before there is a factor: one ticket enrolls it, the other one completes the sign-in with it.
            ticket, enrollment = tickets.open_waiting_login(realm, user, client_id=client_id, amr=PASSWORD_AMR)
        event = "signin.first_step" if has_factor else "signin.factor_missing"
        realm.record(event, target=("user", user.pk), tenant_id=user.home_tenant_id)
    return SignIn(user, user.home_tenant_id, client_id, None, ticket, tuple(user.mfa_methods), enrollment)


def _lock(realm: Realm, user: Account, *, without_factor: bool = False) -> None:
    """Lock the user until the transaction ends.

    A reset or a first factor at the same moment is seen here, or waits and ends the ticket that is issued now. Otherwise
    the ticket would outlive the state that it was issued for. Raises WrongCredentials unless the user is active, has the
    password that was compared, and with `without_factor` has no factor.
    """
    unchanged = realm.users._default_manager.filter(pk=user.pk, active=True, password=user.password)
    if without_factor:
        unchanged = unchanged.filter(mfa_methods=[])
    if not unchanged.select_for_update(no_key=True).values_list("pk", flat=True).first():
        raise WrongCredentials
