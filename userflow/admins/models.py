"""Admin users: operators of the platform and admins of one tenant, all in the global database."""

import uuid
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, transaction
from django.db.models.functions import Lower
from django.db.models.lookups import Exact
from django.utils.timezone import now

from identity_platform.api.email_addresses import AddressInvalid, email_address, email_key, key_of_spelling
from tenants.models import Tenant
from tenants.states import Purpose, allowing
from userflow.permissions_catalogue import OPERATOR

# Of a username, a first and a last name.
LONGEST_NAME = 150


def username_is(username: str) -> models.Q:
    """The condition that finds the admin user of this name, in any case.

    By the expression of the unique index. Django's `iexact` compares upper-case forms, and there dotless i and long s
    are I and S: one tenant's admin could take a name that the sign-in of another one finds.
    """
    return models.Q(Exact(Lower("username"), Lower(models.Value(username))))


def address_is(key: str) -> models.Q:
    """The condition of the admin user that an address (its `email_key`) names.

    This is the user who has verified the address. An address that nobody has verified names its user only while no other
    one states it: anyone who makes admin users can state any address.
    """
    others = AdminUser.objects.filter(email_key=key).exclude(pk=models.OuterRef("pk"))
    return models.Q(email_key=key) & models.Q(
        models.Q(email_verified_at__isnull=False) | models.Q(~models.Exists(others))
    )


def admins_named(name: str) -> models.QuerySet["AdminUser"]:
    """The admin user of this username or e-mail address, in any spelling of either; the first one counts.

    A username may have the form of an address. The user who has verified that address comes first.
    """
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


class AdminRole(models.Model):
    """A named set of permissions for admin users. The built-in ones are made by a migration."""

    name = models.CharField(max_length=63, unique=True)
    permissions: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list)

    def __str__(self) -> str:
        return self.name


class AdminUserManager(BaseUserManager["AdminUser"]):
    """What Django's `createsuperuser` needs."""

    def create_superuser(self, username: str, email: str, password: str | None = None, **extra: Any) -> "AdminUser":
        """An operator, from the command line. Raises Django's ValidationError, which the command shows as one line."""
        # The command asks these itself only where somebody types, and lets them be passed over.
        validate_password(password or "")
        try:
            address = email_address(email)
        except AddressInvalid as problem:
            raise ValidationError("This is not an e-mail address that the platform takes.") from problem
        username = username.strip()
        if not username or not username.isprintable():
            raise ValidationError("The username must be one line that is not blank.")
        if "@" in username and username.lower() != address.lower():
            raise ValidationError("A username with an @ must be the user's own e-mail address.")
        user = self.model(username=username, email=address, email_verified_at=now(), **extra)
        user.set_password(password)
        try:
            with transaction.atomic(using=self._db):
                user.save(using=self._db)
                user.roles.add(AdminRole.objects.get(name=OPERATOR))
        except IntegrityError as clash:
            raise ValidationError("Another admin user has this username or e-mail address.") from clash
        return user


class AdminUser(AbstractBaseUser):
    """Signs in to the global side. Without a tenant: an operator, staff of the platform."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    username = models.CharField(max_length=LONGEST_NAME)
    email = models.CharField(max_length=254)
    # Lower-case form: two spellings of one address are one person.
    email_key = models.CharField(max_length=254, editable=False)
    # An address is reserved once it is verified: by its mail, or by who made the user on the machine.
    email_verified_at = models.DateTimeField(null=True, editable=False)
    first_name = models.CharField(max_length=LONGEST_NAME, blank=True)
    last_name = models.CharField(max_length=LONGEST_NAME, blank=True)
    tenant = models.ForeignKey(Tenant, null=True, blank=True, on_delete=models.CASCADE, related_name="admin_users")
    active = models.BooleanField(default=True)
    roles = models.ManyToManyField(AdminRole, related_name="admin_users", blank=True)
    # Kept by the mfa app in the same transaction as the factor itself, so that signing in needs no second query.
    mfa_methods: "models.JSONField[list[str], list[str]]" = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects: ClassVar[AdminUserManager] = AdminUserManager()

    USERNAME_FIELD: ClassVar[str] = "username"
    EMAIL_FIELD: ClassVar[str] = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = ["email"]

    class Meta:
        constraints = [
            models.UniqueConstraint(Lower("username"), name="admin_username_unique"),
            models.UniqueConstraint(
                fields=["email_key"], condition=models.Q(email_verified_at__isnull=False), name="admin_email_unique"
            ),
            # Within a tenant (and among operators) two are a mistake; whoever makes one sees the other.
            models.UniqueConstraint(
                fields=["tenant", "email_key"],
                condition=models.Q(email_verified_at__isnull=True),
                nulls_distinct=False,
                name="admin_email_unverified_unique",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "-created_at", "id"], name="admin_newest_first"),
            models.Index(fields=["email_key"], name="admin_email"),
        ]

    def __str__(self) -> str:
        return self.username

    def save(self, *args: Any, **kwargs: Any) -> None:
        """The key follows the address, whoever saves."""
        self.email_key = email_key(self.email)
        super().save(*args, **kwargs)

    @property
    def is_active(self) -> bool:  # type: ignore[override]  # Django reads it; the column is called `active`
        return self.active

    @property
    def is_staff(self) -> bool:
        """Whether Django may show its admin: tenant admins work in the console too, and see their own tenant there."""
        return self.active

    def has_perm(self, permission: str, obj: object = None) -> bool:
        """Never: Django's permissions mean nothing here. The console asks for the platform's own (console.access)."""
        return False

    def has_module_perms(self, app_label: str) -> bool:
        """Never, see `has_perm`."""
        return False
