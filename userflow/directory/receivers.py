"""Signal receivers of directories."""

from userflow.accounts.models import EndUser
from userflow.directory.models import DirectoryLink


def keep_admins_decision(sender: object, *, user: EndUser, **_: object) -> None:
    """Forget that a directory had deactivated the user: a user that an admin deactivates stays so at the next run."""
    DirectoryLink.objects.filter(user=user).update(switched_off=False)
