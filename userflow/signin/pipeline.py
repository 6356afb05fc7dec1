"""The way in: from a proven factor to a session, or to the step that is still missing. Every sign-in goes through here.

A first factor (`sign_in`) meets the tenant's policy: a verified address, a second step or the enrollment of a first factor.
A second step, an enrollment and a passkey that needs no second step complete a sign-in (`completion_of`). What the user gets
is decided by the `Delivery` of the request, and by nothing else.
"""

from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar
from uuid import UUID

from identity_platform.audit.origin import set_actor
from identity_platform.crypto import hash_token, new_token
from tenants.entering import lookup
from tenants.entering.context import current_tenant
from tenants.entering.lookup import TenantContext
from tenants.states import Purpose
from userflow.accounts.models import Account, EndUser
from userflow.accounts.realms import END_USERS, Realm
from userflow.accounts.session_models import EndUserSession, Session, Ticket
from userflow.accounts.session_policy import AAL2, acr_of, required_acr
from userflow.credentials import attempts, email_verification, tickets
from userflow.credentials.attempts import Counter
from userflow.errors import EmailNotVerified, InsufficientAuthentication, WrongCredentials
from userflow.sessions import issue
from userflow.sessions import queries as session_queries
from userflow.sessions.cookies import cookie_digest
from userflow.sessions.issue import TokenPair, TokenSubject
from userflow.sessions.queries import Rights
from userflow.sessions.refresh_tokens import new_refresh_token
from userflow.signin import queries, remembered_browsers
from userflow.signin.delivery import BrowserCookie, Delivery

User = TypeVar("User", bound=Account)
User_co = TypeVar("User_co", bound=Account, covariant=True)


@dataclass(frozen=True, slots=True)
class SignedIn(Generic[User_co]):
    """A completed sign-in. Either `tokens` or `cookie` is set, or neither in the console."""

    user: User_co
    tenant_id: UUID | None
    # As stored, without its user.
    session: Session
    client_id: UUID | None
    # How the user was verified (RFC 8176 section 2), in both steps.
    amr: tuple[str, ...]
    tokens: TokenPair | None = field(default=None, repr=False)
    cookie: str | None = field(default=None, repr=False)
    # For the header X-Enrollment-Ticket, only while the user has no factor.
    enrollment_ticket: str | None = field(default=None, repr=False)
    # The next cookie of a browser in which the user has skipped the second step.
    remembered: remembered_browsers.Cookie | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Waiting(Generic[User_co]):
    """A sign-in whose first factor was right, and which waits for the second step or for the user's first factor."""

    user: User_co
    tenant_id: UUID | None
    # Completes the sign-in.
    mfa_token: str = field(repr=False)
    methods: tuple[str, ...]
    # Enrolls the first factor of a user who has none.
    enrollment_ticket: str | None = field(default=None, repr=False)

    @property
    def enrollment_required(self) -> bool:
        """Whether the user must enroll a first factor to complete the sign-in."""
        return self.enrollment_ticket is not None


@dataclass(frozen=True, slots=True)
class Completion:
    """A sign-in all of whose steps are done, and which may open its session."""

    subject: TokenSubject
    tenant: TenantContext | None
    amr: tuple[str, ...]
    delivery: Delivery

    def open(
        self, realm: Realm, user: User, *, cleared: Counter | None = None, password_only: bool = False
    ) -> SignedIn[User]:
        """Open the session in the realm's transaction, audit it, and clear the counter of attempts `cleared`.

        It has the rights as stored now. Raises WrongCredentials, with nothing written, when the user's password was replaced
        since it was read, the user was deactivated, or with `password_only` has a factor by now. Raises EmailNotVerified
        (403) if the tenant requires a verified address.
        """
        realm.require_transaction()
        _check_address(user, self.tenant)
        # Not before: until here the last step may still turn out wrong, and that is not the user's doing.
        set_actor(user.principal_kind, str(user.pk))
        unsaved = _Unsaved.of(realm, self)
        digest = hash_token(unsaved.refresh_token) if unsaved.refresh_token else None
        rights = session_queries.open_session(
            realm,
            unsaved.session,
            realm.refresh_tokens(digest=digest, session_id=unsaved.session.pk),
            tenant_id=self.subject.tenant_id,
            password=user.password,
            password_only=password_only,
            cleared=cleared,
        )
        if rights is None:
            raise WrongCredentials
        if self.delivery.audit_action:
            realm.record(
                self.delivery.audit_action,
                target=("user", user.pk),
                tenant_id=user.home_tenant_id,
                details={"session_id": str(unsaved.session.pk)},
            )
        return unsaved.handed_to(user, self, rights)


@dataclass(frozen=True, slots=True)
class _Unsaved:
    """A session that is about to be stored, and what will be handed out for it."""

    session: Session
    refresh_token: str | None
    cookie: str | None

    @classmethod
    def of(cls, realm: Realm, completion: Completion) -> "_Unsaved":
        delivery, subject = completion.delivery, completion.subject
        session = issue.new_session(
            realm, subject, amr=completion.amr, tenant=completion.tenant, user_agent=delivery.user_agent
        )
        refresh_token = new_refresh_token(realm, subject.tenant_id) if delivery.issues_tokens else None
        cookie = new_token() if delivery.sets_cookie else None
        if cookie is not None and isinstance(session, EndUserSession):
            session.browser_digest = cookie_digest(cookie)
        return cls(session, refresh_token, cookie)

    def handed_to(
        self, user: User, completion: Completion, rights: Rights, *, enrollment_ticket: str | None = None
    ) -> SignedIn[User]:
        """Return the sign-in of the session that was just stored, for the user with these rights."""
        subject, tokens = completion.subject, None
        if self.refresh_token is not None:
            tokens = issue.first_tokens(self.session, subject, rights, self.refresh_token, completion.tenant)
        return SignedIn(
            user=user,
            tenant_id=subject.tenant_id,
            session=self.session,
            client_id=subject.client_id,
            amr=completion.amr,
            tokens=tokens,
            cookie=self.cookie,
            enrollment_ticket=enrollment_ticket,
        )


def sign_in(
    realm: Realm,
    user: User,
    *,
    amr: tuple[str, ...],
    counter: Counter,
    delivery: Delivery,
    client_id: UUID | None = None,
) -> SignedIn[User] | Waiting[User]:
    """Take a first factor that the user has just proven on to a session, or to what the policy in force asks for.

    `amr` tells how it was proven, `counter` counts the attempts at it: these are cleared in the same transaction. Those of
    other callers stay: a sign-in from a known network gives unknown networks no new attempts. Call it in the realm, outside a
    transaction. Raises EmailNotVerified (403) where the tenant requires a verified address, WrongCredentials if the user's
    password or factors have changed meanwhile, what `delivery.subject` raises, UnknownTenant, TenantSuspended.
    """
    tenant = tenant_of(user)
    _check_address(user, tenant)
    set_actor(user.principal_kind, str(user.pk))
    if not _is_enough(user, amr, tenant):
        signed_in = _skip_second_step(user, amr=amr, counter=counter, delivery=delivery)
        return signed_in or _wait(realm, user, amr=amr, counter=counter, client_id=client_id)
    completion = Completion(delivery.subject(user, client_id, tenant, authenticates=True), tenant, amr, delivery)
    if isinstance(user, EndUser):
        # The usual sign-in of an end user: everything is one statement.
        unsaved = _Unsaved.of(realm, completion)
        assert isinstance(unsaved.session, EndUserSession)  # of the user's realm
        rights, enrollment = queries.complete_login(user, unsaved.session, unsaved.refresh_token, counter=counter)
        return unsaved.handed_to(user, completion, rights, enrollment_ticket=enrollment)
    with realm.atomic():
        signed_in = completion.open(realm, user, cleared=counter, password_only=True)
        ticket = tickets.open_enrollment(realm, user, cause=tickets.LOGIN)
    return replace(signed_in, enrollment_ticket=ticket)


def completion_of(
    user: Account,
    *,
    amr: tuple[str, ...],
    delivery: Delivery,
    login: Ticket | None = None,
    client_id: UUID | None = None,
) -> Completion:
    """Return the completed sign-in of a user who has done the last step, before anything is stored.

    `login` is the ticket of the first step, whose methods come before `amr`. Without one the factor is the only step, and the
    client authenticates in this request. Raises InsufficientAuthentication (401) if the policy in force asks for more than this
    step, what `delivery.subject` raises, UnknownTenant, TenantSuspended.
    """
    tenant = tenant_of(user)
    if login is None:
        if not _is_enough(user, amr, tenant):
            raise InsufficientAuthentication
        subject = delivery.subject(user, client_id, tenant, authenticates=True)
        return Completion(subject, tenant, amr, delivery)
    subject = delivery.subject(user, login.client_id, tenant, authenticates=False)
    return Completion(subject, tenant, (*login.amr, *amr), delivery)


def tenant_of(user: Account) -> TenantContext | None:
    """Return the user's tenant: the entered one of an end user, None for operators.

    Raises UnknownTenant, TenantSuspended if it lets no admins in.
    """
    if isinstance(user, EndUser):
        return current_tenant()
    if user.home_tenant_id is None:
        return None
    tenant = lookup.find_row(user.home_tenant_id)
    tenant.check(Purpose.READ)
    return tenant


def _check_address(user: Account, tenant: TenantContext | None) -> None:
    if email_verification.is_unverified(user, tenant):
        raise EmailNotVerified


def _is_enough(user: Account, amr: tuple[str, ...], tenant: TenantContext | None) -> bool:
    """Return whether the policy in force accepts this factor alone."""
    if acr_of(amr) == AAL2:
        return True
    return not user.mfa_methods and required_acr(user.principal_kind, tenant.settings if tenant else {}) != AAL2


def _skip_second_step(
    user: User, *, amr: tuple[str, ...], counter: Counter, delivery: Delivery
) -> SignedIn[User] | None:
    """Open the session of an end user in a browser that is remembered; return None in any other.

    It is a session of the first step alone. Raises WrongCredentials as `Completion.open`.
    """
    cookie = delivery.remembered if isinstance(delivery, BrowserCookie) else None
    if cookie is None or not isinstance(user, EndUser) or not user.mfa_methods:
        return None
    tenant = current_tenant()
    with END_USERS.atomic():
        device = remembered_browsers.find_device(user, cookie)
        if device is None:
            return None
        completion = Completion(delivery.subject(user, None, tenant, authenticates=True), tenant, amr, delivery)
        signed_in = completion.open(END_USERS, user, cleared=counter)
        next_cookie = remembered_browsers.renew_device(user, device, signed_in.session.pk)
    return replace(signed_in, remembered=next_cookie)


def _wait(realm: Realm, user: User, *, amr: tuple[str, ...], counter: Counter, client_id: UUID | None) -> Waiting[User]:
    """Issue the tickets of a sign-in that waits for its second step, or for the user's first factor."""
    enrollment, has_factor = None, bool(user.mfa_methods)
    with realm.atomic():
        _lock(realm, user, without_factor=not has_factor)
        attempts.clear(realm, user.pk, factor=counter.factor, caller=counter.caller)
        if has_factor:
            ticket = tickets.issue_ticket(realm, user, tickets.SECOND_STEP, client_id=client_id, amr=amr)
        else:
            # No session before there is a factor: one ticket enrolls it, the other one completes the sign-in with it.
            ticket, enrollment = tickets.open_waiting_login(realm, user, client_id=client_id, amr=amr)
        event = "signin.first_step" if has_factor else "signin.factor_missing"
        realm.record(event, target=("user", user.pk), tenant_id=user.home_tenant_id)
    return Waiting(user, user.home_tenant_id, ticket, tuple(user.mfa_methods), enrollment)


def _lock(realm: Realm, user: Account, *, without_factor: bool) -> None:
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
