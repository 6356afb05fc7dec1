"""What a client can act as, and which of its fields decide where the codes and tokens of its users are sent."""

from collections.abc import Mapping
from typing import Any, Final

from django.db import InterfaceError, OperationalError
from django.db.models import Q
from django.utils.timezone import now

from identity_platform.api.errors import ApiError
from tenants.entering.context import in_tenant
from tenants.states import Purpose
from userflow.accounts.grant_types import grant_types_in_force
from userflow.accounts.models import Client
from userflow.accounts.principals import Principal
from userflow.accounts.rank import EVERYTHING, Reach, require_reach
from userflow.accounts.session_models import EndUserSession
from userflow.clients.models import PendingClientChange

# Every other field counts as one that does, also one that is added later.
HARMLESS_FIELDS: Final = frozenset(
    {
        "name",
        "tags",
        "project_id",
        "owner_id",
        "self_registration",
        "logo_uri",
        "client_uri",
        "policy_uri",
        "tos_uri",
        "default_max_age",
        "access_token_seconds",
    }
)
STRONGER: Final = "This client holds permissions that you do not hold."
FIRST_PARTY: Final = (
    "A first-party client acts with everything that its users may do. Only an admin with all permissions of the role "
    "tenant-admin, or an operator with them, can create one or change what it can receive."
)


def routed_fields(client: Client, changes: Mapping[str, Any]) -> set[str]:
    """Return the changed fields that decide what the client can receive, by whom it is used and how it authenticates."""
    return {
        name
        for name in changes.keys() - HARMLESS_FIELDS
        if _comparable(client, name, changes[name]) != _comparable(client, name, getattr(client, name))
    }


def _comparable(client: Client, name: str, value: Any) -> Any:
    """Return the value without what does not count: the order of lists, and whether the default grant types are named."""
    if name == "grant_types":
        value = grant_types_in_force(value, type_=client.type, scopes=client.scopes)
    return set(value) if isinstance(value, list) else value


def require_reach_of(client: Client, by: Principal | None, *, first_party: bool = False) -> bool:
    """Raise GrantsMoreThanHeld unless the caller may decide about the client. Return whether it acts as users without consent.

    `first_party`: the change makes it first-party. A caller who takes a stronger client's secret, or sends its users
    elsewhere, would in the end hold what it can act as.
    """
    require_reach(by, Reach(frozenset(client.scopes)), STRONGER)
    acts_as_users = first_party or _acts_as_users(client)
    if acts_as_users:
        require_reach(by, EVERYTHING, FIRST_PARTY)
    return acts_as_users


def _acts_as_users(client: Client) -> bool:
    """Return whether the client is first-party, or holds sessions from when it was."""
    pending = PendingClientChange.objects.filter(Q(ends_unconsented=True) | Q(ends_direct=True), pk=client.pk)
    if client.first_party or pending.exists():
        return True
    if client._state.adding:
        return False
    try:
        with in_tenant(client.tenant_id, Purpose.SIGN_OUT):
            # Of a sign-in without OpenID Connect: no scopes limit it.
            sessions = EndUserSession._default_manager.filter(client_id=client.pk, ended_at=None, expires_at__gt=now())
            return sessions.filter(audiences=[]).exists()
    except (ApiError, OperationalError, InterfaceError):
        return True  # unknown
