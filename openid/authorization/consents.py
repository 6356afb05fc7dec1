"""Consents: what users let applications have. Call everything here inside the tenant."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef

from identity_platform.audit.writer import record_for_tenant
from openid.authorization.parameters import OFFLINE_ACCESS, mapped_to_consent, scopes_to_consent
from openid.models import AuthorizationCode, AuthorizationRequest, Consent
from tenants.entering.context import current_tenant, tenant_atomic
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserRefreshToken, EndUserSession
from userflow.sessions.ending import AT_ONCE, end_found
from userflow.sessions.userinfo_audience import is_userinfo


def delete_codes_of_client(sender: object, *, client_id: UUID, **_: object) -> None:
    """Delete the unused codes and unfinished requests of a client: none is valid after it is activated again, or has got a
    security profile.
    """
    AuthorizationCode.objects.filter(client_id=client_id, used_at=None).delete()
    AuthorizationRequest.objects.filter(client_id=client_id).delete()


def grant_consent(
    *,
    user_id: UUID,
    client_id: UUID,
    scopes: Collection[str],
    audiences: Collection[str] = (),
    claims: Collection[str] = (),
) -> None:
    """Store that the user consents to these scopes, audiences and mapped claims, beside those consented to before."""
    with tenant_atomic():
        Consent.objects.get_or_create(user_id=user_id, client_id=client_id)
        # Two requests of one application at the same moment: neither loses a scope.
        consent = Consent.objects.select_for_update().get(user_id=user_id, client_id=client_id)
        consent.scopes = sorted({*consent.scopes, *scopes})
        consent.audiences = sorted({*consent.audiences, *audiences})
        consent.claims = sorted({*consent.claims, *claims})
        consent.save(update_fields=["scopes", "audiences", "claims", "updated_at"])
        details = {"scopes": sorted(scopes), "audiences": sorted(audiences), "claims": sorted(claims)}
        record_for_tenant("consent.granted", target=("client", client_id), details=details)


def end_sessions_without_consent(sender: object, *, client_id: UUID, **_: object) -> None:
    """End the sessions of a client that its users have not consented to, and those that have a refresh token without
    `offline_access`: a client that is not first-party would not have got them. Call it in a transaction.
    """
    refreshable = EndUserRefreshToken.objects.filter(session_id=OuterRef("pk"))
    opened = EndUserSession._default_manager.filter(client_id=client_id, ended_at=None).exclude(audiences=[])
    columns = ("pk", "user_id", "scopes", "audiences", "userinfo_claims", "refreshable")
    rows = opened.annotate(refreshable=Exists(refreshable)).order_by("pk").values_list(*columns)
    some = list(rows[:AT_ONCE])
    while some:
        _end_without_consent(client_id, some)
        some = list(rows.filter(pk__gt=some[-1][0])[:AT_ONCE])


def _end_without_consent(client_id: UUID, opened: Sequence[tuple[Any, ...]]) -> None:
    tenant = current_tenant()
    users = {user_id for _, user_id, *_ in opened}
    consents = {consent.user_id: consent for consent in Consent.objects.filter(client_id=client_id, user_id__in=users)}
    ended = []
    for pk, user_id, scopes, audiences, claims, offline in opened:
        consent = consents.get(user_id)
        resource_audiences = {audience for audience in audiences if not is_userinfo(audience, tenant)}
        covered = (
            consent is not None
            and scopes_to_consent(scopes, claims) <= set(consent.scopes)
            and resource_audiences <= set(consent.audiences)
            and mapped_to_consent(claims) <= set(consent.claims)
        )
        if not covered or (offline and OFFLINE_ACCESS not in scopes):
            ended.append(pk)
    end_found(END_USERS, EndUserSession._default_manager.filter(pk__in=ended), reason="consent_required")
