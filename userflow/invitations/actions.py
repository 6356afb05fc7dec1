"""Invite, list, resend and cancel: invitations of admin users and of end users.

The token exists only in the mail. It names the database of its invitation, so accepting needs one look-up.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError
from django.db.models import Q, QuerySet
from django.utils.timezone import now

from identity_platform.api.email_addresses import email_key
from identity_platform.api.errors import InsufficientScope
from identity_platform.api.pagination import Page, page_of
from identity_platform.crypto import hash_token
from identity_platform.postgresql.row_errors import first_or
from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tenants.errors import TenantRequired
from tenants.states import Purpose
from userflow.accounts.models import Client, EndUser, Role
from userflow.accounts.permissions_catalogue import OPERATOR, TENANT_ADMIN
from userflow.accounts.principals import Principal
from userflow.accounts.rank import require_grantable
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.admins.actions import grantable_roles, hold_roles, reject_reserved_address
from userflow.credentials import unused_registrations
from userflow.errors import (
    AlreadyInvited,
    EmailTaken,
    ExternalIdTaken,
    InvitationClosed,
    UnknownClient,
    UnknownInvitation,
)
from userflow.events.outbox import publish
from userflow.invitations.models import ADMIN, END_USER, EXPIRED, PENDING, AdminInvitation, EndUserInvitation
from userflow.invitations.queries import (
    InvitationRecord,
    Row,
    event_data,
    merged_page,
    record,
    shown,
    with_role_names,
    with_status,
)
from userflow.mail.budgets import limit_mails
from userflow.mail.queue import queue_mail
from userflow.mail.rendering import link_facts
from userflow.mailed_tokens import placed_token
from userflow.roles.actions import roles_named
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.permissions import require

LIFETIME = timedelta(days=7)
PLATFORM = "Identity platform"


def invite(
    *,
    by: Principal,
    tenant_id: UUID | None,
    email: str,
    kind: str,
    roles: Sequence[str] | None = None,
    client_id: UUID | None = None,
    app_metadata: dict[str, object] | None = None,
    external_id: str | None = None,
) -> InvitationRecord:
    """Invite an admin user (of a tenant, or an operator without `tenant_id`) or an end user.

    `app_metadata` and `external_id` are for an end user and need `endusers:write`.

    The mail is sent once the invitation is stored. An address has one open invitation of a kind in a tenant; a new one
    replaces an expired one. Raises EmailTaken (a user has the address, active or not), AlreadyInvited, UnknownRole,
    ExternalIdTaken, InsufficientScope, GrantsMoreThanHeld, NotAllowed (an admin, without `admins:write`), UnknownClient,
    TenantRequired, UnknownTenant, TenantSuspended, TenantBusy, TooManyFromAddress (too many invitations),
    InsufficientAuthentication (an admin, or roles).
    """
    if kind == ADMIN or roles:
        require_assurance(Action.GRANT_ROLES, by)
    limit_mails("invitation", str(by.id), "You have sent too many invitations.")
    if kind == ADMIN:
        return _invite_admin(by, tenant_id, email, roles)
    if tenant_id is None:
        raise TenantRequired
    given = {"app_metadata": app_metadata or {}, "external_id": external_id}
    return _invite_end_user(by, tenant_id, email, roles or (), client_id, given)


def _invite_admin(by: Principal, tenant_id: UUID | None, email: str, roles: Sequence[str] | None) -> InvitationRecord:
    _require_admins_write(by)
    tenant = _writable(tenant_id)
    granted = grantable_roles(roles or [TENANT_ADMIN if tenant_id else OPERATOR], tenant_id, by)
    _reject_taken(ADMINS, email_key(email))
    token = placed_token(None)
    row = AdminInvitation(**_common(by, email, token), tenant_id=tenant_id, roles=sorted(role.name for role in granted))
    with ADMINS.atomic():
        hold_roles(granted)
        _save_as_only_one(ADMINS, row, AdminInvitation.objects.filter(Q(tenant_id=tenant_id)))
        record(ADMINS, "invitation.made", row, tenant_id, roles=row.roles)
        _mail(row, token, tenant)
    return shown(row, tenant_id, row.roles)


def _invite_end_user(
    by: Principal,
    tenant_id: UUID,
    email: str,
    roles: Sequence[str],
    client_id: UUID | None,
    given: Mapping[str, object],
) -> InvitationRecord:
    client_condition = Q(is_default=True) if client_id is None else Q(pk=client_id, active=True)
    client = first_or(Client.objects.filter(client_condition, tenant_id=tenant_id), UnknownClient)
    with in_tenant(tenant_id) as tenant:
        _reject_taken(END_USERS, email_key(email))
        token = placed_token(tenant_id)
        row = EndUserInvitation(**_common(by, email, token), client_id=client.pk, **given)
        _check_given(by, row)
        with END_USERS.atomic():
            granted = roles_named(roles)
            require_grantable(by, {permission for role in granted for permission in role.permissions})
            row.roles = sorted(str(role.pk) for role in granted)
            _save_as_only_one(END_USERS, row, EndUserInvitation.objects.all())
            record(END_USERS, "invitation.made", row, tenant_id, roles=row.roles)
            publish("invitation.created", event_data(row, roles=sorted(role.name for role in granted)))
            _mail(row, token, tenant)
    return shown(row, tenant_id, [role.name for role in granted])


def _save_as_only_one(realm: Realm, row: Row, of_kind: "QuerySet[Row]") -> None:
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
    """Return one page of a tenant's invitations of both kinds, newest first; without a tenant all of admin users.

    `status` is pending, accepted, cancelled or expired; `purpose` is what the tenant is entered for. Raises UnknownTenant,
    TenantSuspended, TenantBusy.
    """
    admins = with_status(AdminInvitation.objects.all(), status)
    if tenant_id is None:
        invitations = admins if kind != END_USER else admins.none()
        part = page_of(invitations.order_by("-created_at", "-id"), page, limit)
        return replace(part, rows=[shown(row, row.tenant_id, row.roles) for row in part.rows])
    with in_tenant(tenant_id, purpose):
        sources: dict[str, QuerySet[Row]] = {
            ADMIN: admins.filter(tenant_id=tenant_id),
            END_USER: with_status(EndUserInvitation.objects.all(), status),
        }
        if kind is not None:
            sources = {kind: sources[kind]}
        return merged_page(sources, tenant_id, page, limit)


def resend_invitation(*, by: Principal, tenant_id: UUID | None, invitation_id: UUID) -> InvitationRecord:
    """Send the mail again, with a new token and seven new days; the previous token becomes invalid.

    This renews expired invitations too, so the caller must be allowed to create the invitation, and becomes the inviter.
    Raises UnknownInvitation, InvitationClosed (accepted or cancelled), NotAllowed (an admin's invitation, without
    `admins:write`), UnknownRole, GrantsMoreThanHeld, EmailTaken, TooManyFromAddress (too many mails of the caller),
    InsufficientAuthentication (as in `invite`).
    """
    with _locked(by, tenant_id, invitation_id) as (realm, row, tenant):
        if row.kind == ADMIN or row.roles:
            require_assurance(Action.GRANT_ROLES, by)
        _require_grantable_roles(by, row)
        limit_mails("invitation", str(by.id), "You have sent too many invitations.")
        _reject_taken(realm, row.email_key)
        home = realm.home(tenant)
        token = placed_token(home.tenant_id if home else None)
        row.token_digest, row.expires_at = hash_token(token), now() + LIFETIME
        # The caller answers for it from now on: the first inviter may have left, and then accepting would fail.
        row.invited_by_kind, row.invited_by_id = by.kind, by.id
        row.save(update_fields=["token_digest", "expires_at", "invited_by_kind", "invited_by_id"])
        record(realm, "invitation.sent_again", row, tenant.tenant_id if tenant else None)
        _mail(row, token, tenant)
        return with_role_names(row, tenant)


def cancel_invitation(*, by: Principal, tenant_id: UUID | None, invitation_id: UUID) -> InvitationRecord:
    """Invalidate an invitation and its token.

    Raises UnknownInvitation, InvitationClosed, NotAllowed (an admin's invitation, without `admins:write`).
    """
    with _locked(by, tenant_id, invitation_id) as (realm, row, tenant):
        row.cancelled_at = now()
        row.save(update_fields=["cancelled_at"])
        record(realm, "invitation.cancelled", row, tenant.tenant_id if tenant else None)
        return with_role_names(row, tenant)


@contextmanager
def _locked(
    by: Principal, tenant_id: UUID | None, invitation_id: UUID
) -> Iterator[tuple[Realm, Row, lookup.TenantContext | None]]:
    """Lock an open invitation, in the global database or in the tenant's, for the transaction of the block."""
    of_admins = AdminInvitation.objects.filter(pk=invitation_id)
    if tenant_id is not None:
        of_admins = of_admins.filter(tenant_id=tenant_id)
    with ADMINS.atomic():
        admin_row = of_admins.select_for_update().first()
        if admin_row is not None:
            _require_admins_write(by)
            _reject_closed(admin_row)
            yield ADMINS, admin_row, _writable(admin_row.tenant_id)
            return
    if tenant_id is None:
        raise UnknownInvitation
    with in_tenant(tenant_id) as tenant, END_USERS.atomic():
        row = first_or(EndUserInvitation.objects.select_for_update().filter(pk=invitation_id), UnknownInvitation)
        _reject_closed(row)
        yield END_USERS, row, tenant


def _require_admins_write(by: Principal) -> None:
    if not (by.is_admin and by.may("admins:write")):
        raise InsufficientScope("Inviting an admin user needs the permission admins:write.", scope="admins:write")


def _require_grantable_roles(by: Principal, row: Row) -> None:
    """Raise GrantsMoreThanHeld unless the caller could grant the roles of the invitation."""
    if isinstance(row, AdminInvitation):
        grantable_roles(row.roles, row.tenant_id, by)
        return
    _check_given(by, row)
    roles = Role.objects.filter(pk__in=row.roles).values_list("permissions", flat=True)
    require_grantable(by, {permission for permissions in roles for permission in permissions})


def _check_given(by: Principal, row: EndUserInvitation) -> None:
    """Raise InsufficientScope or ExternalIdTaken if the caller may not give the user what the invitation says."""
    if row.writes_for_applications:
        require(by, "endusers:write")
    if row.external_id is not None and EndUser.objects.filter(external_id=row.external_id).exists():
        raise ExternalIdTaken


def _reject_closed(row: Row) -> None:
    if row.accepted_at is not None or row.cancelled_at is not None:
        raise InvitationClosed


def _common(by: Principal, email: str, token: str) -> dict[str, object]:
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
    return lookup.find(tenant_id).check(Purpose.WRITE)


def _reject_taken(realm: Realm, key: str) -> None:
    """Raise EmailTaken or AdminNameTaken if a user has the address.

    An end user's record that was registered and never used does not count, nor an admin user's unverified address.
    """
    if realm is not END_USERS:
        reject_reserved_address(key)
    elif unused_registrations.holds_address(key):
        raise EmailTaken


def _mail(row: Row, token: str, tenant: lookup.TenantContext | None) -> None:
    # Admin users belong to the platform: a tenant's own page is for its end users.
    page = tenant.effective["invitation_url"] if tenant and row.kind == END_USER else settings.INVITATION_URL
    facts = {
        "issuer": tenant.effective["issuer_name"] if tenant else PLATFORM,
        "kind": row.kind if tenant else OPERATOR,
        **link_facts(page, token),
        "days": LIFETIME.days,
    }
    queue_mail(
        "invitation",
        to=row.email,
        facts=facts,
        after="tenant" if row.kind == END_USER else "default",
        tenant_id=tenant.tenant_id if tenant else None,
    )
