"""End users, their roles and groups (in the tenant's database); clients and admin users (in the global one)."""

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, transaction
from django.db.models.functions import Collate, Lower, Now
from django.utils.timezone import now

from identity_platform.api.email_addresses import AddressInvalid, email_address, email_key
from identity_platform.audit.writer import record_for_tenant
from identity_platform.hooks import Hook
from identity_platform.restoring import AfterRestore, Journaled, NoAuthority, RestoredRow, Revocation
from tenants.entering.context import current_tenant
from tenants.models import GlobalCopy, Tenant, TenantModel
from userflow.accounts import principals
from userflow.accounts.client_fields import ClientFields
from userflow.accounts.permissions_catalogue import OPERATOR
from userflow.events.models import WebhookMessage

if TYPE_CHECKING:
    StringsField = models.JSONField[list[str], list[str]]


class Account(models.Model):
    """A user of either realm: an end user in a tenant's database, or an admin user in the global one."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    email = models.CharField(max_length=254)
    # Lower-case form: PostgreSQL's upper() folds letters that lower() keeps apart.
    email_key = models.CharField(max_length=254)
    email_verified_at = models.DateTimeField(null=True)
    active = models.BooleanField(default=True)
    password = models.CharField(max_length=512, blank=True, default="")
    # A password proves nothing in a session that was last verified before it was set (`userflow.signin.proofs`). Rows from
    # before this column have the time of its migration: when their password was set is unknown, which is the weakest case.
    password_changed_at = models.DateTimeField(default=now, db_default=Now())
    # Kept by the mfa app in the same transaction as the factor itself, so that signing in needs no second query.
    mfa_methods: "StringsField" = models.JSONField(default=list)
    last_login = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    # Whether the tenant's policy for e-mail addresses applies.
    address_policy_applies: ClassVar[bool] = False

    class Meta:
        abstract = True

    @property
    def principal_kind(self) -> str:
        """The kind of principal that the user is (`userflow.accounts.principals`)."""
        raise NotImplementedError

    @property
    def home_tenant_id(self) -> uuid.UUID | None:
        """The tenant that the user belongs to; None for operators."""
        raise NotImplementedError

    @property
    def names(self) -> tuple[str, ...]:
        """The user's own names, which must not be the password."""
        raise NotImplementedError

    @property
    def own_language(self) -> str:
        """The language that the user has chosen for pages and mails, or ""."""
        return ""


# What identifies a row among all that ever have its id, which may be used again after a restore.
THIS_ROW: Final = "id, (extract(epoch from created_at) * 1000000)::bigint"

# What identifies a password, however often it is hashed again.
THIS_PASSWORD: Final = "id, (extract(epoch from password_changed_at) * 1000000)::bigint"
# The kind of the authority to sign in with this password and no factor.
PASSWORD_ALONE: Final = "password alone"

# The provider of users whose password is on this platform.
LOCAL = "local"
LONGEST_EXTERNAL_ID = 255


class EndUser(Account, TenantModel):
    """A person of the tenant."""

    email_key = models.CharField(max_length=254, unique=True)
    name = models.CharField(max_length=255, blank=True, default="")
    provider = models.CharField(max_length=63, default=LOCAL)
    client_id = models.UUIDField(null=True)
    # Users write it themselves, so it proves nothing about them.
    metadata: "models.JSONField[Mapping[str, object], dict[str, object]]" = models.JSONField(default=dict)
    # Written for users, never by them: what applications rely on.
    app_metadata: "models.JSONField[Mapping[str, object], dict[str, object]]" = models.JSONField(
        default=dict, db_default={}
    )
    # The id of the user in another system, such as the one before.
    external_id = models.CharField(max_length=LONGEST_EXTERNAL_ID, null=True)
    # Registered without the permission `endusers:write`: the address need not be the registrant's own.
    self_registered = models.BooleanField(default=False, db_default=False)
    # Of hosted pages and mails (`userflow.branding.texts.LANGUAGES`); empty while the user has chosen none.
    language = models.CharField(max_length=2, blank=True, default="", db_default="")

    address_policy_applies: ClassVar[bool] = True
    after_restore: ClassVar[AfterRestore] = Journaled(
        (
            Revocation("erased user", ending="erase_again"),
            Revocation("deactivated user", condition="active", ending="deactivate_again"),
            Revocation("changed password", THIS_PASSWORD, "password <> ''", ending="disable_passwords"),
            # A factor that is not in the backup has guarded the account: the password alone does not open it again.
            Revocation(
                PASSWORD_ALONE,
                THIS_PASSWORD,
                "mfa_methods = '[]' AND password <> ''",
                ending="disable_passwords",
            ),
            # Both again for backups of releases without `password_changed_at`.
            Revocation("replaced password", "id, password", "password <> ''", ending="disable_passwords"),
            Revocation(
                "password without factor",
                condition="mfa_methods = '[]' AND password <> ''",
                ending="disable_passwords",
            ),
            Revocation("replaced address", "id, email_key", "active", ending="deactivate_at_old_address"),
        )
    )

    # An unused registration; see `userflow.credentials.unused_registrations`. One that an admin has deactivated stays.
    YIELDS: ClassVar[models.Q] = models.Q(self_registered=True, active=True, email_verified_at=None, last_login=None)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["external_id"],
                condition=models.Q(external_id__isnull=False),
                name="end_user_external_id_unique",
            )
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="end_user_newest_first"),
            models.Index(fields=["active", "-created_at", "-id"], name="end_user_active"),
            models.Index(fields=["client_id", "-created_at", "-id"], name="end_user_client"),
            models.Index(fields=["provider", "-created_at", "-id"], name="end_user_provider"),
        ]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def principal_kind(self) -> str:
        return principals.END_USER

    @property
    def home_tenant_id(self) -> uuid.UUID | None:
        return current_tenant().tenant_id

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def own_language(self) -> str:
        return self.language

    @classmethod
    def erase_again(cls, matches: Sequence[RestoredRow]) -> None:
        """Erase users of a restored database who were erased since its backup, with all their data."""
        for user in _restored(cls, matches):
            forgotten = [user.pk, *(pk for _, ids in end_user_erasing.call(user) for pk in ids)]
            record_for_tenant("end_user.erased", target=("end_user", user.pk), details={"after_restore": True})
            user.delete()
            # Also those that were still to be sent: they are older than the erasure.
            WebhookMessage.objects.filter(subject_id__in=forgotten).delete()

    @classmethod
    def deactivate_again(cls, matches: Sequence[RestoredRow]) -> None:
        """Deactivate users of a restored database who were deactivated since its backup."""
        _restored(cls, matches).update(active=False, updated_at=now())
        _set_switched_off(matches, False)

    @classmethod
    def disable_passwords(cls, matches: Sequence[RestoredRow]) -> None:
        """Remove passwords that were replaced since the backup, or guarded by a factor. Their users set new ones by mail."""
        _restored(cls, matches).update(password="", password_changed_at=now(), updated_at=now())

    @classmethod
    def deactivate_at_old_address(cls, matches: Sequence[RestoredRow]) -> None:
        """Deactivate users who have an address again that was replaced since the backup.

        The owner of that address could set a password. The new address is not known: an admin sets it and activates the user,
        or the next run of the user's directory does.
        """
        _restored(cls, matches).update(active=False, updated_at=now())
        _set_switched_off(matches, True)


# An end user is about to be erased; called in the transaction, before the user's row goes. The function deletes what it
# holds of the user, and returns its model and the ids of the rows that are gone.
end_user_erasing: Final[Hook[[EndUser], tuple[type[models.Model], list[uuid.UUID]]]] = Hook()


def _restored(model: type[EndUser], matches: Sequence[RestoredRow]) -> models.QuerySet[EndUser]:
    return model._base_manager.filter(pk__in=[match.pk for match in matches])


def _set_switched_off(matches: Sequence[RestoredRow], switched_off: bool) -> None:
    """Store whether the next run of a directory may activate these users again."""
    links = EndUser._meta.get_field("directory_link").related_model._base_manager
    links.filter(user_id__in=[match.pk for match in matches]).update(switched_off=switched_off)


class EndUserCount(TenantModel):
    """How many end users of a kind the tenant has: the sum over its rows, kept by triggers and never written by this code.

    Of each kind there are as many rows as transactions have ever added or removed such people at the same moment: each
    takes one that is not locked, so that registrations, and an import that lasts minutes, never wait for each other.
    """

    users = models.BigIntegerField()
    active = models.BooleanField()
    client_id = models.UUIDField(null=True)
    provider = models.CharField(max_length=63)

    after_restore: ClassVar[AfterRestore] = NoAuthority("They are numbers.")

    class Meta:
        indexes = [models.Index(fields=["provider", "active", "client_id"], name="end_user_count_kind")]


# Every registered end user is bound to it: the "default associations" of the specification.
DEFAULT_ROLE = "user"


class Role(TenantModel):
    """A named set of `resource:action` permissions."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63)
    description = models.CharField(max_length=1000, blank=True, default="")
    permissions: "StringsField" = models.JSONField(default=list)
    built_in = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    after_restore: ClassVar[AfterRestore] = Journaled(
        (
            Revocation("role"),
            Revocation(
                "permission of role",
                "id, permission",
                source="userflow_role, jsonb_array_elements_text(permissions) AS permission",
                ending="remove_permissions",
            ),
        )
    )

    class Meta:
        constraints = [models.UniqueConstraint(Lower("name"), name="role_name_unique")]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def remove_permissions(cls, matches: Sequence[RestoredRow]) -> None:
        """Remove permissions of a restored database that were removed since its backup."""
        removed = {(str(match.pk), match.subject.partition(" ")[2]) for match in matches}
        for role in cls._base_manager.filter(pk__in={match.pk for match in matches}):
            role.permissions = [name for name in role.permissions if (str(role.pk), name) not in removed]
            role.save(update_fields=["permissions", "updated_at"])


class RoleBinding(TenantModel):
    """An end user has a role."""

    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="role_bindings")
    # The index of the list begins with it.
    role = models.ForeignKey(Role, on_delete=models.CASCADE, related_name="bindings", db_index=False)
    created_at = models.DateTimeField(auto_now_add=True)

    after_restore: ClassVar[AfterRestore] = Journaled((Revocation("role of user", THIS_ROW),))

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "role"], name="role_binding_unique")]
        indexes = [models.Index(fields=["role", "-created_at", "-id"], name="role_binding_newest_first")]


class Group(TenantModel):
    """A named set of end users, with roles that all of them have."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=255)
    description = models.CharField(max_length=1000, blank=True, default="")
    roles = models.ManyToManyField(Role, related_name="groups", blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    after_restore: ClassVar[AfterRestore] = Journaled(
        (Revocation("group"), Revocation("role of group", "group_id, role_id", source="userflow_group_roles"))
    )

    class Meta:
        constraints = [models.UniqueConstraint(Lower("name"), name="group_name_unique")]

    def __str__(self) -> str:
        return self.name


class GroupMembership(TenantModel):
    """An end user belongs to a group."""

    # The index of the list begins with it.
    group = models.ForeignKey(Group, on_delete=models.CASCADE, related_name="memberships", db_index=False)
    user = models.ForeignKey(EndUser, on_delete=models.CASCADE, related_name="group_memberships")
    created_at = models.DateTimeField(auto_now_add=True)

    after_restore: ClassVar[AfterRestore] = Journaled((Revocation("member of group", THIS_ROW),))

    class Meta:
        constraints = [models.UniqueConstraint(fields=["group", "user"], name="group_membership_unique")]
        indexes = [models.Index(fields=["group", "-created_at", "-id"], name="group_membership_newest_first")]


class Client(ClientFields):
    """An application that signs end users in (public) or speaks for itself with a secret (confidential)."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="clients")
    # Raised with each change of what the tenant's own database has a copy of (`userflow.accounts.client_records`).
    revision = models.PositiveBigIntegerField(default=1, db_default=1, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant"], condition=models.Q(is_default=True), name="client_one_default_per_tenant"
            )
        ]
        indexes = [
            models.Index(fields=["tenant", "-created_at", "id"], name="client_newest_first"),
            models.Index(fields=["tenant", "project_id"], name="client_project"),
            # In byte order, in which the rows that begin with some letters follow each other: for the console's search.
            models.Index(Collate(Lower("name"), "C"), name="client_name_begins"),
        ]


class TenantClient(ClientFields, GlobalCopy):
    """The copy of a client in its tenant's database."""


# Of a username, a first and a last name.
LONGEST_NAME = 150


class AdminRole(models.Model):
    """A named set of permissions for admin users. The built-in ones are made by a migration."""

    name = models.CharField(max_length=63, unique=True)
    permissions: "StringsField" = models.JSONField(default=list)

    def __str__(self) -> str:
        return self.name


class AdminUserManager(BaseUserManager["AdminUser"]):
    """What Django's `createsuperuser` needs."""

    def create_superuser(self, username: str, email: str, password: str | None = None, **extra: object) -> "AdminUser":
        """An operator, from the command line. Raises Django's ValidationError, which the command shows as one line."""
        # The command validates only interactive input, and lets the operator bypass the check.
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


class AdminUser(AbstractBaseUser, Account):
    """An admin of a tenant, or without a tenant an operator: staff of the platform."""

    username = models.CharField(max_length=LONGEST_NAME)
    # Two spellings of one address are one person.
    email_key = models.CharField(max_length=254, editable=False)
    # An address is reserved once it is verified: by its mail, or by who made the user on the machine.
    email_verified_at = models.DateTimeField(null=True, editable=False)
    first_name = models.CharField(max_length=LONGEST_NAME, blank=True)
    last_name = models.CharField(max_length=LONGEST_NAME, blank=True)
    tenant = models.ForeignKey(Tenant, null=True, blank=True, on_delete=models.CASCADE, related_name="admin_users")
    roles = models.ManyToManyField(AdminRole, related_name="admin_users", blank=True)
    mfa_methods: "StringsField" = models.JSONField(default=list, blank=True)

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
            # Within a tenant (and among operators) two are a mistake, and the caller may see both.
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
            # For the console's search, as of clients.
            models.Index(Collate(Lower("username"), "C"), name="admin_username_begins"),
            models.Index(Collate(Lower("email_key"), "C"), name="admin_email_begins"),
        ]

    def __str__(self) -> str:
        return self.username

    def save(self, **options: Any) -> None:
        """Keep the key in step with the address."""
        self.email_key = email_key(self.email)
        super().save(**options)

    @property
    def principal_kind(self) -> str:
        return principals.ADMIN if self.tenant_id else principals.OPERATOR

    @property
    def home_tenant_id(self) -> uuid.UUID | None:
        return self.tenant_id

    @property
    def names(self) -> tuple[str, ...]:
        return self.username, self.first_name, self.last_name

    @property
    def is_active(self) -> bool:  # type: ignore[override]  # Django reads it; the column is called `active`
        return self.active

    @property
    def is_staff(self) -> bool:
        """Whether Django may show its admin: tenant admins work in the console too, and see their own tenant there."""
        return self.active

    def has_perm(self, permission: str, obj: object = None) -> bool:
        """Never: Django's permissions mean nothing here. The console asks for the platform's own (console.frame.access)."""
        return False

    def has_module_perms(self, app_label: str) -> bool:
        """Never, see `has_perm`."""
        return False
