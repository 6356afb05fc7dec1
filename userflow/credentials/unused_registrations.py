"""Unused registrations: such a record gives its e-mail address up to the owner of the address.

Anyone can register an address that is not theirs. Until the user has signed in or the address is verified, the record
proves nothing, so it must neither block the owner nor hand over what was set up in it (Sudhodanan and Paverd 2022,
"Pre-hijacked accounts"). A later registration, an accepted invitation, a directory, an import or another user who
verifies the address gets the address: the record is deleted with its password, factors, tickets and windows, and the
new user has a new id. Webhooks get `end_user.erased` for the old id.

Users that an admin, a client with `endusers:write`, an import or a directory created do not yield.
"""

from collections.abc import Collection
from uuid import UUID

from django.utils.timezone import now

from identity_platform.audit.writer import record_for_each_in_tenant
from userflow.accounts.models import EndUser
from userflow.accounts.realms import END_USERS
from userflow.credentials import attempts
from userflow.events import outbox
from userflow.events.outbox import publish_for_each
from userflow.user_index.entries import unindex_after_commit


def holds_address(key: str) -> bool:
    """Whether a user has the address (by its `email_key`) for good, so that it does not yield."""
    return EndUser.objects.filter(email_key=key).exclude(EndUser.YIELDS).exists()


def registered_from_here(key: str) -> bool:
    """Whether a record with this address was registered by the caller's network within the last minutes.

    A form that is sent twice is a conflict and must not discard what was set up after the first time.
    """
    network = attempts.caller_network()
    own = END_USERS.windows._default_manager.filter(
        user__email_key=key, cause="registration", network=network, expires_at__gt=now()
    )
    return network is not None and own.exists()


def release_addresses(keys: Collection[str], *, to: str) -> list[UUID]:
    """Delete the records that yield these addresses (`email_key`); return their ids.

    `to` is written to the audit log: registration, invitation, directory, import, verification. Call it in the
    tenant's transaction, before the new owner is stored. A sign-in at the same moment either keeps the record or fails:
    it locks the same row.
    """
    yielding = EndUser.objects.filter(EndUser.YIELDS, email_key__in=keys).order_by("pk")
    ids = list(yielding.select_for_update().values_list("pk", flat=True))
    if not ids:
        return []
    EndUser.objects.filter(pk__in=ids).delete()
    unindex_after_commit(ids)
    for user_id in ids:
        attempts.forget(END_USERS, user_id)
    record_for_each_in_tenant("end_user.superseded", kind="end_user", ids=ids, details={"by": to})
    outbox.forget(ids)
    publish_for_each("end_user.erased", ({"user_id": user_id} for user_id in ids))
    return ids
