"""Adding a way to sign in at the hosted pages: whose it is, what must be proven first, and what it leads to."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db.models import F

from tenants.context import in_tenant
from tenants.models import Tenant
from tests.mfa.people import code_to, some_phone
from tests.openid.pages.visitor import Visitor
from tests.world import PASSWORD, TestTenant, User
from userflow.accounts.models import EndUser
from userflow.accounts.session_models import EndUserTicket


def signed_in(tenant: TestTenant, user: User) -> Visitor:
    visitor = Visitor(tenant)
    visitor.signs_in(user)
    assert visitor.at == "account"
    return visitor


def follows(visitor: Visitor, words: str) -> Any:
    """Open the link of the page with these words."""
    link = re.search(rf'href="([^"]+)"[^>]*>{re.escape(words)}', visitor.text)
    assert link, visitor.text
    return visitor.opens(link[1].replace("&amp;", "&"))


def require_factors(tenant: TestTenant) -> None:
    Tenant.objects.filter(pk=tenant.id).update(settings={"mfa_policy": "required"})


def methods_of(tenant: TestTenant, user: User) -> list[str]:
    with in_tenant(tenant.id):
        return list(EndUser.objects.get(pk=user.id).mfa_methods)


# --- whose factor it is ----------------------------------------------------------------------------------------------


def test_account_enrolls_own_user_after_abandoned_sign_in(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    own, other = tenant.register(), tenant.register()
    visitor = signed_in(tenant, own)
    require_factors(tenant)
    visitor.signs_in(other, "signin?another=1")
    assert visitor.at == "enroll"
    assert other.email in visitor.words
    Tenant.objects.filter(pk=tenant.id).update(settings={})
    visitor.opens("account/security")
    follows(visitor, "Add a way to sign in")
    assert own.email in visitor.words
    follows(visitor, "Text message")
    number = some_phone()
    visitor.sends(phone_number=number)
    visitor.sends(phone_number=number, sms_code=code_to(number))
    assert visitor.at == "account/security"
    assert (methods_of(tenant, own), methods_of(tenant, other)) == (["sms"], [])


def test_expired_ticket_leads_to_a_new_sign_in(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    user, visitor = tenant.register(), Visitor(tenant)
    require_factors(tenant)
    visitor.signs_in(user)
    assert visitor.at == "enroll"
    with in_tenant(tenant.id):
        EndUserTicket.objects.update(expires_at=F("expires_at") - timedelta(hours=1))
    visitor.sends("enroll/app")
    assert visitor.at == "signin"
    assert "The sign-in took too long" in visitor.words
    visitor.sends(email=user.email)
    visitor.sends(password=PASSWORD)
    assert visitor.at == "enroll"
