from identity_platform.api import errors


class ServiceNotFound(errors.NotFound):
    """404: no such service in this tenant, also for an id of another tenant or a malformed one."""

    code = "service_not_found"
    message = "No service has this id."


class ServiceExists(errors.Conflict):
    code = "service_exists"
    message = "A service with this name exists. Choose another name."


class ServiceInUse(errors.Conflict):
    """409: active credentials are bound to the service; `details.active_credentials` says how many."""

    code = "service_in_use"
    message = "The service has active credentials. Revoke or delete them first."


class ServiceInactive(errors.Conflict):
    code = "service_inactive"
    message = "The service is inactive and returns no secrets. Set its status to active first."


class CredentialNotFound(errors.NotFound):
    code = "credential_not_found"
    message = "No credential of this service has this id."


class CredentialExists(errors.Conflict):
    code = "credential_exists"
    message = "A credential with this name exists for this service. Choose another name, or rotate that one with PUT."


class CredentialNotActive(errors.Conflict):
    code = "credential_not_active"
    message = "The credential is revoked or expired, so its secret is not shown. Activate or rotate it first."


class SecretBroken(errors.Conflict):
    code = "secret_broken"
    message = "The stored secret was altered and cannot be decrypted. Rotate the credential and check the audit log."


class AlreadyExpired(errors.ValidationFailed):
    """400: the expiry of a new credential is in the past."""

    code = "already_expired"

    def __init__(self) -> None:
        super().__init__(details={"expires_at": ["Send a time in the future."]})
