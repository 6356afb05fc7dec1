"""The first verification of an address ends what was set up before.

Anyone can register an address of someone else, sign in, enroll a factor and wait until the owner of the address uses the
account (Sudhodanan and Paverd 2022, "Pre-hijacked accounts"). So a factor guards against the mailbox only once the
address is verified. Until then the owner of the mailbox is the owner of the account: a password reset by mail, or a
verification that does not show that its sender is the registrant, removes what it finds.
"""

from typing import Final

from django.db import IntegrityError
from django.utils.timezone import now

from identity_platform.hooks import Hook
from userflow.accounts.event_payloads import person
from userflow.accounts.models import LOCAL, Account, EndUser
from userflow.accounts.realms import END_USERS, Realm
from userflow.accounts.sources import is_foreign
from userflow.credentials import tickets
from userflow.credentials.unused_registrations import end_pending
from userflow.events.outbox import publish
from userflow.sessions.ending import end_sessions

# Password reset links go to the mailbox itself, so they stay.
_ENDED_TICKETS = (tickets.SECOND_STEP, tickets.ENROLLMENT, tickets.PROOF, tickets.PASS, tickets.REMEMBERED)
# The owner of a mailbox takes over a user whose address was never verified. Called in the realm's transaction, with the
# user's row locked. The function removes the factors and returns how many there were.
factor_removal: Final[Hook[[Realm, Account], int]] = Hook()


def verify_by_reset(realm: Realm, user: Account) -> None:
    """Mark the address verified if it never was: the user opened a link in a mail.

    Factors go, and a provider other than `local`. Call it in the transaction of the reset, which ends sessions and tickets,
    with the user's row locked.
    """
    if user.email_verified_at is not None:
        return
    user.email_verified_at = now()
    changes: dict[str, object] = {"email_verified_at": user.email_verified_at}
    was_foreign = is_foreign(user)
    if is_foreign(user):
        changes["provider"] = user.provider = LOCAL
    try:
        with realm.atomic():
            realm.users._default_manager.filter(pk=user.pk).update(**changes, updated_at=now())
    except IntegrityError:
        # Another admin user has verified the address since the mail was sent: it is no longer this user's.
        return
    factor_removal.call(realm, user)
    realm.record_about(user, "email.proven", {"by": "password_reset"})
    realm.model_of("email_proof")._default_manager.filter(user_id=user.pk).delete()
    if isinstance(user, EndUser):
        end_pending([user.email_key])
        if was_foreign:
            publish("end_user.updated", person(user, changed=["provider"]))
        publish("end_user.email_verified", {"user_id": user.pk, "email": user.email})


def end_unverified_use(user: EndUser) -> dict[str, int]:
    """End the sessions, tickets and windows, and remove the factors, of a user whose address was not verified until now.

    Return how many sessions and factors there were. Call it in the tenant's transaction with the user's row locked.
    """
    ended = end_sessions(END_USERS, user_id=user.pk, reason="email_verified")
    END_USERS.tickets._default_manager.filter(user_id=user.pk, purpose__in=_ENDED_TICKETS).delete()
    END_USERS.windows._default_manager.filter(user_id=user.pk).delete()
    return {"sessions": ended, "factors": sum(factor_removal.call(END_USERS, user))}
