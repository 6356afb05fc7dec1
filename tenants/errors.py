"""Errors and defects of the tenancy."""

from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from django.utils.timezone import now

from identity_platform.api import errors
from identity_platform.installation import how_to_install
from tenants.states import Mode

# Retry-After of an operating mode: without an announced end, and at most.
_RETRY_SECONDS: Final = 60
_LONGEST_RETRY_SECONDS: Final = 3600


class UnknownTenant(errors.NotFound):
    """404: no tenant has this id, or it has been deleted."""

    code = "tenant_not_found"
    message = "No tenant has this id. Check tenant_id."


class TenantMismatch(errors.NotAllowed):
    """403: the request names another tenant than the token's. The same whether or not that tenant exists."""

    code = "tenant_mismatch"
    implied_by = "token"
    message = "The tenant in the request is not the tenant of your token."

    def __init__(self, tenant_id: UUID | None = None) -> None:
        super().__init__()
        # The tenant in the request, for the audit trail only.
        self.tenant_id = tenant_id


class DomainTaken(errors.Conflict):
    """409: another tenant has verified this domain."""

    code = "domain_taken"
    message = "Another tenant has verified this domain. Delete it there first, or ask an operator."


class DomainNotClaimed(errors.Conflict):
    """409: only a verified domain can be the sign-in domain."""

    code = "domain_not_verified"
    message = "This domain is not verified. Verify it first."


class TenantRequired(errors.ApiError):
    code = "tenant_required"
    message = "A tenant is required. Send `tenant_id`, or the header X-Tenant-ID."


class TenantSuspended(errors.NotAllowed):
    code = "tenant_suspended"
    # The refresh tokens of its users are valid again once it is resumed.
    oauth_cause = code
    implied_by = "tenant"
    message = "This tenant is suspended. An operator can resume it."


class TenantBusy(errors.Unavailable):
    """503: a job is creating, migrating, moving or repairing the tenant's database."""

    code = "tenant_busy"
    implied_by = "tenant"
    message = "This tenant's database is under maintenance. Try again in a moment."


class TenantBehind(errors.Unavailable):
    """503: the tenant's database lacks migrations of this release (run `migrate_tenants`)."""

    code = "tenant_upgrading"
    implied_by = "tenant"
    message = "This tenant's database is being upgraded. Try again in a few minutes."


class TenantConnectionsExhausted(errors.Unavailable):
    """503: no tenant connection of this process became free within the time a request may wait."""

    code = "connections_exhausted"
    implied_by = "tenant"
    message = "All database connections are in use. Try again in a moment."


class DatabaseServerFull(errors.Unavailable):
    """503: the processes of the platform have opened all connections that the tenant's database server allows them."""

    code = "database_server_full"
    implied_by = "tenant"
    message = "The database server of this tenant has no connections left. Try again in a moment."


class InstallationFenced(errors.Unavailable):
    """503: the global database was restored or copied, and no operator has adopted or detached it.

    See `tenants.database_servers.fences`.
    """

    code = "installation_fenced"
    implied_by = "any"
    message = "This installation is fenced. An operator must run adopt_installation or detach_installation."

    def __init__(self, message: str | None = None) -> None:
        super().__init__(f"{message} {self.message}" if message else None, retry_after=30)


class InstallationUnknown(errors.Unavailable):
    """503: the global database did not say which installation this process belongs to, so it uses no tenant's database."""

    code = "installation_unknown"
    implied_by = "any"
    message = "The global database does not respond. Try again in a moment."


class ForeignDatabase(errors.Unavailable):
    """503: the database that the tenant's mapping names does not carry the mark of this tenant and installation."""

    code = "tenant_database_foreign"
    implied_by = "tenant"
    message = "The database of this tenant does not carry the tenant's mark. An operator must run check_tenants."

    def __init__(self) -> None:
        super().__init__(retry_after=30)


class ServerDetached(errors.Unavailable):
    """503: the tenant's database server belongs to the installation that this one was copied from."""

    code = "database_server_detached"
    implied_by = "tenant"
    message = "The database server of this tenant was detached from this copy of the installation."

    def __init__(self) -> None:
        super().__init__(retry_after=30)


class ReadOnlyMode(errors.Unavailable):
    """503: an operator has limited the platform or the tenant's database server to reads (`tenants.operating_modes`)."""

    code = "read_only"
    implied_by = "any"
    message = "Nothing was changed. Try again later."
    # The platform, and a database server.
    mode: ClassVar[Mode] = Mode.READ_ONLY
    subjects: ClassVar[tuple[str, str]] = (
        "The platform is read-only",
        "The database server of this tenant is read-only",
    )

    def __init__(self, until: datetime | None = None, *, is_server: bool = False) -> None:
        left = (until - now()).total_seconds() if until else 0.0
        # What the operator has announced; a time that has passed says nothing.
        self.until = until if left > 0 else None
        end = f"until about {self.until:%Y-%m-%d %H:%M} UTC" if self.until else "at the moment"
        super().__init__(
            f"{self.subjects[is_server]} {end}. {self.message}",
            retry_after=min(max(1, round(left)), _LONGEST_RETRY_SECONDS) if self.until else _RETRY_SECONDS,
        )


class MaintenanceMode(ReadOnlyMode):
    """503: an operator has closed the platform or the tenant's database server for maintenance."""

    code = "maintenance"
    implied_by = "any"
    message = "Try again later."
    mode = Mode.MAINTENANCE
    subjects = ("The platform is closed for maintenance", "This tenant is closed for maintenance")


class TooManyUnknownHosts(errors.Unavailable):
    """503: this second has no look-up of unknown hosts left (`tenants.addresses.hosts`). This one may be a tenant's domain."""

    code = "too_many_unknown_hosts"
    implied_by = "any"
    message = "Too many unknown hosts were requested. Try again in a moment."

    def __init__(self) -> None:
        super().__init__(retry_after=1)


class DataKeyLocked(errors.Unavailable):
    """503: this process cannot decrypt the data key of the tenant or of the platform."""

    code = "data_key_locked"
    implied_by = "any"
    message = "The stored secrets cannot be decrypted at the moment. An operator must check ENCRYPTION_KEYS."

    def __init__(self) -> None:
        # An early retry is pointless: an operator must act first.
        super().__init__(retry_after=30)


class SlugTaken(errors.Conflict):
    code = "slug_taken"
    message = "Another tenant has this slug. Choose another one."


class RelyingPartyTaken(errors.Conflict):
    code = "relying_party_taken"
    message = "Another tenant uses this domain or origin for its passkeys. Choose another one. See `details`."


class RelyingPartyInUse(errors.ValidationFailed):
    """400: the relying party id would change, and passkeys of the present one could not be used until it returns."""

    code = "relying_party_in_use"
    message = "Passkeys would stop working. See `details` for how many. For a domain, `disable_passkeys` accepts that."


class NoRoom(errors.Unavailable):
    code = "no_server_capacity"
    message = "No database server has room for another tenant. Add a server or raise its capacity."


class WrongRegion(errors.Conflict):
    """409: the tenant is bound to another region than the server's."""

    code = "wrong_region"
    message = (
        "The tenant is bound to another region. Choose a database server there, or change the tenant's region first."
    )


class UnknownServer(errors.NotFound):
    code = "database_server_not_found"
    message = "No database server has this name. The console lists them at Platform, Database servers."


class ServerExists(errors.Conflict):
    code = "database_server_exists"
    message = "A database server has this name. Choose another one, or replace its URLs."


class BackupUnfit(errors.ApiError):
    """400: a backup of another tenant or of a newer release, or not a backup."""

    code = "backup_unfit"
    message = "This file is not a backup of this tenant."


class BucketsMissing(errors.Unavailable):
    code = "backup_buckets_not_installed"
    message = f"Backups in buckets need another library: {how_to_install('s3')}, and run the command again."


class ProgramMissing(errors.Unavailable):
    code = "program_not_installed"
    message = "pg_dump and pg_restore of the server's version are not installed."


class CopyFailed(errors.Unavailable):
    code = "database_copy_failed"
    message = "The database could not be copied. Nothing was changed."


class ServerUnfit(errors.ApiError):
    code = "database_server_unfit"
    message = "This database server cannot be used for tenants."


class WrongState(errors.Conflict):
    code = "tenant_state_conflict"
    message = "The tenant's state does not allow this."


class JobRunning(errors.Unavailable):
    code = "tenant_job_running"
    message = "Another job is working on this tenant. Try again when it has finished."


class SlugNotConfirmed(errors.ApiError):
    code = "slug_change_not_confirmed"
    message = (
        "A new slug changes the issuer, and applications that are configured with the former one can no longer sign users in. "
        'Confirm it with the present slug: {"confirm": "<slug>"}.'
    )


class NotConfirmed(errors.ApiError):
    code = "deletion_not_confirmed"
    message = 'Confirm the deletion with the tenant slug: {"confirm": "<slug>"}.'


class UpgradeFailed(RuntimeError):
    """A migration failed and was rolled back. The text names the migration and contains no user data."""


class NoActiveTenant(RuntimeError):
    """A bug: a tenant model was used outside `in_tenant()`."""


class TenantSwitchInTransaction(RuntimeError):
    """A bug: another tenant was entered inside an open transaction."""
