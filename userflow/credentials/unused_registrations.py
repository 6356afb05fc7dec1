"""Unused registrations: such a record gives its e-mail address up to the owner of the address.

Anyone can register an address that is not theirs. Until the user has signed in or the address is verified, the record
proves nothing, so it must neither block the owner nor hand over what was set up in it (Sudhodanan and Paverd 2022,
"Pre-hijacked accounts"). An accepted invitation, a directory, an import, a registration by an admin, another registration
whose address is verified, or another user who verifies the address gets the address: the record is deleted with its
password, factors, tickets and windows, and the new user has a new id. Webhooks get `end_user.erased` for the old id. It
does not yield to another registration that proves nothing either.

Users that an admin, a client with `endusers:write`, an import or a directory created do not yield.
"""

from collections.abc import Collection
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils.timezone import now

from identity_platform.audit.writer import record_for_each_in_tenant
from userflow.accounts.models import DEFAULT_ROLE, EndUser, GroupMembership, RoleBinding
from userflow.accounts.realms import END_USERS
from userflow.credentials import attempts
from userflow.credentials.models import EndUserEmailUndo, PendingRegistration
from userflow.events import outbox
from userflow.events.outbox import publish_for_each


def holds_address(key: str) -> bool:
    """Whether a user has the address (by its `email_key`) for good, so that it does not yield."""
    return EndUser.objects.filter(email_key=key).exclude(EndUser.YIELDS).exists()


def giving_way(key: str) -> "QuerySet[EndUser]":
    """Return the users with this address who give way to a registration whose address is verified.

    Unused registrations, and unused users without a password whom an admin or an import created and who have been given
    nothing that applications trust: a registration is mailed to the owner of the address, but its password may be another
    person's, who must not get what an admin gave to the owner. The owner of such a user sets the password by a reset.
    """
    bare = Q(external_id=None, metadata={}, app_metadata={})
    unused = EndUser.objects.filter(
        EndUser.YIELDS | bare & Q(active=True, email_verified_at=None, last_login=None, password=""), email_key=key
    )
    roles = RoleBinding.objects.filter(user=OuterRef("pk")).exclude(role__name=DEFAULT_ROLE)
    return unused.exclude(Exists(roles)).exclude(Exists(GroupMembership.objects.filter(user=OuterRef("pk"))))


def reserving(key: str) -> Q:
    """The condition of the end users who can still take this address back.

    No other user can register it until then: with a stolen account, an attacker could otherwise block the undo.
    """
    valid = EndUserEmailUndo.objects.filter(email_key=key, expires_at__gt=now())
    return Q(pk__in=valid.values("user_id"))


def end_pending(keys: Collection[str]) -> None:
    """End the registrations that wait for these addresses (`email_key`): a user has verified the address.

    Call it in the tenant's transaction, with the user's row locked.
    """
    waiting = PendingRegistration.objects.filter(email_key__in=keys)
    # In one order: two transactions could deadlock otherwise.
    ids = list(waiting.order_by("pk").select_for_update().values_list("pk", flat=True))
    if ids:
        PendingRegistration.objects.filter(pk__in=ids).delete()


def release_addresses(keys: Collection[str], *, to: str) -> list[UUID]:
    """Delete the records that yield these addresses (`email_key`); return their ids.

    Registrations that wait for the addresses end too, unless the new owner proves as little (`to` is registration). `to` is
    written to the audit log: registration, invitation, directory, import, verification. Call it in the
    tenant's transaction, before the new owner is stored. A sign-in at the same moment either keeps the record or fails:
    it locks the same row.
    """
    unused_users = EndUser.objects.filter(EndUser.YIELDS, email_key__in=keys).order_by("pk")
    ids = list(unused_users.select_for_update().values_list("pk", flat=True))
    if to != "registration":
        end_pending(keys)
    if not ids:
        return []
    EndUser.objects.filter(pk__in=ids).delete()
    for user_id in ids:
        attempts.forget(END_USERS, user_id)
    record_for_each_in_tenant("end_user.superseded", kind="end_user", ids=ids, details={"by": to})
    outbox.forget(ids)
    publish_for_each("end_user.erased", ({"user_id": user_id} for user_id in ids))
    return ids
