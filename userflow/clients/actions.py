"""Clients, the applications of a tenant: create, change, rotate secrets, delete; and the default client."""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils.timezone import now

from identity_platform.api.errors import Unavailable, ValidationFailed
from identity_platform.api.pagination import Page, filtered, page_of
from identity_platform.audit.differences import differences
from identity_platform.audit.writer import record_for_platform
from identity_platform.crypto import hash_token, new_token
from identity_platform.postgresql.row_errors import first_or
from identity_platform.row_checks import RowCheck, no_check
from tenants.entering import lookup
from tenants.entering.context import in_tenant
from tenants.errors import TenantSuspended
from tenants.models import Tenant
from tenants.records.tenant_records import list_webhooks
from tenants.states import Purpose
from userflow.accounts.admin_notices import notify_of_routes
from userflow.accounts.client_fields import CONFIDENTIAL, PUBLIC
from userflow.accounts.client_records import CLIENT_DELETED, CLIENTS, changing_client
from userflow.accounts.models import Client, Role
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION, USERS_ONLY_PERMISSIONS
from userflow.accounts.principals import Principal
from userflow.accounts.rank import Reach, require_reach
from userflow.clients.reach import STRONGER, require_reach_of, routed_fields
from userflow.clients.registration import (
    becomes_first_party,
    check_metadata,
    ends_direct_sign_in,
    gets_profile,
    is_like_a_secret,
    needs_consent,
    with_profile,
)
from userflow.clients.session_changes import apply_changes, note_change
from userflow.errors import DefaultClientStays, NoClientSecret, UnknownClient
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.client_authentication import KEY_METHODS

DEFAULT_CLIENT = "Default client"
# A prefix lets scanners for leaked secrets recognize it.
SECRET_PREFIX = "ics_"
PERMISSION = re.compile(r"[a-z][a-z0-9_.-]{0,62}:[a-z][a-z0-9_.*-]{0,62}")
PLATFORM_RESOURCES = frozenset(permission.split(":")[0] for permission in EVERY_PERMISSION)


def create_default_client(sender: object, *, tenant: Tenant, **_: object) -> None:
    """Create the default client of a new tenant: public, first-party, open for self-registration, not deletable."""
    Client.objects.create(
        tenant=tenant, name=DEFAULT_CLIENT, type=PUBLIC, is_default=True, first_party=True, self_registration=True
    )


def list_clients(
    *, tenant_id: UUID, page: int, limit: int, active: bool | None = None, name: str = "", tags: Sequence[str] = ()
) -> Page:
    """Return one page of a tenant's clients, newest first, with `name` in their name and all of the `tags`."""
    matching = Client.objects.filter(tenant_id=tenant_id, name__icontains=name, tags__contains=tags)
    clients = filtered(matching, active=active)
    return page_of(clients.order_by("-created_at", "id"), page, limit)


def find_client(*, tenant_id: UUID, client_id: UUID) -> Client:
    """Return one client of the tenant. Raises UnknownClient."""
    return first_or(Client.objects.filter(pk=client_id, tenant_id=tenant_id), UnknownClient)


def create_client(
    *,
    tenant_id: UUID,
    by: Principal,
    name: str,
    type: str = PUBLIC,
    scopes: Iterable[str] = (),
    **fields: Any,
) -> tuple[Client, str | None]:
    """Create a client. Return it and, for a confidential one, its secret, which is stored hashed and never shown again.
    A client that authenticates with a key has no secret.

    `fields`: `tags`, `project_id`, `owner_id` (default: the caller), `self_registration`, `active`, and the metadata that
    `check_metadata` checks; a `security_profile` sets those that it demands. Raises UnknownTenant, TenantSuspended, TenantBusy,
    ValidationFailed, GrantsMoreThanHeld, InsufficientAuthentication (a confidential or first-party client, audiences, or
    scopes). A first-party client can be created by those who may decide about it (`clients.reach`).
    """
    scopes, fields = set(scopes), with_profile(Client(type=type), fields)
    # Redirect URIs of a new client that asks its users for consent reach nothing that they have not consented to.
    reach: dict[str, Any] = {name: fields[name] for name in ("audiences", "first_party") if name in fields}
    if type == CONFIDENTIAL or is_like_a_secret(Client(), reach):
        require_assurance(Action.WRITE_CLIENT_SECRET, by)
    if scopes:
        require_assurance(Action.GRANT_ROLES, by)
    lookup.find(tenant_id).check(Purpose.WRITE)
    fields.setdefault("owner_id", str(by.id))
    client = Client(
        tenant_id=tenant_id, name=name, type=type, scopes=granted(scopes, tenant_id=tenant_id, by=by), **fields
    )
    acts_as_users = require_reach_of(client, by)
    check_metadata(client)
    secret = new_token(SECRET_PREFIX) if has_secret(client) else None
    client.secret_digest = hash_token(secret) if secret else None
    with CLIENTS.changing(tenant_id, client.pk):
        client.save(force_insert=True)
        _list_for_delivery(client)
        _record("client.created", client, {"type": type, "scopes": client.scopes})
        if acts_as_users:
            _notify(client, by, routed_fields(Client(), fields))
    return client, secret


def update_client(
    *, tenant_id: UUID, client_id: UUID, by: Principal, changes: dict[str, Any], check: RowCheck = no_check
) -> Client:
    """Change the given fields, those of `create_client`. The type cannot change.

    A client that authenticates with a key from now on loses its secrets. One that is first-party no longer loses the sessions
    that its users have not consented to; one that gets a security profile loses all sessions and tokens from before. The
    tenant's admins are told of a change of what a first-party client can receive.
    Raises UnknownClient, ValidationFailed, GrantsMoreThanHeld (a client that can act as more than the caller holds, before or
    after the change), InsufficientAuthentication (new scopes, redirect URIs, audiences or origins, the device grant, another
    key or way to authenticate, to require PAR or DPoP no longer, to make it first-party or no longer so, or to deactivate it;
    all that routes tokens of a first-party client; to set a security profile or to take it away).
    """
    changes = dict(changes)
    active = changes.pop("active", None)
    stated_type = changes.pop("type", None)
    with changing_client(tenant_id, client_id) as client:
        check()
        changes = with_profile(client, changes)
        if set(changes.get("scopes", ())) - set(client.scopes):
            require_assurance(Action.GRANT_ROLES, by)
        routed = routed_fields(client, changes)
        if is_like_a_secret(client, changes) or (client.first_party and routed):
            require_assurance(Action.WRITE_CLIENT_SECRET, by)
        withdrawn = client.first_party and False in (changes.get("first_party"), changes.get("direct_sign_in"))
        new_profile = gets_profile(client, changes)
        if withdrawn or new_profile or (active is False and client.active):
            require_assurance(Action.END_SESSIONS_OF_OTHERS, by)
        require_reach(by, Reach(frozenset(client.scopes)), STRONGER)
        changes_state = active is not None and active != client.active
        acts_as_users = bool(routed or changes_state) and require_reach_of(
            client, by, first_party=becomes_first_party(client, changes)
        )
        if stated_type not in (None, client.type):
            raise ValidationFailed(details={"type": ["The type of a client cannot be changed. Create a new client."]})
        if "scopes" in changes:
            changes["scopes"] = granted(changes["scopes"], tenant_id=tenant_id, by=by, held_scopes=client.scopes)
        before = copy(client)
        for field, value in changes.items():
            setattr(client, field, value)
        check_metadata(client, before)
        secrets = () if has_secret(client) else _drop_secrets(client)
        if new_profile:
            # Its own tokens end.
            client.generation += 1
        client.save(update_fields=[*changes, *secrets, "generation", "updated_at"])
        ends = {
            "ends_unconsented": needs_consent(before, client),
            "ends_direct": ends_direct_sign_in(before, client),
            "ends_before_profile": new_profile,
        }
        follows = any(ends.values()) or bool(before.backchannel_logout_uri) != bool(client.backchannel_logout_uri)
        if follows:
            note_change(client, **ends)
        # The state of the client does not reject sessions without consent: a deliverer ends them if this process cannot.
        _list_for_delivery(client, required=any(ends.values()))
        if changes:
            _record("client.updated", client, differences(vars(before), vars(client), changes.keys()))
        if acts_as_users and routed:
            _notify(client, by, routed)
    if follows:
        _apply_changes(tenant_id)
    if active is not None and active != client.active:
        return set_client_active(tenant_id=tenant_id, client_id=client_id, by=by, active=active)
    return client


def set_client_active(*, tenant_id: UUID, client_id: UUID, by: Principal, active: bool) -> Client:
    """Activate or deactivate a client. Deactivation ends its tokens and its users' sessions for good.

    Raises UnknownClient, GrantsMoreThanHeld (a client that holds more than the caller), TenantSuspended and TenantBusy (to
    activate), InsufficientAuthentication (to deactivate).
    """
    if not active:
        require_assurance(Action.END_SESSIONS_OF_OTHERS, by)
    before = find_client(tenant_id=tenant_id, client_id=client_id)
    require_reach_of(before, by)
    if active and not before.active:
        lookup.find(tenant_id).check(Purpose.WRITE)
        # Sessions that are left date from before the deactivation and must not become valid again.
        note_change(before, ends_sessions=True)
        apply_changes(tenant_id)
    with changing_client(tenant_id, client_id, may_lag=not active) as client:
        acts_as_users = require_reach_of(client, by)
        if client.active and not active:
            client.generation += 1
        if not active:
            note_change(client, ends_sessions=True)
            _list_for_delivery(client, may_lag=True)
        client.active = active
        client.save(update_fields=["active", "generation", "updated_at"])
        _record("client.activated" if active else "client.deactivated", client)
        if acts_as_users and before.active != active:
            _notify(client, by, ["active"])
    if not active:
        # The client's state already rejects these sessions. Activating the client ends what is left.
        _apply_changes(tenant_id)
    return client


def _list_for_delivery(client: Client, *, required: bool = False, may_lag: bool = False) -> None:
    """List the tenant among those that a deliverer looks after. Call it in the transaction of the client."""
    if required or client.backchannel_logout_uri:
        list_webhooks(client.tenant_id, may_lag=may_lag)


def _apply_changes(tenant_id: UUID) -> None:
    """Let the sessions follow a change now if they can: an unavailable tenant must not prevent it."""
    with suppress(TenantSuspended, Unavailable, OperationalError, InterfaceError):
        apply_changes(tenant_id)


def rotate_client_secret(
    *,
    tenant_id: UUID,
    client_id: UUID,
    by: Principal,
    overlap_seconds: int | None = None,
    check: RowCheck = no_check,
) -> tuple[Client, str]:
    """Create a new secret. The previous one stays valid for `overlap_seconds` (default: CLIENT_SECRET_OVERLAP_SECONDS).

    Older secrets end now. Raises UnknownClient, NoClientSecret (public client), InsufficientAuthentication,
    GrantsMoreThanHeld (the secret would give the caller scopes that the caller lacks).
    """
    require_assurance(Action.WRITE_CLIENT_SECRET, by)
    secret = new_token(SECRET_PREFIX)
    overlap = settings.CLIENT_SECRET_OVERLAP_SECONDS if overlap_seconds is None else overlap_seconds
    with changing_client(tenant_id, client_id) as client:
        check()
        acts_as_users = require_reach_of(client, by)
        if not has_secret(client):
            raise NoClientSecret
        client.previous_secret_digest = client.secret_digest if overlap else None
        client.previous_secret_until = now() + timedelta(seconds=overlap) if overlap else None
        client.secret_digest = hash_token(secret)
        client.save(update_fields=["secret_digest", "previous_secret_digest", "previous_secret_until", "updated_at"])
        _record("client.secret_rotated", client, {"overlap_seconds": overlap})
        if acts_as_users:
            _notify(client, by, ["client_secret"])
    return client, secret


def has_secret(client: Client) -> bool:
    """Return whether the client authenticates with a secret."""
    return client.type == CONFIDENTIAL and client.token_endpoint_auth_method not in KEY_METHODS


def _drop_secrets(client: Client) -> tuple[str, ...]:
    """Remove the secrets, so that none works again when the client gets another way to authenticate."""
    client.secret_digest = client.previous_secret_digest = client.previous_secret_until = None
    return "secret_digest", "previous_secret_digest", "previous_secret_until"


def delete_client(*, tenant_id: UUID, client_id: UUID, by: Principal) -> None:
    """Delete a client and its tokens; its users stay. It still gets the logout tokens of their sessions.

    Raises UnknownClient, DefaultClientStays, GrantsMoreThanHeld, InsufficientAuthentication.
    """
    require_assurance(Action.END_SESSIONS_OF_OTHERS, by)
    with changing_client(tenant_id, client_id, may_lag=True) as client:
        acts_as_users = require_reach_of(client, by)
        if client.is_default:
            raise DefaultClientStays
        _record(CLIENT_DELETED, client)
        if acts_as_users:
            _notify(client, by, ["deleted"])
        note_change(client, ends_sessions=True)
        _list_for_delivery(client, may_lag=True)
        client.delete()
    _apply_changes(tenant_id)


def _notify(client: Client, by: Principal, fields: Iterable[str]) -> None:
    notify_of_routes(
        tenant_id=client.tenant_id, by=by, what=f'The first-party client "{client.name}"', fields=list(fields)
    )


def _record(action: str, client: Client, details: dict[str, object] | None = None) -> None:
    record_for_platform(action, tenant_id=client.tenant_id, target=("client", client.pk), details=details)


def granted(scopes: Iterable[str], *, tenant_id: UUID, by: Principal, held_scopes: Iterable[str] = ()) -> list[str]:
    """Return the sorted scopes, if the caller may grant those that the client does not hold yet.

    A scope is a platform permission that clients may hold, or a permission of one of the tenant's roles. The caller must
    hold it (`userflow.accounts.rank`). Raises ValidationFailed, GrantsMoreThanHeld.
    """
    sorted_scopes = sorted(set(scopes))
    new = set(sorted_scopes) - set(held_scopes)
    platform_scopes = {scope for scope in new if scope.partition(":")[0] in PLATFORM_RESOURCES}
    role_scopes = new - platform_scopes
    wrong = sorted((platform_scopes - set(EVERY_PERMISSION)) | (platform_scopes & set(USERS_ONLY_PERMISSIONS)))
    if role_scopes:
        with in_tenant(tenant_id, Purpose.READ):
            known = {
                scope for permissions in Role.objects.values_list("permissions", flat=True) for scope in permissions
            }
        wrong += sorted(role_scopes - known)
    if wrong:
        # Repeat only well-formed names: a secret sent in the wrong field must not appear in the response.
        shown = [scope for scope in wrong if PERMISSION.fullmatch(scope)] or ["one of the scopes"]
        raise ValidationFailed(details={"scopes": [f"Unknown scope: {name}." for name in shown]})
    require_reach(by, Reach(frozenset(new)))
    return sorted_scopes
