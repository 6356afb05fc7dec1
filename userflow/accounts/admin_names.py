"""Find admin users by the names that they sign in with, and say which of them may."""

from django.db import models
from django.db.models.functions import Lower
from django.db.models.lookups import Exact

from identity_platform.api.email_addresses import key_of_spelling
from identity_platform.api.typed_text import trimmed
from tenants.states import Purpose, allowing
from userflow.accounts.models import AdminUser


def username_is(username: str) -> models.Q:
    """The condition that finds the admin user of this name, in any case.

    By the expression of the unique index. Django's `iexact` compares upper-case forms, and there dotless i and long s
    are I and S: one tenant's admin could take a name that the sign-in of another one finds.
    """
    return models.Q(Exact(Lower("username"), Lower(models.Value(username))))


def address_is(key: str) -> models.Q:
    """The condition of the admin user that an address (its `email_key`) names.

    This is the user who has verified the address. An unverified address names its user only while no other
    user has it: anyone who creates admin users can give them any address.
    """
    others = AdminUser.objects.filter(email_key=key).exclude(pk=models.OuterRef("pk"))
    return models.Q(email_key=key) & (models.Q(email_verified_at__isnull=False) | models.Q(~models.Exists(others)))


def key_of_name(name: str) -> str:
    """Return the key that attempts at an unknown name are counted by: all spellings of a name share their attempts.

    Those at a user's name do, so a difference would tell which names exist.
    """
    return key_of_spelling(name) or trimmed(name).lower()


def admins_named(name: str) -> models.QuerySet[AdminUser]:
    """The admin user of this username or e-mail address, in any spelling of either; the first one counts.

    A username may have the form of an address. The user who has verified that address comes first.
    """
    name = trimmed(name)
    key = key_of_spelling(name)
    if key is None:
        return AdminUser.objects.filter(username_is(name))
    rank = models.Case(
        models.When(email_key=key, email_verified_at__isnull=False, then=0),
        models.When(username_is(name), then=1),
        default=2,
    )
    return AdminUser.objects.filter(username_is(name) | address_is(key)).order_by(rank)


def may_enter() -> models.Q:
    """Return the condition that the admin user's tenant lets its own admins in. Operators have no tenant."""
    return models.Q(tenant=None) | models.Q(tenant__database__status__in=allowing(Purpose.READ))
