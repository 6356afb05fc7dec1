"""Errors of directories."""

from identity_platform.api import errors


class UnknownDirectory(errors.NotFound):
    """404: no such directory configuration in this tenant."""

    message = "No directory with this id exists in this tenant."


class DirectoryNameTaken(errors.Conflict):
    """409: another directory of the tenant has this name, in any case."""

    message = "A directory with this name already exists. Choose another name."


class TooManyDirectories(errors.Conflict):
    """409: the tenant has reached its maximum number of directories."""

    message = "This tenant has reached its maximum number of directories. Delete one first."


class DirectoryAddressRejected(errors.ValidationFailed):
    """400: the server is this machine, or is in a network that is not allowed."""

    def __init__(self, field: str = "server") -> None:
        says = (
            "This address is private, local or reserved. An operator can allow networks in DIRECTORY_ALLOWED_NETWORKS."
        )
        super().__init__(says, details={field: [says]})


class DirectoryBusy(errors.Conflict):
    """409: another run of this directory has not ended."""

    message = "A synchronization of this directory is running. Wait until it has finished."


class DirectoryFailed(errors.ApiError):
    """502: the directory is unreachable, has an invalid certificate, rejects the request or returns an invalid response."""

    status = 502
    code = "BAD_GATEWAY"
    message = "The directory cannot be reached or returned an invalid response."


class LdapNotInstalled(errors.ApiError):
    """501: the package for LDAP is not installed."""

    status = 501
    code = "NOT_IMPLEMENTED"
    message = "LDAP support is not installed. An operator installs requirements-ldap.txt and restarts the server."


class DirectoriesBusy(errors.Unavailable):
    """503: this server has reached its maximum of requests that wait for directories."""

    message = "Too many directories are being read. Try again in a moment, or use sync_directory."


class DirectorySecretLocked(errors.Unavailable):
    """503: the stored secret of the directory was altered or belongs to another row."""

    message = "The directory's secret cannot be decrypted and must be entered again."
