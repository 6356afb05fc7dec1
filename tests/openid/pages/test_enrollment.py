"""Adding a way to sign in at the hosted pages: whose it is, what must be proven first, and what it leads to."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyotp
import pytest
from django.db.models import F

from tenants.entering.context import in_tenant
from tests.copies import change_tenant
from tests.mfa.people import TestUser, a_step_lasts, code_to, new_user, some_phone
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.world import PASSWORD, TestTenant, User
from userflow.accounts.models import EndUser
from userflow.accounts.session_models import EndUserSession, EndUserTicket


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
    change_tenant(tenant.id, settings={"mfa_policy": "required"})


def methods_of(tenant: TestTenant, user: User) -> list[str]:
    with in_tenant(tenant.id):
        return list(EndUser.objects.get(pk=user.id).mfa_methods)


def age_sessions(tenant: TestTenant, user: User) -> None:
    """Move the user's sign-ins, and the password that they were made with, twenty minutes into the past."""
    earlier = timedelta(minutes=20)
    with in_tenant(tenant.id):
        EndUserSession.objects.filter(user_id=user.id).update(
            auth_time=F("auth_time") - earlier, created_at=F("created_at") - earlier
        )
        EndUser.objects.filter(pk=user.id).update(password_changed_at=F("password_changed_at") - earlier)


# --- whose factor it is ----------------------------------------------------------------------------------------------


def test_account_enrolls_own_user_after_abandoned_sign_in(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    own, other = tenant.register(), tenant.register()
    visitor = signed_in(tenant, own)
    require_factors(tenant)
    visitor.signs_in(other, "signin?another=1")
    assert visitor.at == "enroll"
    assert other.email in visitor.words
    change_tenant(tenant.id, settings={})
    visitor.opens("account/security")
    follows(visitor, "Add a second factor or passkey")
    assert (visitor.at, own.email in visitor.words) == ("step-up", True)
    visitor.sends(password=PASSWORD)
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
    visitor.sends(email=user.email, password=PASSWORD)
    assert visitor.at == "enroll"


# --- what must be proven first ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["enroll", "enroll/passkey", "enroll/phone"])
def test_old_session_is_proven_before_enrollment(tenant: TestTenant, page: str) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    age_sessions(tenant, user)
    visitor.opens(f"{page}?own=1")
    assert visitor.at == "step-up"
    visitor.sends(password=PASSWORD)
    assert visitor.at == page


def test_passkey_options_of_old_session_say_what_to_do(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    visitor.opens("enroll/passkey?own=1")
    visitor.sends(password=PASSWORD)
    assert visitor.at == "enroll/passkey"
    age_sessions(tenant, user)
    response = visitor.sends("enroll/passkey-options?own=1")
    assert response.status_code == 400
    assert response.json() == {"message": "Confirm again that it is you: open the page again."}


def test_aal2_with_old_session_asks_for_password_once(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    age_sessions(tenant, user)
    begin(visitor, acr_values="aal2")
    assert visitor.at == "step-up"
    visitor.sends(password=PASSWORD)
    assert visitor.at == "enroll"
    assert "request=" in visitor.query


# --- replacing -------------------------------------------------------------------------------------------------------


def with_app(tenant: TestTenant) -> tuple[Visitor, TestUser]:
    person, visitor = new_user(tenant).enrol_totp(), Visitor(tenant)
    visitor.opens("signin")
    visitor.sends(email=person.email, password=PASSWORD)
    visitor.sends(code=person.code(1))
    assert visitor.at == "account"
    return visitor, person


def test_new_app_replaces_the_old_one_after_a_proof(tenant: TestTenant) -> None:
    visitor, person = with_app(tenant)
    visitor.opens("enroll?own=1")
    assert visitor.at == "step-up"
    follows(visitor, "Backup code")
    visitor.sends(backup_code=person.backup_codes[0])
    assert visitor.at == "enroll"
    assert "Replace your authenticator app" in visitor.words
    visitor.sends("enroll/app?own=1")
    secret = re.search(r'name="secret" value="([A-Z2-7]+)"', visitor.text)
    assert secret
    a_step_lasts()
    visitor.sends(secret=secret[1], code="000000")
    assert secret[1] in visitor.text
    visitor.sends(secret=secret[1], code=pyotp.TOTP(secret[1]).now())
    assert visitor.text.count("<code>") == 10
    visitor.opens("account/email")
    # All that proves who the user is, but the password, is newer than this session.
    assert (visitor.at, "Sign in again to confirm" in visitor.words) == ("signin", True)


def another(code: str) -> str:
    return f"{(int(code) + 1) % 1_000_000:06}"


def with_phone(tenant: TestTenant) -> tuple[Visitor, TestUser]:
    person, visitor = new_user(tenant).enrol_phone(), Visitor(tenant)
    visitor.opens("signin")
    visitor.sends(email=person.email, password=PASSWORD)
    visitor.sends(send="1")
    visitor.sends(sms_code=code_to(person.phone))
    assert visitor.at == "account"
    person.minutes_pass(2)
    return visitor, person


def test_new_phone_replaces_the_old_one_after_a_proof(tenant: TestTenant) -> None:
    visitor, person = with_phone(tenant)
    visitor.opens("enroll?own=1")
    assert visitor.at == "step-up"
    visitor.sends(send="1")
    visitor.sends(sms_code=code_to(person.phone))
    assert visitor.at == "enroll"
    follows(visitor, "Replace your phone")
    assert visitor.at == "enroll/phone"
    person.minutes_pass(2)
    number = some_phone()
    visitor.sends(phone_number=number)
    visitor.sends(phone_number=number, sms_code=code_to(number))
    assert visitor.at == "account/security"
    assert number[-4:] in visitor.words


def test_wrong_text_message_code_can_be_corrected(tenant: TestTenant) -> None:
    visitor, person = with_phone(tenant)
    visitor.opens("step-up?next=security")
    visitor.sends(send="1")
    assert "We have sent you a new code." in visitor.words
    visitor.sends(sms_code=another(code_to(person.phone)))
    assert visitor.page.status_code == 400
    assert 'name="sms_code"' in visitor.text
    visitor.sends(sms_code=code_to(person.phone))
    assert visitor.at == "account/security"


# --- what it leads to ------------------------------------------------------------------------------------------------


def session_row(tenant: TestTenant, user: User) -> EndUserSession:
    with in_tenant(tenant.id):
        return EndUserSession.objects.get(user_id=user.id, ended_at=None)


def age_messages(tenant: TestTenant, user: User) -> None:
    """Forget the messages to the user: one is sent in a minute at most."""
    with in_tenant(tenant.id):
        EndUser.objects.get(pk=user.id).sms_messages.all().delete()


def test_own_first_factor_raises_no_session_until_it_is_used(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    begin(visitor, acr_values="aal2")
    assert visitor.at == "step-up"
    visitor.sends(password=PASSWORD)
    assert visitor.at == "enroll"
    before, cookie = session_row(tenant, user), visitor.session
    follows(visitor, "Text message")
    number = some_phone()
    visitor.sends(phone_number=number)
    visitor.sends(phone_number=number, sms_code=code_to(number))
    # The factor is newer than the session: the password comes first.
    assert (visitor.at, "Enter your password first" in visitor.words) == ("step-up", True)
    after = session_row(tenant, user)
    assert (after.auth_time, after.amr, after.acr) == (before.auth_time, ["pwd"], "aal1")
    visitor.sends(password=PASSWORD)
    assert (visitor.at, session_row(tenant, user).acr) == ("step-up", "aal1")
    age_messages(tenant, user)
    visitor.sends(send="1")
    assert code_of(visitor.sends(sms_code=code_to(number)))
    assert session_row(tenant, user).acr == "aal2"
    assert visitor.session not in (None, cookie)


@pytest.mark.parametrize("asked", [{"prompt": "login"}, {"max_age": "60"}], ids=str)
def test_enrolling_is_no_sign_in(tenant: TestTenant, asked: dict[str, str]) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    age_sessions(tenant, user)
    begin(visitor, **asked)
    assert visitor.at == "signin"
    handle, before = visitor.query, session_row(tenant, user).auth_time
    for page in ("enroll", "enroll/phone", "enroll/passkey", "step-up", "step-up?method=password&next=security"):
        visitor.opens(f"{page}{'&' if '?' in page else '?'}own=1&{handle}")
        assert visitor.at == "signin", page
    visitor.sends("enroll/app?own=1&" + handle)
    assert visitor.at == "signin"
    assert (session_row(tenant, user).auth_time, methods_of(tenant, user)) == (before, [])
    assert code_of(visitor.sends(email=user.email, password=PASSWORD))


def test_password_newer_than_the_session_asks_for_a_sign_in(tenant: TestTenant) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    visitor.opens("account/password")
    visitor.sends(password=PASSWORD)
    assert visitor.at == "account/password"
    new = f"{PASSWORD} again"
    visitor.sends(password=new)
    assert visitor.at == "account/security"
    visitor.opens("account/email")
    assert (visitor.at, "Sign in again to confirm" in visitor.words) == ("signin", True)
    visitor.sends(email=user.email, password=new)
    visitor.opens("account/email")
    visitor.sends(password=new)
    assert visitor.at == "account/email"


def test_new_backup_codes_prove_nothing_at_the_pages(tenant: TestTenant) -> None:
    visitor, person = with_app(tenant)
    visitor.opens("account/backup-codes")
    assert visitor.at == "step-up"
    follows(visitor, "Backup code")
    visitor.sends(backup_code=person.backup_codes.pop())
    assert visitor.at == "account/backup-codes"
    visitor.sends()
    codes = re.findall(r"<code>([0-9A-Z-]+)</code>", visitor.text)
    assert len(codes) == 10
    visitor.opens("step-up?method=backup_code&next=password")
    assert 'name="backup_code"' not in visitor.text
    visitor.sends("step-up?method=backup_code&next=password", backup_code=codes[0])
    assert visitor.at == "step-up"
    assert 'name="code"' in visitor.text
    a_step_lasts()
    with in_tenant(tenant.id):
        EndUser.objects.get(pk=person.id).totp_secrets.update(last_step=None)
    visitor.sends("step-up?method=totp&next=password", code=person.code())
    assert visitor.at == "account/password"
    visitor.opens("step-up?method=backup_code&next=password")
    visitor.sends(backup_code=codes[0])
    assert visitor.at == "account/password"
