"""Where an end user comes from: who keeps the password, and which fields the source sets.

`provider` of a user is `local`, the kind of a directory, or a name that an admin or an import has chosen. Registration,
passwords, verified addresses, import and directories ask here.
"""

from typing import Final, TypeGuard

from django.db.models import Q

from userflow.accounts.models import LOCAL, Account, EndUser

# The fields of a linked user that a directory sets with each run, as events name them. All others belong to the tenant.
DIRECTORY_FIELDS: Final = ("app_metadata", "email", "metadata", "name")

# End users who may get a link to set a password. The name of another provider counts only with a verified address: it may have
# been chosen by the caller who registered the address first.
MAY_RESET_PASSWORD: Final = Q(provider=LOCAL) | Q(email_verified_at=None)


def normalized_provider(name: str) -> str:
    """Return the provider's name as it is stored: `local` in any case is `local`."""
    return LOCAL if name.lower() == LOCAL else name


def is_foreign(user: Account) -> TypeGuard[EndUser]:
    """Return whether another provider keeps the user's password. Passwords of admin users are always here."""
    return isinstance(user, EndUser) and user.provider != LOCAL


def is_local(provider: str) -> bool:
    """Return whether passwords of users of this provider are here, so that anyone may register with it."""
    return provider == LOCAL
