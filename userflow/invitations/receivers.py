"""What invitations do when an end user is erased."""

from uuid import UUID

from django.db.models import Q

from userflow.accounts.models import EndUser
from userflow.invitations.models import EndUserInvitation


def delete_invitations_of(sender: object, *, user: EndUser, **_: object) -> tuple[type[EndUserInvitation], list[UUID]]:
    """Delete the invitations of the user's address and the one by which the user joined; return model and ids.

    An open invitation would let the user in again, with its roles. The one that the user has accepted holds an address
    of the user too, which may have changed since. Invitations go before the user: accepting one locks the invitation
    and then the address, and the other order could end in a deadlock.
    """
    theirs = EndUserInvitation.objects.filter(Q(email_key=user.email_key) | Q(user_id=user.pk))
    ids = list(theirs.values_list("pk", flat=True))
    EndUserInvitation.objects.filter(pk__in=ids).delete()
    return EndUserInvitation, ids
