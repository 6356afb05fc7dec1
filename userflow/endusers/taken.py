"""Addresses that a user has already, where the response must not tell that."""

from django.utils.timezone import now

from identity_platform.audit.origin import current_origin
from tenants.entering import lookup
from userflow.accounts.models import EndUser
from userflow.accounts.realms import END_USERS
from userflow.email.actions import remind_of_email_proof


def tell_owner(owner: EndUser, tenant: lookup.TenantContext) -> None:
    """Tell the owner of an address by mail that it was entered for another user.

    An owner who has not verified the address gets the code and the link again. Call it in the tenant's transaction.
    """
    if not owner.active:
        return
    if owner.email_verified_at is None:
        remind_of_email_proof(tenant_id=tenant.tenant_id, email=owner.email)
        return
    facts = {
        "issuer": tenant.effective["issuer_name"],
        "at": now(),
        "address": current_origin().address,
        "link": f"{tenant.root}/signin",
    }
    END_USERS.notify(owner, "address_taken", facts)
