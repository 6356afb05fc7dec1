"""Invitations: made, listed, sent again, cancelled and accepted; of admin users and of end users alike.

The token is nowhere but in the mail. It says in which database its invitation is, so accepting is one look-up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError
from django.db.models import Q
from django.utils.timezone import now

from identity_platform.api import ratelimit
from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import InsufficientScope, ValidationFailed
from identity_platform.api.pagination import Page, offset
from identity_platform.crypto import hash_token
from tenants import lookup
from tenants.context import in_tenant
from tenants.errors import TenantRequired, UnknownTenant
from tenants.states import Purpose
from userflow import mail
from userflow.accounts.event_payloads import person
from userflow.accounts.models import DEFAULT_ROLE, LONGEST_NAME, Client, EndUser, Role, RoleBinding
from userflow.accounts.permissions_catalogue import OPERATOR, TENANT_ADMIN
from userflow.accounts.principals import Principal
from userflow.accounts.rank import require_grantable
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.admins.actions import create_admin_user, grantable_roles, reject_reserved_address
from userflow.credentials import attempts, passwords, tickets
from userflow.credentials import email_verification as proofs
from userflow.credentials import unused_registrations as yielding
from userflow.endusers.actions import LOCAL
from userflow.errors import (
    AlreadyInvited,
    EmailTaken,
    GrantsMoreThanHeld,
    InvitationClosed,
    InvitationInvalid,
    TooManyFromAddress,
    UnknownClient,
    UnknownInvitation,
)
from userflow.events.outbox import publish
from userflow.invitations.inviters import inviter_now
from userflow.invitations.models import ADMIN, END_USER, EXPIRED, PENDING, AdminInvitation, EndUserInvitation
from userflow.invitations.queries import Row, Shown, merged_page, shown, with_role_names, with_status
from userflow.mailed_tokens import NotAToken, place_of, placed_token
from userflow.roles.actions import roles_named
from userflow.sessions.assurance import Action, require_assurance

LIFETIME = timedelta(days=7)
PLATFORM = "Identity platform"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The user that came of an invitation, and a ticket to enrol a first factor with."""

    user: Any
    kind: str
    tenant_id: UUID | None
    client_id: UUID | None
    enrollment_ticket: str | None


# --- for those who invite --------------------------------------------------------------------------------------------


def invite(
    *,
    by: Principal,
    tenant_id: UUID | None,
    email: str,
    kind: str,
    roles: Sequence[str] | None = None,
    client_id: UUID | None = None,
) -> Shown:
    """Invite somebody to become an admin user (of a tenant, or without one an operator) or an end user.

    The mail leaves once the invitation is stored. An address has one open invitation of a kind in a tenant; one that has
    expired gives way to the new one. Raises EmailTaken (a user has the address, active or not), AlreadyInvited,
    UnknownRole, GrantsMoreThanHeld, NotAllowed (an admin user is invited by who may make one), UnknownClient,
    TenantRequired, UnknownTenant, TenantSuspended, TenantBusy, TooManyFromAddress (too many invitations),
    InsufficientAuthentication (an admin user, or roles).
    """
    if kind == ADMIN or roles:
        require_assurance(Action.GRANT_ROLES, by)
    _limit_mails(by.id)
    if kind == ADMIN:
        return _invite_admin(by, tenant_id, email, roles)
    if tenant_id is None:
        raise TenantRequired
    return _invite_end_user(by, tenant_id, email, roles or (), client_id)


def _limit_mails(inviter: object) -> None:
    """TooManyFromAddress (429): who may invite could otherwise send mails of ours to any number of strangers."""
    most, seconds = settings.LIMITS["invitation"]
    usage = ratelimit.count(group="invitation", key=str(inviter), limit=most, period=seconds)
    if usage.limited:
        raise TooManyFromAddress(
            "You have sent too many invitations. Retry after the time in `Retry-After`.", retry_after=usage.retry_after
        )


def _invite_admin(by: Principal, tenant_id: UUID | None, email: str, roles: Sequence[str] | None) -> Shown:
    _must_make_admins(by)
    tenant = _writable(tenant_id)
    granted = grantable_roles(roles or [TENANT_ADMIN if tenant_id else OPERATOR], tenant_id, by)
    _reject_taken(ADMINS, email_key(email))
    token = placed_token(None)
    row = AdminInvitation(**_common(by, email, token), tenant_id=tenant_id, roles=sorted(role.name for role in granted))
    with ADMINS.atomic():
        _save_as_only_one(ADMINS, row, AdminInvitation.objects.filter(Q(tenant_id=tenant_id)))
        _record(ADMINS, "invitation.made", row, tenant_id, roles=row.roles)
        _mail(row, token, tenant)
    return shown(row, tenant_id, row.roles)


def _invite_end_user(by: Principal, tenant_id: UUID, email: str, roles: Sequence[str], client_id: UUID | None) -> Shown:
    wanted = Q(is_default=True) if client_id is None else Q(pk=client_id, active=True)
    client = Client.objects.filter(wanted, tenant_id=tenant_id).first()
    if client is None:
        raise UnknownClient
    with in_tenant(tenant_id) as tenant:
        _reject_taken(END_USERS, email_key(email))
        token = placed_token(tenant_id)
        row = EndUserInvitation(**_common(by, email, token), client_id=client.pk)
        with END_USERS.atomic():
            granted = roles_named(roles)
            require_grantable(by, {permission for role in granted for permission in role.permissions})
            row.roles = sorted(str(role.pk) for role in granted)
            _save_as_only_one(END_USERS, row, EndUserInvitation.objects.all())
            _record(END_USERS, "invitation.made", row, tenant_id, roles=row.roles)
            publish("invitation.created", _data(row, roles=sorted(role.name for role in granted)))
            _mail(row, token, tenant)
    return shown(row, tenant_id, [role.name for role in granted])


def _save_as_only_one(realm: Realm, row: Row, of_kind: Any) -> None:
    """Store a new invitation, and cancel an expired one to the same address.

    `of_kind` are the invitations of its kind and tenant. The unique index decides between parallel requests. Raises
    AlreadyInvited.
    """
    others = of_kind.filter(email_key=row.email_key)
    with_status(others, EXPIRED).update(cancelled_at=now())
    try:
        with realm.atomic():
            row.save(force_insert=True)
    except IntegrityError as clash:
        # None if it was accepted or cancelled a moment later.
        raise AlreadyInvited(with_status(others, PENDING).values_list("pk", flat=True).first()) from clash


def list_invitations(
    *,
    tenant_id: UUID | None,
    page: int,
    limit: int,
    status: str | None = None,
    kind: str | None = None,
    purpose: Purpose = Purpose.READ,
) -> Page:
    """One page of a tenant's invitations of both kinds, newest first; without a tenant all of admin users.

    `status` is pending, accepted, cancelled or expired; `purpose` is what the
    tenant is entered for. Raises UnknownTenant, TenantSuspended, TenantBusy.
    """
    admins = with_status(AdminInvitation.objects.all(), status)
    if tenant_id is None:
        found = admins if kind != END_USER else admins.none()
        start = offset(page, limit)
        rows = list(found.order_by("-created_at", "-id")[start : start + limit])
        return Page([shown(row, row.tenant_id, row.roles) for row in rows], page, limit, found.count())
    with in_tenant(tenant_id, purpose):
        sources = {
            ADMIN: admins.filter(tenant_id=tenant_id),
            END_USER: with_status(EndUserInvitation.objects.all(), status),
        }
        if kind is not None:
            sources = {kind: sources[kind]}
        return merged_page(sources, tenant_id, page, limit)


def resend_invitation(*, by: Principal, tenant_id: UUID | None, invitation_id: UUID) -> Shown:
    """Send the mail again, with a new token and seven new days; the token sent before ends.

    It gives what has expired another time, so the caller must be one who could invite so, and is the inviter from then
    on. Raises UnknownInvitation, InvitationClosed (accepted or cancelled), NotAllowed (an admin user's, by who may
    not make one), UnknownRole, GrantsMoreThanHeld, EmailTaken, TooManyFromAddress (too many mails of the caller),
    InsufficientAuthentication (an invitation that `invite` would not store either).
    """

    def again(realm: Realm, row: Row, tenant: lookup.TenantContext | None) -> Shown:
        if row.kind == ADMIN or row.roles:
            require_assurance(Action.GRANT_ROLES, by)
        _reject_beyond(by, row)
        _limit_mails(by.id)
        _reject_taken(realm, row.email_key)
        token = placed_token(_place(realm, tenant))
        row.token_digest, row.expires_at = hash_token(token), now() + LIFETIME
        # Whoever sends it stands for it from now on: who invited first may have left, and then nobody could accept it.
        row.invited_by_kind, row.invited_by_id = by.kind, by.id
        row.save(update_fields=["token_digest", "expires_at", "invited_by_kind", "invited_by_id"])
        _record(realm, "invitation.sent_again", row, tenant.tenant_id if tenant else None)
        _mail(row, token, tenant)
        return with_role_names(row, tenant)

    return _change(by, tenant_id, invitation_id, again)


def cancel_invitation(*, by: Principal, tenant_id: UUID | None, invitation_id: UUID) -> Shown:
    """Make an invitation's token worthless. Raises UnknownInvitation, InvitationClosed, NotAllowed (an admin
    user's, by who may not make one)."""

    def cancel(realm: Realm, row: Row, tenant: lookup.TenantContext | None) -> Shown:
        row.cancelled_at = now()
        row.save(update_fields=["cancelled_at"])
        _record(realm, "invitation.cancelled", row, tenant.tenant_id if tenant else None)
        return with_role_names(row, tenant)

    return _change(by, tenant_id, invitation_id, cancel)


def _change(by: Principal, tenant_id: UUID | None, invitation_id: UUID, change: Any) -> Shown:
    """Lock the invitation, wherever it is, and change it unless it is accepted or cancelled."""
    of_admins = AdminInvitation.objects.filter(pk=invitation_id)
    if tenant_id is not None:
        of_admins = of_admins.filter(tenant_id=tenant_id)
    with ADMINS.atomic():
        row: Row | None = of_admins.select_for_update().first()
        if row is not None:
            assert isinstance(row, AdminInvitation)
            _must_make_admins(by)
            return change(ADMINS, _open(row), _writable(row.tenant_id))  # type: ignore[no-any-return]  # as `change` says
    if tenant_id is None:
        raise UnknownInvitation
    with in_tenant(tenant_id) as tenant, END_USERS.atomic():
        row = EndUserInvitation.objects.select_for_update().filter(pk=invitation_id).first()
        if row is None:
            raise UnknownInvitation
        return change(END_USERS, _open(row), tenant)  # type: ignore[no-any-return]  # as `change` says


def _must_make_admins(by: Principal) -> None:
    if not (by.is_admin and by.may("admins:write")):
        raise InsufficientScope("Inviting an admin user needs the permission admins:write.", scope="admins:write")


def _reject_beyond(by: Principal, row: Row) -> None:
    """GrantsMoreThanHeld unless the caller could grant what the invitation grants."""
    if isinstance(row, AdminInvitation):
        grantable_roles(row.roles, row.tenant_id, by)
        return
    roles = Role.objects.filter(pk__in=row.roles).values_list("permissions", flat=True)
    require_grantable(by, {permission for permissions in roles for permission in permissions})


def _open(row: Row) -> Row:
    if row.accepted_at is not None or row.cancelled_at is not None:
        raise InvitationClosed
    return row


# --- for whoever was invited -----------------------------------------------------------------------------------------


def accept_invitation(*, token: str, password: str, username: str | None = None, name: str = "") -> Accepted:
    """Become the user one was invited to become; gives it with an enrollment ticket. A token works once.

    `username` is an admin user's, by default the address. Raises InvitationInvalid (unknown, used, cancelled,
    expired), WeakPassword (the token stays good), AdminNameTaken, EmailTaken, TenantSuspended, TenantBusy,
    TooManyFromAddress, HashersBusy.
    """
    attempts.limit_address("registration")
    attempts.reject_guessing_address()
    try:
        tenant_id = place_of(token)
        if tenant_id is None:
            return _accept_as_admin(token, password, username, name)
        with in_tenant(tenant_id) as tenant:
            return _accept_as_end_user(tenant, token, password, name)
    except (NotAToken, UnknownTenant, InvitationInvalid, GrantsMoreThanHeld) as problem:
        attempts.count_wrong_secret()
        raise InvitationInvalid from problem


def _accept_as_admin(token: str, password: str, username: str | None, name: str) -> Accepted:
    invitation = _acceptable(AdminInvitation, token)
    _writable(invitation.tenant_id)
    username = username or invitation.email
    first, _, last = name.partition(" ")
    # An address may be longer than a username, and a name longer than either half of it.
    if len(username) > LONGEST_NAME:
        raise ValidationFailed(details={"username": [f"Choose one of at most {LONGEST_NAME} characters."]})
    if max(len(first), len(last)) > LONGEST_NAME:
        raise ValidationFailed(
            details={"name": [f"Send at most {LONGEST_NAME} characters before and after the blank."]}
        )
    inviter = inviter_now(invitation)
    if not inviter.may("admins:write"):
        raise InvitationInvalid
    with ADMINS.atomic():
        _spend(AdminInvitation, invitation)
        # The inviter proved enough when it invited. Its rights are those that it has now.
        grantable_roles(invitation.roles, invitation.tenant_id, inviter)
        user, ticket = create_admin_user(
            tenant_id=invitation.tenant_id,
            username=username,
            email=invitation.email,
            password=password,
            first_name=first,
            last_name=last,
            roles=invitation.roles,
        )
        _close(ADMINS, AdminInvitation, invitation, user.pk, invitation.tenant_id)
    return Accepted(user, ADMIN, invitation.tenant_id, None, ticket)


def _accept_as_end_user(tenant: lookup.TenantContext, token: str, password: str, name: str) -> Accepted:
    invitation = _acceptable(EndUserInvitation, token)
    if not Client.objects.filter(pk=invitation.client_id, tenant_id=tenant.tenant_id, active=True).exists():
        raise InvitationInvalid
    least = tenant.setting("password_min_length")
    passwords.check_strength(password, least=least, personal=(invitation.email, name))
    _reject_taken(END_USERS, invitation.email_key)
    user = EndUser(
        email=invitation.email,
        email_key=invitation.email_key,
        name=name,
        provider=LOCAL,
        client_id=invitation.client_id,
        password=passwords.hashed(password),
        # The token came by mail to this very address.
        email_verified_at=now(),
    )
    try:
        with END_USERS.atomic():
            _spend(EndUserInvitation, invitation)
            yielding.release_addresses([invitation.email_key], to="invitation")
            user.save(force_insert=True)
            roles = list(Role.objects.filter(Q(name=DEFAULT_ROLE) | Q(pk__in=invitation.roles)))
            granted = {p for role in roles if role.name != DEFAULT_ROLE for p in role.permissions}
            if granted:
                require_grantable(inviter_now(invitation), granted)
            RoleBinding.objects.bulk_create(RoleBinding(user=user, role=role) for role in roles)
            ticket = tickets.open_enrollment(END_USERS, user, cause="invitation")
            _close(END_USERS, EndUserInvitation, invitation, user.pk, tenant.tenant_id)
            publish("end_user.created", person(user, via="invitation"))
            publish("invitation.accepted", _data(invitation, user_id=user.pk))
    except IntegrityError as clash:
        raise EmailTaken from clash
    return Accepted(user, END_USER, tenant.tenant_id, invitation.client_id, ticket)


def _acceptable(model: Any, token: str) -> Any:
    found = with_status(model.objects.filter(token_digest=hash_token(token)), PENDING).first()
    if found is None:
        raise InvitationInvalid
    return found


def _spend(model: Any, invitation: Row) -> None:
    """One statement, so that of many at once one wins; an error after it gives the token back."""
    same_token = model.objects.filter(pk=invitation.pk, token_digest=invitation.token_digest)
    if not with_status(same_token, PENDING).update(accepted_at=now()):
        raise InvitationInvalid


def _close(realm: Realm, model: Any, invitation: Row, user_id: UUID, tenant_id: UUID | None) -> None:
    model.objects.filter(pk=invitation.pk).update(user_id=user_id)
    # The address has a user now; what else was sent to it is worthless.
    with_status(model.objects.filter(email_key=invitation.email_key), PENDING).update(cancelled_at=now())
    _record(realm, "invitation.accepted", invitation, tenant_id, user_id=str(user_id))


# --- what both kinds have in common ----------------------------------------------------------------------------------


def _common(by: Principal, email: str, token: str) -> dict[str, Any]:
    return {
        "email": email,
        "email_key": email_key(email),
        "invited_by_kind": by.kind,
        "invited_by_id": by.id,
        "token_digest": hash_token(token),
        "expires_at": now() + LIFETIME,
    }


def _writable(tenant_id: UUID | None) -> lookup.TenantContext | None:
    if tenant_id is None:
        return None
    tenant = lookup.find(tenant_id)
    tenant.check(Purpose.WRITE)
    return tenant


def _reject_taken(realm: Realm, key: str) -> None:
    """Raise EmailTaken or AdminNameTaken if a user has the address.

    An end user's record that was registered and never used does not count, nor an admin user's unverified address.
    """
    if realm is not END_USERS:
        reject_reserved_address(key)
    elif yielding.holds_address(key):
        raise EmailTaken


def _place(realm: Realm, tenant: lookup.TenantContext | None) -> UUID | None:
    return tenant.tenant_id if realm is END_USERS and tenant is not None else None


def _mail(row: Row, token: str, tenant: lookup.TenantContext | None) -> None:
    # Admin users are the platform's: a tenant's own page is for its end users.
    page = tenant.setting("invitation_url") if tenant and row.kind == END_USER else settings.INVITATION_URL
    facts = {
        "issuer": proofs.issuer_of(tenant) if tenant else PLATFORM,
        "kind": row.kind,
        # Behind the `#` it is sent to no server, so it stands in no log and in no Referer.
        "link": f"{page}#token={token}",
        "token": token,
        "days": LIFETIME.days,
    }
    mail.tell(
        "invitation",
        to=row.email,
        facts=facts,
        after="tenant" if row.kind == END_USER else "default",
        tenant_id=tenant.tenant_id if tenant else None,
    )


def _record(realm: Realm, action: str, row: Row, tenant_id: UUID | None, **details: Any) -> None:
    realm.record(action, target=("invitation", row.pk), tenant_id=tenant_id, details={"kind": row.kind, **details})


def _data(row: EndUserInvitation, **more: Any) -> dict[str, Any]:
    """What events tell of an invitation; the token is for whoever was invited alone."""
    shown = {"invitation_id": row.pk, "email": row.email, "client_id": row.client_id, "expires_at": row.expires_at}
    return {**shown, **more}
