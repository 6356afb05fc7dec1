"""Publish the signing keys that a tenant lacks after an upgrade or a restore."""

from uuid import UUID

import structlog

from tenants.failure_reasons import why
from userflow.sessions import signing

log = structlog.get_logger("identity.keys")


def create_missing_keys(sender: object, *, tenant_id: UUID, **_: object) -> None:
    """Publish keys that a tenant's set lacks, of an older release or of a backup, well before a token needs them.

    Receiver of `tenant_migrated` and `tenant_restored`. Errors are logged: the first response of /jwks creates the keys then.
    """
    signing.forget(tenant_id)
    try:
        # A tenant without any key gets its first set when it is used.
        if signing.key_set(tenant_id).jwks:
            signing.complete_key_set(tenant_id)
    except Exception as problem:
        log.warning("signing_keys_not_created", tenant=str(tenant_id), cause=why(problem))
