"""Accept an invitation: its token creates the user."""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q
from django.utils.timezone import now

from identity_platform.api.errors import ValidationFailed
from identity_platform.crypto import hash_token
from identity_platform.postgresql.row_errors import unique_or
from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tenants.errors import UnknownTenant
from tenants.states import Purpose
from userflow.accounts.event_payloads import person
from userflow.accounts.models import (
    DEFAULT_ROLE,
    LOCAL,
    LONGEST_NAME,
    AdminUser,
    Client,
    EndUser,
    Role,
    RoleBinding,
    TenantClient,
)
from userflow.accounts.principals import CLIENT, Principal
from userflow.accounts.rank import require_grantable
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.admins.actions import create_admin_user, grantable_roles
from userflow.credentials import attempts, passwords, tickets, unused_registrations
from userflow.errors import EmailTaken, GrantsMoreThanHeld, InvitationInvalid
from userflow.events.outbox import publish
from userflow.invitations.models import ADMIN, END_USER, PENDING, AdminInvitation, EndUserInvitation, Invitation
from userflow.invitations.queries import Invited, Row, event_data, record, with_status
from userflow.mailed_tokens import NotAToken, place_of


@dataclass(frozen=True, slots=True)
class Accepted:
    """The user created from an invitation, and a ticket to enroll a first factor."""

    user: AdminUser | EndUser
    kind: str
    tenant_id: UUID | None
    client_id: UUID | None
    enrollment_ticket: str | None


def accept_invitation(*, token: str, password: str, username: str | None = None, name: str = "") -> Accepted:
    """Create the invited user. Return it with an enrollment ticket. A token works once.

    `username` is for admin users; the default is the address. Raises InvitationInvalid (unknown, used, cancelled,
    expired), WeakPassword (the token stays valid), AdminNameTaken, EmailTaken, TenantSuspended, TenantBusy,
    TooManyFromAddress, HashersBusy.
    """
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
    invitation = _pending(AdminInvitation, token)
    if invitation.tenant_id is not None:
        lookup.find_row(invitation.tenant_id).check(Purpose.WRITE)
    username = username or invitation.email
    first, _, last = name.partition(" ")
    # An address may be longer than a username, and a name longer than either half of it.
    if len(username) > LONGEST_NAME:
        raise ValidationFailed(details={"username": [f"Choose one of at most {LONGEST_NAME} characters."]})
    if max(len(first), len(last)) > LONGEST_NAME:
        raise ValidationFailed(
            details={"name": [f"Send at most {LONGEST_NAME} characters before and after the first space."]}
        )
    inviter = inviter_now(invitation)
    if not inviter.may("admins:write"):
        raise InvitationInvalid
    with ADMINS.atomic():
        _consume(invitation)
        # Checked against the permissions that the inviter holds now. The inviter authenticated when inviting.
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
        _finish(ADMINS, invitation, user.pk, invitation.tenant_id)
    return Accepted(user, ADMIN, invitation.tenant_id, None, ticket)


def _accept_as_end_user(tenant: lookup.TenantContext, token: str, password: str, name: str) -> Accepted:
    invitation = _pending(EndUserInvitation, token)
    if not TenantClient.objects.filter(pk=invitation.client_id, active=True).exists():
        raise InvitationInvalid
    least = tenant.effective["password_min_length"]
    passwords.check_strength(password, least=least, personal=(invitation.email, name))
    if unused_registrations.holds_address(invitation.email_key):
        raise EmailTaken
    user = EndUser(
        email=invitation.email,
        email_key=invitation.email_key,
        name=name,
        provider=LOCAL,
        client_id=invitation.client_id,
        app_metadata=invitation.app_metadata,
        external_id=invitation.external_id,
        password=passwords.hashed(password),
        # The token came by mail to this very address.
        email_verified_at=now(),
    )
    # The invited user cannot choose another external id.
    with unique_or(EmailTaken, end_user_external_id_unique=InvitationInvalid), END_USERS.atomic():
        _consume(invitation)
        if invitation.writes_for_applications and not inviter_now(invitation).may("endusers:write"):
            raise InvitationInvalid
        unused_registrations.release_addresses([invitation.email_key], to="invitation")
        user.save(force_insert=True)
        roles = list(Role.objects.filter(Q(name=DEFAULT_ROLE) | Q(pk__in=invitation.roles)))
        granted = {p for role in roles if role.name != DEFAULT_ROLE for p in role.permissions}
        if granted:
            require_grantable(inviter_now(invitation), granted)
        RoleBinding.objects.bulk_create(RoleBinding(user=user, role=role) for role in roles)
        ticket = tickets.open_enrollment(END_USERS, user, cause="invitation")
        _finish(END_USERS, invitation, user.pk, tenant.tenant_id)
        publish("end_user.created", person(user, via="invitation"))
        publish("invitation.accepted", event_data(invitation, user_id=user.pk))
    return Accepted(user, END_USER, tenant.tenant_id, invitation.client_id, ticket)


def _pending(model: type[Invited], token: str) -> Invited:
    invitation: Invited | None = with_status(
        model._default_manager.filter(token_digest=hash_token(token)), PENDING
    ).first()
    if invitation is None:
        raise InvitationInvalid
    return invitation


def _consume(invitation: Row) -> None:
    """Mark the invitation accepted, in one statement, so that one of several requests wins. A rollback undoes it."""
    same_token = type(invitation)._default_manager.filter(pk=invitation.pk, token_digest=invitation.token_digest)
    if not with_status(same_token, PENDING).update(accepted_at=now()):
        raise InvitationInvalid


def _finish(realm: Realm, invitation: Row, user_id: UUID, tenant_id: UUID | None) -> None:
    """Link the user and cancel other invitations to the address, which has a user now."""
    rows = type(invitation)._default_manager
    rows.filter(pk=invitation.pk).update(user_id=user_id)
    with_status(rows.filter(email_key=invitation.email_key), PENDING).update(cancelled_at=now())
    record(realm, "invitation.accepted", invitation, tenant_id, user_id=str(user_id))


def inviter_now(invitation: Invitation) -> Principal:
    """Return the inviter with its current permissions: none if that user or client is deleted or deactivated.

    An invitation is valid for a week. It must not grant what the inviter has lost in the meantime.
    """
    tenant_id, permissions = _current_permissions(invitation.invited_by_kind, invitation.invited_by_id)
    return Principal(
        kind=invitation.invited_by_kind,
        id=invitation.invited_by_id,
        tenant_id=tenant_id,
        client_id=invitation.invited_by_id if invitation.invited_by_kind == CLIENT else None,
        session_id=None,
        roles=(),
        permissions=frozenset(permissions),
    )


def _current_permissions(kind: str, inviter_id: UUID) -> tuple[UUID | None, set[str]]:
    if kind == CLIENT:
        client = Client.objects.filter(pk=inviter_id, active=True).first()
        return (client.tenant_id, set(client.scopes)) if client else (None, set())
    user = AdminUser.objects.prefetch_related("roles").filter(pk=inviter_id, active=True).first()
    if user is None:
        return None, set()
    return user.tenant_id, {permission for role in user.roles.all() for permission in role.permissions}
