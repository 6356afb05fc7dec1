"""Let the sessions of a client's users follow its changes: the client is in the global database, they are in the tenant's.

A change is noted in its own transaction and applied right after it. While the tenant is busy the note waits, and the deliverer
of logout tokens applies it.
"""

from uuid import UUID

from django.db import transaction

from tenants.entering.context import in_tenant, tenant_atomic
from tenants.states import Purpose
from userflow import signals
from userflow.accounts.models import Client
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserSession
from userflow.clients.models import PendingClientChange
from userflow.events import logouts
from userflow.sessions.ending import AT_ONCE, end_found


def note_change(
    client: Client,
    *,
    ends_sessions: bool = False,
    ends_unconsented: bool = False,
    ends_direct: bool = False,
    ends_before_profile: bool = False,
) -> None:
    """Note that the sessions follow the client's logout address, or that they end: all, those without consent, those that
    the client has opened by JSON, or all that it had before it got a security profile.

    Call it in the transaction of the change.

    What is noted before and not yet applied stays noted.
    """
    noted: dict[str, object] = {
        "tenant_id": client.tenant_id,
        "backchannel_logout_uri": client.backchannel_logout_uri,
        "signed_response_alg": client.id_token_signed_response_alg,
    }
    if ends_sessions:
        noted["ends_sessions"] = True
    if ends_unconsented:
        noted["ends_unconsented"] = True
    if ends_direct:
        noted["ends_direct"] = True
    if ends_before_profile:
        noted["ends_before_profile"] = True
    PendingClientChange.objects.update_or_create(client_id=client.pk, defaults=noted)


def apply_changes(tenant_id: UUID) -> None:
    """Apply what is noted of the tenant's clients, also while it is suspended.

    A session that was opened with the client as it was before, at the same moment, ends without a logout token. Raises
    UnknownTenant, TenantSuspended, TenantBusy.
    """
    for client_id in list(PendingClientChange.objects.filter(tenant_id=tenant_id).values_list("pk", flat=True)):
        with transaction.atomic():
            # The lock lets one process apply a change: the client may be activated, and have new sessions, right after it.
            change = PendingClientChange.objects.select_for_update().filter(pk=client_id).first()
            if change is not None:
                with in_tenant(tenant_id, Purpose.SIGN_OUT), tenant_atomic():
                    _apply(change)
                change.delete()


def _apply(change: PendingClientChange) -> None:
    sessions = EndUserSession._default_manager.filter(client_id=change.client_id)
    if not change.ends_sessions:
        told = bool(change.backchannel_logout_uri)
        others = sessions.filter(ended_at=None, backchannel_logout=not told).exclude(audiences=[])
        while some := list(others.values_list("pk", flat=True)[:AT_ONCE]):
            sessions.filter(pk__in=some).update(backchannel_logout=told)
        if change.ends_unconsented:
            signals.client_needs_consent.send(apply_changes, client_id=change.client_id)
        if change.ends_direct:
            direct = sessions.filter(parent=None, audiences=[])
            end_found(END_USERS, direct, reason="direct_sign_in_disabled")
        if change.ends_before_profile:
            # Also what is bound to a key: it was asked for by other rules, and which algorithm the key has is not stored.
            end_found(END_USERS, sessions, reason="security_profile_set")
            signals.client_sessions_ended.send(apply_changes, client_id=change.client_id)
        return
    end_found(END_USERS, sessions, reason="client_deactivated")
    signals.client_sessions_ended.send(apply_changes, client_id=change.client_id)
    logouts.keep_address(change.client_id, address=change.backchannel_logout_uri, algorithm=change.signed_response_alg)
