"""A user's data as a file (GDPR articles 15 and 20): what the tenant's database has about the user, without secrets.

Users get their own at the account page; admins get it for users who ask for it in another way.
"""

from typing import Final
from uuid import UUID

import orjson
from django.db.models import Q
from django.http import HttpRequest, HttpResponse

from identity_platform.audit.models import TenantEvent
from identity_platform.audit.writer import record_for_tenant
from identity_platform.postgresql.row_errors import first_or
from mfa.factors import list_factors
from mfa.sms.actions import confirmed_number
from openid.account.applications import connected_applications
from openid.pages.journey import SignedInPage
from tenants.entering.context import in_tenant
from userflow.accounts.models import EndUser
from userflow.accounts.principals import Principal
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.credentials.models import EmailProof, EndUserEmailUndo
from userflow.endusers.actions import read_end_user
from userflow.errors import UnknownUser
from userflow.profile.actions import read_profile
from userflow.sessions.permissions import reading, require
from userflow.signin.remembered_browsers import remembered_devices

# The newest are in the file; `audit_events_left_out` tells of older ones.
MOST_EVENTS: Final = 10_000
# What an admin must be allowed to read for the file of another user.
DATA_NEEDS: Final = ("endusers:read", "groups:read", "roles:read", "sessions:read", "audit:read")
_SESSION: Final = (
    "id",
    "parent_id",
    "client_id",
    "created_at",
    "last_used_at",
    "auth_time",
    "expires_at",
    "ended_at",
    "end_reason",
    "address",
    "user_agent",
    "amr",
    "acr",
    "scopes",
    "audiences",
    "id_token_claims",
    "userinfo_claims",
)
_EVENT: Final = ("at", "action", "outcome", "actor_kind", "actor_id", "target_kind", "target_id", "address", "details")


class DataPage(SignedInPage):
    """The user's own data as a file."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Return everything as JSON."""
        factors = list_factors(realm=END_USERS, tenant_id=self.tenant.tenant_id, user_id=self.user.pk)
        data: dict[str, object] = {"profile": read_profile(of=self.me), "factors": factors}
        with self.entered():
            data |= data_about(self.user)
        response = HttpResponse(orjson.dumps(data, option=orjson.OPT_INDENT_2), content_type="application/json")
        response.headers["Content-Disposition"] = 'attachment; filename="my-data.json"'
        return response


def export_user_data(*, tenant_id: UUID, user_id: UUID, by: Principal) -> dict[str, object]:
    """Return all data about another user, for an admin who may read every part of it. Every export is audited.

    Raises InsufficientScope, UnknownUser, UnknownTenant, TenantSuspended, TenantBusy.
    """
    for permission in DATA_NEEDS:
        require(by, permission)
    purpose = reading(by)
    with in_tenant(tenant_id, purpose):
        user = first_or(EndUser.objects.filter(pk=user_id), UnknownUser)
        record_for_tenant("end_user.data_downloaded", target=("end_user", user.pk))
        return {
            "profile": read_end_user(tenant_id=tenant_id, user_id=user_id, purpose=purpose),
            "factors": list_factors(realm=END_USERS, tenant_id=tenant_id, user_id=user_id, purpose=purpose),
            # The list of factors has the number masked; only the user's own file names all of it.
            **{name: value for name, value in data_about(user).items() if name != "phone_number"},
        }


def data_about(user: EndUser) -> dict[str, object]:
    """Return what is stored about a user besides profile and factors. Call it inside the tenant.

    All sessions that are kept, also ended ones. Secrets and their hashes are left out.
    """
    sessions = EndUserSession._default_manager.filter(user_id=user.pk).order_by("-created_at")
    events = TenantEvent.objects.filter(Q(actor_id=str(user.pk)) | Q(target_id=str(user.pk)))
    newest = list(events.order_by("-id").values(*_EVENT)[: MOST_EVENTS + 1])
    return {
        "email_verified_at": user.email_verified_at,
        "phone_number": confirmed_number(user.pk),
        "pending_email_changes": list(EmailProof.objects.filter(user=user).values("email", "created_at", "expires_at")),
        "former_emails": list(EndUserEmailUndo.objects.filter(user=user).values("email", "created_at", "expires_at")),
        "sessions": list(sessions.values(*_SESSION)),
        "remembered_browsers": [
            {name: getattr(browser, name) for name in ("used_at", "expires_at", "address", "user_agent")}
            for browser in remembered_devices(user.pk)
        ],
        "applications": connected_applications(user.pk),
        "audit_events": [_event(event, user.pk) for event in newest[:MOST_EVENTS]],
        "audit_events_left_out": len(newest) > MOST_EVENTS,
    }


def _event(stored: dict[str, object], user_id: UUID) -> dict[str, object]:
    """Return an event without what it tells about other people: who has changed the user, and from where."""
    if stored["actor_id"] in (str(user_id), ""):
        return stored
    return {name: value for name, value in stored.items() if name not in ("actor_id", "address")}
