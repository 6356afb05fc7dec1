"""Errors and defects of the tenancy."""

from uuid import UUID

from identity_platform.api import errors


class UnknownTenant(errors.NotFound):
    """404: no tenant has this id, or it has been deleted."""

    message = "No tenant has this id: check tenant_id."


class TenantMismatch(errors.NotAllowed):
    """403: the call names a tenant that is not the token's; the same whether or not that tenant exists."""

    message = "The tenant named in the call is not the tenant of your token."

    def __init__(self, tenant_id: UUID | None = None) -> None:
        super().__init__()
        # The tenant that was named; for the audit only.
        self.tenant_id = tenant_id


class TenantRequired(errors.ApiError):
    """400: an operator's call that does not say for which tenant."""

    code = "TENANT_REQUIRED"
    message = "Say for which tenant: `tenant_id`, or the header X-Tenant-ID where the call has no place for it."


class TenantSuspended(errors.NotAllowed):
    """403: the tenant is switched off; its data is kept."""

    message = "This tenant is suspended: its operator can resume it."


class TenantBusy(errors.Unavailable):
    """503: the tenant's database is being made, migrated, moved or repaired."""

    message = "This tenant's database is being worked on: try again in a moment."


class TenantBehind(errors.Unavailable):
    """503: the tenant's database has not seen all migrations of the release that runs (`migrate_tenants`)."""

    message = "This tenant's database is being upgraded: try again in a few minutes."


class TenantConnectionsExhausted(errors.Unavailable):
    """503: every tenant connection of this process stayed in use for as long as a request may wait."""

    message = "All database connections are in use: try again in a moment."


class DataKeyLocked(errors.Unavailable):
    """503: this process cannot open the data key of the tenant or of the platform, so no secret can be read or stored."""

    message = "The stored secrets cannot be decrypted at the moment. An operator must check ENCRYPTION_KEYS."

    def __init__(self) -> None:
        # An operator must act first, so an early retry is pointless.
        super().__init__(retry_after=30)


class SlugTaken(errors.Conflict):
    """409: another tenant has this slug."""

    message = "Another tenant has this slug: choose another one."


class RelyingPartyTaken(errors.Conflict):
    """409: another tenant uses this domain or origin for its passkeys."""

    message = "Another tenant uses this domain or origin for its passkeys: choose another one. See `details`."


class NoRoom(errors.Unavailable):
    """503: no database server takes another tenant."""

    message = "No database server has room for another tenant: add one or raise its capacity."


class UnknownServer(errors.NotFound):
    """404: no database server has this name."""

    message = "No database server has this name: the console lists them at Platform, Database servers."


class ServerExists(errors.Conflict):
    """409: a database server has this name."""

    message = "A database server has this name: choose another one, or replace its URLs."


class BackupUnfit(errors.ApiError):
    """400: a backup of another tenant or of a newer release, or a file that is no backup."""

    message = "This file is no backup of this tenant."


class ProgramMissing(errors.Unavailable):
    """503: PostgreSQL's own programs of the server's version are not installed."""

    message = "pg_dump and pg_restore of the server's version are not installed."


class CopyFailed(errors.Unavailable):
    """503: a database could not be written out or read in; everything is as it was."""

    message = "The database could not be copied: everything is as it was."


class ServerUnfit(errors.ApiError):
    """400: a database server that cannot be reached or may not make databases."""

    message = "This database server cannot take tenants."


class WrongState(errors.Conflict):
    """409: the tenant's state does not allow this step."""

    message = "The tenant's state does not allow this."


class JobRunning(errors.Unavailable):
    """503: another process is making, migrating, moving or deleting this tenant at the moment."""

    message = "Another job is working on this tenant: try again when it has ended."


class NotConfirmed(errors.ApiError):
    """400: a deletion that does not repeat the slug."""

    message = 'Deleting a tenant needs its slug: {"confirm": "<slug>"}.'


class UpgradeFailed(RuntimeError):
    """A migration failed in a database, which is as it was before. The text names the migration, never people's data."""


class NoActiveTenant(RuntimeError):
    """A defect of ours: a tenant model was used outside `in_tenant()`."""


class TenantSwitchInTransaction(RuntimeError):
    """A defect of ours: another tenant was entered while a transaction of the first one was open."""
