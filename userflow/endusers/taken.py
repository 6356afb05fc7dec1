"""Registrations of an address that a user has already, where the response must not tell that."""

from uuid import UUID

from django.utils.timezone import now

from identity_platform.api.email_addresses import email_key
from identity_platform.audit.origin import current_origin
from tenants.context import in_tenant
from tenants.states import Purpose
from userflow.accounts.models import EndUser
from userflow.accounts.realms import END_USERS
from userflow.credentials import passwords
from userflow.email.actions import remind_of_email_proof


def tell_owner(*, tenant_id: UUID, email: str, password: str) -> None:
    """Tell the owner of an address by mail that a registration with it was tried.

    An owner who has not verified the address gets the code and the link again. It takes as long as a registration. Raises
    HashersBusy, TenantSuspended, TenantBusy.
    """
    passwords.matches(password, None)
    with in_tenant(tenant_id, Purpose.WRITE) as tenant:
        owner = EndUser.objects.filter(email_key=email_key(email), active=True).first()
        if owner is not None and owner.email_verified_at is not None:
            facts = {
                "issuer": tenant.effective["issuer_name"],
                "at": now(),
                "address": current_origin().address,
                "link": f"{tenant.root}/signin",
            }
            END_USERS.tell(owner, "address_taken", facts)
            return
    remind_of_email_proof(tenant_id=tenant_id, email=email)
