"""What keyboards and clipboards add to addresses, codes and numbers, at the hosted pages, the console and in imports."""

import secrets
from pathlib import Path

import pytest

from mfa.sms.models import Phone
from tenants.entering.context import in_tenant
from tests.console.staff import LOGIN, new_operator
from tests.mfa.people import code_to, new_user, some_phone
from tests.openid.pages.visitor import Visitor, begin
from tests.userflow.transfer.files import address, run, slug, table
from tests.world import PASSWORD, Api, TestTenant
from userflow.accounts.models import EndUser

ZERO_WIDTH, MARK, NO_BREAK, LEFT, POP = "\u200b", "\ufeff", "\u00a0", "\u202a", "\u202c"
ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
FULL_WIDTH = str.maketrans("0123456789", "０１２３４５６７８９")


def test_sign_in_takes_an_address_and_a_code_as_pasted(tenant: TestTenant) -> None:
    person, visitor = new_user(tenant).enrol_totp(), Visitor(tenant)
    visitor.opens("signin")
    visitor.sends(email=f"{MARK}{ZERO_WIDTH}{person.email}{NO_BREAK}", password=PASSWORD)
    code = person.code(1).translate(ARABIC)
    visitor.sends(code=f"{LEFT}{code[:3]}{NO_BREAK}{code[3:]}{POP}")
    assert visitor.session, visitor.words


def test_password_is_never_changed(tenant: TestTenant) -> None:
    user, visitor = tenant.register(), Visitor(tenant)
    for password in (f"{PASSWORD}{ZERO_WIDTH}", f" {PASSWORD}", PASSWORD.translate(FULL_WIDTH) + MARK):
        visitor.signs_in(user, password=password)
        assert not visitor.session


def test_pages_show_international_domains_in_unicode(tenant: TestTenant) -> None:
    local = f"eva-{secrets.token_hex(4)}"
    user, visitor = tenant.register(f"{local}@m\u00fcnchen.example"), Visitor(tenant)
    shown, stored = f"{local}@m\u00fcnchen.example", f"{local}@xn--mnchen-3ya.example"
    begin(visitor, client={})
    visitor.sends(email=stored, password=PASSWORD)
    assert (visitor.at, shown in visitor.words, stored in visitor.words) == ("consent", True, False)
    for page in ("account", "account/email", "signout", "enroll?own=1"):
        visitor.opens(page)
        assert (shown in visitor.words, stored in visitor.words) == (True, False), page
    assert user.email == shown


@pytest.mark.parametrize("dash", ["\u2013", "\u2014", "\u2011", "\u2212", " - ", NO_BREAK])
def test_backup_code_takes_any_dash_at_pages_and_api(tenant: TestTenant, dash: str) -> None:
    person, visitor = new_user(tenant).enrol_totp(), Visitor(tenant)
    first, second = (code.replace("-", dash) for code in person.backup_codes[:2])
    visitor.opens("signin")
    visitor.sends(email=person.email, password=PASSWORD)
    visitor.opens("signin/verify?method=backup_code")
    visitor.sends(backup_code=f"{ZERO_WIDTH}{first}")
    assert visitor.session, visitor.words
    body = {"email": person.email, "tenant_id": str(tenant.id), "backup_code": second}
    assert Api().post("/webauthn/totp/verify", body).status_code == 200


def test_phone_number_and_code_in_any_digits(tenant: TestTenant) -> None:
    user, visitor, phone = tenant.register(), Visitor(tenant), some_phone()
    visitor.signs_in(user)
    visitor.opens("enroll/phone?own=1")
    visitor.sends(password=PASSWORD)
    visitor.sends(phone_number="0171 1234567")
    assert "such as +447400123456" in visitor.words
    visitor.sends(phone_number=f"{LEFT}+{phone[1:4].translate(ARABIC)} ({phone[4:7]})\u2013{phone[7:]}{POP}")
    assert "Code from the text message" in visitor.words, visitor.words
    visitor.sends(sms_code=code_to(phone).translate(FULL_WIDTH), phone_number=phone)
    with in_tenant(tenant.id):
        assert Phone.objects.filter(user_id=user.id).exists()


def test_console_takes_names_and_codes_as_pasted() -> None:
    staff = new_operator().enrol_totp()
    form = {"username": f"{MARK}{staff.username}{ZERO_WIDTH}", "password": staff.password, "next": "/admin/"}
    assert staff.browser.post(LOGIN, form).headers["Location"] == "/admin/second-step/"
    code = staff.code().translate(ARABIC)
    assert (
        staff.browser.post("/admin/second-step/", {"code": f"{code[:3]}{NO_BREAK}{code[3:]}{POP}"}).status_code == 302
    )
    assert staff.browser.get("/admin/").status_code == 200


def test_console_asks_again_for_an_address_that_is_none() -> None:
    staff = new_operator()
    response = staff.browser.post("/admin/forgotten/", {"email": "ann@ex\u200bample.com"})
    assert (response.status_code, b"Enter an e-mail address such as" in response.content) == (400, True)
    assert staff.browser.post("/admin/forgotten/", {"email": f"ann@M\u00fcnchen.example{NO_BREAK}"}).status_code == 302


def test_attempts_at_an_unknown_name_count_together_in_all_spellings() -> None:
    body = {"username": "no-such-admin@m\u00fcnchen.example", "password": "wrong password 1"}
    pasted, encoded = f"{ZERO_WIDTH}{body['username']}", "No-Such-Admin@xn--mnchen-3ya.example"
    spellings = (body["username"], pasted, encoded, pasted, encoded, body["username"])
    statuses = [Api().post("/uflow/admin/auth/login", {**body, "username": name}).status_code for name in spellings]
    assert statuses == [401, 401, 401, 401, 401, 429]


def test_import_takes_addresses_as_spreadsheets_have_them(tenant: TestTenant, tmp_path: Path) -> None:
    email = address()
    row = {"email": f"{NO_BREAK}{email}{ZERO_WIDTH}"}
    ended = run("import_users", slug(tenant), table(tmp_path / "people.csv", row))
    assert ended.code == 0, ended.said
    with in_tenant(tenant.id):
        assert EndUser.objects.filter(email=email).exists()
