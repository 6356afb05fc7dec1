"""Second steps, first factors and step-ups at the hosted pages over HTTP."""

import re
from collections.abc import Callable

import pyotp
import pytest

from tests.copies import change_tenant
from tests.mfa.people import TestUser, a_step_lasts, code_to, new_user, wrong_code
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.world import PASSWORD, TestTenant


@pytest.fixture
def person(tenant: TestTenant) -> TestUser:
    return new_user(tenant).enrol_totp()


def enters_password(visitor: Visitor, email: str) -> None:
    visitor.sends(email=email, password=PASSWORD)


def test_totp_completes_sign_in(tenant: TestTenant, person: TestUser) -> None:
    visitor = Visitor(tenant)
    begin(visitor)
    enters_password(visitor, person.email)
    assert visitor.at == "signin/verify"
    assert visitor.session is None
    assert code_of(visitor.sends(code=person.code(1)))
    assert visitor.session


def test_wrong_code_is_shown_at_the_form(tenant: TestTenant, person: TestUser) -> None:
    visitor = Visitor(tenant)
    visitor.opens("signin")
    enters_password(visitor, person.email)
    visitor.sends(code=wrong_code(person.secret))
    assert (visitor.at, visitor.page.status_code) == ("signin/verify", 400)
    assert "The code is incorrect" in visitor.words
    visitor.sends(code="12")
    assert "Enter the six digits." in visitor.words


def test_five_wrong_codes_end_the_sign_in(tenant: TestTenant, person: TestUser) -> None:
    visitor = Visitor(tenant)
    visitor.opens("signin")
    enters_password(visitor, person.email)
    for _ in range(5):
        visitor.sends(code=wrong_code(person.secret))
    assert visitor.at == "signin"
    assert "Sign in again." in visitor.words


def test_backup_code_is_another_method(tenant: TestTenant, person: TestUser) -> None:
    visitor = Visitor(tenant)
    begin(visitor)
    enters_password(visitor, person.email)
    link = re.search(r'href="([^"]+method=backup_code[^"]*)"', visitor.text)
    assert link
    visitor.opens(link[1].replace("&amp;", "&"))
    assert code_of(visitor.sends(backup_code=person.backup_codes[0].lower()))


def test_text_message_completes_sign_in(tenant: TestTenant) -> None:
    person, visitor = new_user(tenant).enrol_phone(), Visitor(tenant)
    visitor.opens("signin")
    enters_password(visitor, person.email)
    assert "sms_code" not in visitor.text
    visitor.sends(send="1")
    assert "We have sent you a new code." in visitor.words
    visitor.sends(sms_code=code_to(person.phone))
    assert visitor.at == "account"


def test_second_step_without_password_starts_again(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.opens("signin/verify")
    assert visitor.at == "signin"


def test_required_first_factor_completes_sign_in(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    user, visitor = tenant.register(), Visitor(tenant)
    begin(visitor)
    change_tenant(tenant.id, settings={"mfa_policy": "required"})
    enters_password(visitor, user.email)
    assert visitor.at == "enroll"
    assert visitor.session is None
    visitor.sends(f"enroll/app?{visitor.query}")
    secret = re.search(r'name="secret" value="([A-Z2-7]+)"', visitor.text)
    assert secret
    a_step_lasts()
    visitor.sends(secret=secret[1], code="000000")
    assert secret[1] in visitor.text
    visitor.sends(secret=secret[1], code=pyotp.TOTP(secret[1]).now())
    assert visitor.text.count("<code>") == 10
    assert visitor.session
    go_on = re.search(r'class="button" href="([^"]+)"', visitor.text)
    assert go_on
    assert code_of(visitor.opens(go_on[1]))


def test_aal2_steps_up_and_renews_the_cookie(tenant: TestTenant, person: TestUser) -> None:
    visitor = Visitor(tenant)
    begin(visitor)
    enters_password(visitor, person.email)
    visitor.sends(code=person.code(1))
    before = visitor.session
    begin(visitor, acr_values="aal2")
    # The session has it already.
    assert code_of(visitor.page)
    visitor.opens("step-up?next=security")
    visitor.opens("step-up?next=security&method=backup_code")
    visitor.sends(backup_code=person.backup_codes[1])
    assert visitor.at == "account/security"
    assert visitor.session not in (None, before)


def test_aal2_of_user_without_factor_enrolls_one(tenant: TestTenant) -> None:
    visitor, user = Visitor(tenant), tenant.register()
    begin(visitor, acr_values="aal2")
    enters_password(visitor, user.email)
    assert visitor.at == "step-up"
    visitor.sends(password=PASSWORD)
    assert visitor.at == "enroll"
