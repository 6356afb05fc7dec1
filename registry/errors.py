"""Errors of the registry."""

from identity_platform.api import errors


class ServiceNotFound(errors.NotFound):
    """404: no such service in this tenant; the same for an id of another tenant and for a malformed one."""

    code = "SERVICE_NOT_FOUND"
    message = "No service has this id."


class ServiceExists(errors.Conflict):
    """409: another service of this tenant has this name."""

    code = "SERVICE_EXISTS"
    message = "A service with this name exists: choose another name."


class ServiceInUse(errors.Conflict):
    """409: active credentials are bound to the service; `details.active_credentials` says how many."""

    code = "SERVICE_IN_USE"
    message = "The service has active credentials: revoke or delete them first."


class ServiceInactive(errors.Conflict):
    """409: the service is inactive, so none of its secrets is returned."""

    code = "SERVICE_INACTIVE"
    message = "The service is inactive and returns no secrets. Set its status to active first."


class CredentialNotFound(errors.NotFound):
    """404: no such credential of this service."""

    code = "CREDENTIAL_NOT_FOUND"
    message = "No credential of this service has this id."


class CredentialExists(errors.Conflict):
    """409: another credential of this service has this name."""

    code = "CREDENTIAL_EXISTS"
    message = "A credential with this name exists for this service: choose another name, or rotate that one with PUT."


class CredentialNotActive(errors.Conflict):
    """409: the credential is revoked or expired, and its secret is not shown any more."""

    message = "The credential is revoked or expired: its secret is not shown. Switch it on again or rotate it first."


class SecretBroken(errors.Conflict):
    """409: the stored secret was altered, or belongs to another service or tenant."""

    message = "The stored secret was altered and does not open: rotate the credential, and look into the audit trail."


class AlreadyExpired(errors.ValidationFailed):
    """400: a credential that would be born expired."""

    def __init__(self) -> None:
        super().__init__(details={"expires_at": ["Send a time that is yet to come."]})
