"""Browsers that skip the second step at the hosted sign-in, and everything that ends it."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import uuid4

import pyotp
import pytest
from django.utils.timezone import now

from identity_platform.crypto import hash_token
from openid.browser import DEVICE, cookie_name
from tenants.entering.context import in_tenant
from tests.mfa.people import TestUser, new_user
from tests.openid.pages.visitor import Visitor, begin
from tests.userflow.mailbox import mails_to
from tests.world import PASSWORD, Api, TestTenant
from userflow.accounts.session_models import EndUserSession, EndUserTicket
from userflow.credentials.tickets import REMEMBERED
from userflow.sessions.browser import browser_principal
from userflow.sessions.ending import sign_out
from userflow.signin.remembered_browsers import MOST_DEVICES

SETTINGS = "/uflow/admin/tenants/{}/settings"
DAYS = "remember_device_days"
NEW = "another horse 8 battery"


def sets(tenant: TestTenant, **values: object) -> None:
    response = tenant.api.patch(SETTINGS.format(tenant.id), {"settings": values})
    assert response.status_code == 200, response.content


@pytest.fixture
def remembering(tenant: TestTenant) -> Iterator[TestTenant]:
    """A tenant that remembers devices for 30 days during the test."""
    sets(tenant, **{DAYS: 30})
    yield tenant
    sets(tenant, **{DAYS: None})


@pytest.fixture
def person(remembering: TestTenant) -> TestUser:
    return new_user(remembering).enrol_totp()


def enters_password(visitor: Visitor, email: str, password: str = PASSWORD) -> str:
    """Sign in with the password, in a browser that is not signed in; return the page that follows."""
    visitor.client.cookies.pop(cookie_name("sid", visitor.tenant.id), None)
    visitor.opens("signin?another=1")
    visitor.sends(email=email, password=password)
    return visitor.at


def device_of(visitor: Visitor) -> str:
    morsel = visitor.client.cookies.get(cookie_name(DEVICE, visitor.tenant.id))
    return morsel.value if morsel is not None else ""


def carries(visitor: Visitor, device: str) -> None:
    visitor.client.cookies[cookie_name(DEVICE, visitor.tenant.id)] = device


def remembered(person: TestUser, visitor: Visitor | None = None) -> Visitor:
    """A browser in which the user has asked to skip the second step."""
    visitor = visitor or Visitor(person.tenant)
    assert enters_password(visitor, person.email) == "signin/verify"
    visitor.opens("signin/verify?method=backup_code")
    visitor.sends(backup_code=person.backup_codes.pop(), remember="1")
    assert visitor.at == "account", visitor.words
    return visitor


def kept(person: TestUser) -> list[EndUserTicket]:
    with in_tenant(person.tenant.id):
        return list(EndUserTicket.objects.filter(user_id=person.id, purpose=REMEMBERED, used_at=None))


def session_of(person: TestUser) -> EndUserSession:
    with in_tenant(person.tenant.id):
        return EndUserSession.objects.filter(user_id=person.id, browser_digest__isnull=False).latest("created_at")


def test_remembered_browser_needs_password_only(person: TestUser) -> None:
    visitor = remembered(person)
    first = device_of(visitor)
    assert enters_password(visitor, person.email) == "account"
    session = session_of(person)
    assert (session.amr, session.acr) == (["pwd"], "aal1")
    second = device_of(visitor)
    assert second not in ("", first)
    (stored,) = kept(person)
    assert bytes(stored.digest) == hash_token(second)
    assert enters_password(Visitor(person.tenant), person.email) == "signin/verify"


def test_cookie_of_device_is_host_only_and_unreadable(person: TestUser) -> None:
    morsel = remembered(person).client.cookies[cookie_name(DEVICE, person.tenant.id)]
    assert (morsel["httponly"], morsel["samesite"], morsel["path"], morsel["domain"]) == (True, "Lax", "/", "")
    assert 29 * 86_400 < int(morsel["max-age"]) <= 30 * 86_400


def test_use_does_not_prolong_the_time(person: TestUser) -> None:
    visitor = remembered(person)
    (before,) = kept(person)
    enters_password(visitor, person.email)
    (after,) = kept(person)
    assert (after.pk == before.pk, after.expires_at) == (False, before.expires_at)


def test_aal2_asks_for_the_factor_nevertheless(person: TestUser) -> None:
    visitor = remembered(person)
    visitor.client.cookies.pop(cookie_name("sid", person.tenant.id))
    begin(visitor, acr_values="aal2")
    visitor.sends(email=person.email, password=PASSWORD)
    assert visitor.at == "step-up"


def test_change_of_account_asks_for_the_factor(person: TestUser) -> None:
    visitor = remembered(person)
    assert enters_password(visitor, person.email) == "account"
    visitor.opens("account/password")
    assert visitor.at == "step-up"
    assert "password" not in re.findall(r'name="([a-z_]+)"', visitor.text)


def test_nothing_is_remembered_unasked(person: TestUser) -> None:
    visitor = Visitor(person.tenant)
    enters_password(visitor, person.email)
    assert "30 days" in visitor.words
    visitor.sends(code=person.code(1))
    assert (visitor.at, device_of(visitor), kept(person)) == ("account", "", [])


def test_devices_are_off_by_default(tenant: TestTenant) -> None:
    person, visitor = new_user(tenant).enrol_totp(), Visitor(tenant)
    enters_password(visitor, person.email)
    assert 'name="remember"' not in visitor.text
    visitor.sends(code=person.code(1), remember="1")
    assert (visitor.at, device_of(visitor), kept(person)) == ("account", "", [])


def test_required_factor_is_never_skipped(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    sets(tenant, **{DAYS: 30})
    person = new_user(tenant).enrol_totp()
    visitor = remembered(person)
    sets(tenant, mfa_policy="required")
    # The device does not come back with a milder policy.
    assert kept(person) == []
    assert enters_password(visitor, person.email) == "signin/verify"
    assert 'name="remember"' not in visitor.text


def test_device_that_lasts_too_long_skips_nothing(person: TestUser) -> None:
    visitor = remembered(person)
    with in_tenant(person.tenant.id):
        stored = EndUserTicket.objects.filter(user_id=person.id, purpose=REMEMBERED)
        stored.update(expires_at=now() + timedelta(days=31))
    assert enters_password(visitor, person.email) == "signin/verify"


def test_device_of_another_user_skips_nothing(remembering: TestTenant, person: TestUser) -> None:
    visitor, other = remembered(person), new_user(remembering).enrol_totp()
    assert enters_password(visitor, other.email) == "signin/verify"
    assert enters_password(visitor, person.email) == "account"


def test_device_of_another_tenant_skips_nothing(person: TestUser, other_tenant: TestTenant) -> None:
    visitor, unremembered = Visitor(other_tenant), new_user(other_tenant).enrol_totp()
    sets(other_tenant, **{DAYS: 30})
    carries(visitor, device_of(remembered(person)))
    assert enters_password(visitor, unremembered.email) == "signin/verify"
    sets(other_tenant, **{DAYS: None})


def test_copied_cookie_ends_all_devices(person: TestUser) -> None:
    visitor, thief = remembered(person), Visitor(person.tenant)
    remembered(person)
    carries(thief, device_of(visitor))
    assert enters_password(thief, person.email) == "account"
    with in_tenant(person.tenant.id):
        used = EndUserTicket.objects.filter(user_id=person.id, purpose=REMEMBERED).exclude(used_at=None)
        used.update(used_at=now() - timedelta(minutes=1))
    assert enters_password(visitor, person.email) == "signin/verify"
    assert kept(person) == []
    assert enters_password(thief, person.email) == "signin/verify"


def test_cookie_that_was_just_used_ends_no_device(person: TestUser) -> None:
    visitor, same = remembered(person), Visitor(person.tenant)
    carries(same, device_of(visitor))
    assert enters_password(visitor, person.email) == "account"
    assert enters_password(same, person.email) == "signin/verify"
    assert enters_password(visitor, person.email) == "account"


def change_password(person: TestUser, visitor: Visitor) -> None:
    visitor.opens("step-up?method=backup_code&next=password")
    visitor.sends(backup_code=person.backup_codes.pop())
    visitor.sends(password=NEW)
    assert visitor.at == "account/security"


def remove_factor(person: TestUser, visitor: Visitor) -> None:
    visitor.opens("account/security")
    link = re.search(r"account/(remove/[0-9a-f-]{36})", visitor.text)
    assert link
    visitor.opens(f"step-up?method=backup_code&next={link[1]}")
    visitor.sends(backup_code=person.backup_codes.pop())
    visitor.sends()
    assert visitor.at == "account/security"


def replace_app(person: TestUser, visitor: Visitor) -> None:
    visitor.opens("step-up?method=backup_code&next=enroll")
    visitor.sends(backup_code=person.backup_codes.pop())
    assert visitor.at == "enroll"
    visitor.sends("enroll/app?own=1")
    secret = re.search(r'name="secret" value="([A-Z2-7]+)"', visitor.text)
    assert secret
    visitor.sends(secret=secret[1], code=pyotp.TOTP(secret[1]).at(now()))
    assert "Save your backup codes" in visitor.words


def replace_backup_codes(person: TestUser, visitor: Visitor) -> None:
    visitor.opens("step-up?method=backup_code&next=backup-codes")
    visitor.sends(backup_code=person.backup_codes.pop())
    assert visitor.at == "account/backup-codes"
    visitor.sends()
    assert len(re.findall(r"[0-9A-Z]{4}(?:-[0-9A-Z]{4}){3}", visitor.words)) == 10, visitor.words


def sign_out_everywhere_else(person: TestUser, visitor: Visitor) -> None:
    visitor.opens("account/devices")
    visitor.sends(others="1")


def sign_out_everywhere(person: TestUser, visitor: Visitor) -> None:
    with in_tenant(person.tenant.id):
        principal = browser_principal(session_of(person))
    sign_out(principal=principal, everywhere=True)


def reset_factors(person: TestUser, visitor: Visitor) -> None:
    body = {"user_id": str(person.id), "tenant_id": str(person.tenant.id), "reason": "lost"}
    assert person.tenant.api.post("/webauthn/factors/reset", body).status_code == 200


def deactivate(person: TestUser, visitor: Visitor) -> None:
    body = {"user_id": str(person.id), "tenant_id": str(person.tenant.id), "active": False}
    assert person.tenant.api.post("/uflow/admin/enduser/active", body).status_code == 200


def end_session_as_admin(person: TestUser, visitor: Visitor) -> None:
    path = f"/authmgr/sessions/{session_of(person).pk}?tenant_id={person.tenant.id}"
    assert person.tenant.api.delete(path).status_code < 300


def end_all_sessions_as_admin(person: TestUser, visitor: Visitor) -> None:
    path = f"/authmgr/sessions?user_id={person.id}&tenant_id={person.tenant.id}"
    assert person.tenant.api.delete(path).status_code < 300


def turn_off_and_on(person: TestUser, visitor: Visitor) -> None:
    sets(person.tenant, **{DAYS: 0})
    sets(person.tenant, **{DAYS: 30})


def change_address(person: TestUser, visitor: Visitor) -> None:
    new = f"{uuid4().hex[:12]}@example.com"
    path = f"/uflow/user/enduser/{person.tenant.id}/{person.id}"
    assert person.tenant.api.put(path, {"email": new}).status_code == 200
    (mail,) = mails_to(new, "verify")
    visitor.client.cookies.clear()
    visitor.opens("verify-email")
    visitor.sends(token=re.findall(r"#token=(\S+)", mail.body)[0])
    assert person.row().email == new


def expire(person: TestUser, visitor: Visitor) -> None:
    with in_tenant(person.tenant.id):
        EndUserTicket.objects.filter(user_id=person.id, purpose=REMEMBERED).update(expires_at=now())


def forget(person: TestUser, visitor: Visitor) -> None:
    visitor.opens("account/devices")
    (one,) = re.findall(r'name="remembered" value="([0-9a-f]{64})"', visitor.text)
    visitor.sends(remembered=one)
    assert "asks for your second step again" in visitor.words


ENDS = (
    change_password,
    remove_factor,
    replace_app,
    replace_backup_codes,
    sign_out_everywhere_else,
    sign_out_everywhere,
    reset_factors,
    deactivate,
    end_session_as_admin,
    end_all_sessions_as_admin,
    turn_off_and_on,
    change_address,
    expire,
    forget,
)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_device_ends(person: TestUser, end: Callable[[TestUser, Visitor], None]) -> None:
    visitor = remembered(person)
    end(person, visitor)
    with in_tenant(person.tenant.id):
        left = EndUserTicket.objects.filter(user_id=person.id, purpose=REMEMBERED, expires_at__gt=now())
        assert not left.exists()


def test_further_factor_forgets_no_device(person: TestUser) -> None:
    visitor = remembered(person)
    login = {**person.name, "mfa_token": person.sign_in().json()["mfa_token"], "backup_code": person.backup_codes.pop()}
    person.enrol_phone(token=Api().post("/webauthn/totp/verifyLogin", login).json()["access_token"])
    assert enters_password(visitor, person.email) == "account"


def test_expired_device_skips_nothing(person: TestUser) -> None:
    visitor = remembered(person)
    expire(person, visitor)
    assert enters_password(visitor, person.email) == "signin/verify"


def test_device_of_another_user_is_not_forgotten(remembering: TestTenant, person: TestUser) -> None:
    remembered(person)
    visitor = remembered(new_user(remembering).enrol_totp())
    visitor.opens("account/devices")
    (theirs,) = kept(person)
    visitor.sends(remembered=bytes(theirs.digest).hex())
    assert kept(person) == [theirs]


def test_oldest_of_many_devices_is_forgotten(person: TestUser) -> None:
    first = remembered(person)
    (oldest,) = kept(person)
    with in_tenant(person.tenant.id):
        for number in range(MOST_DEVICES - 1):
            EndUserTicket.objects.create(
                digest=hash_token(f"{person.id} {number}"),
                purpose=REMEMBERED,
                user_id=person.id,
                expires_at=now() + timedelta(days=30),
            )
    remembered(person)
    left = kept(person)
    assert (len(left), oldest.pk in [one.pk for one in left]) == (MOST_DEVICES, False)
    assert enters_password(first, person.email) == "signin/verify"


def test_next_user_of_browser_replaces_its_device(remembering: TestTenant, person: TestUser) -> None:
    visitor = remembered(person)
    remembered(new_user(remembering).enrol_totp(), visitor)
    assert kept(person) == []


def test_days_of_devices_are_limited(tenant: TestTenant) -> None:
    for value in (-1, 31, "30", True):
        assert tenant.api.patch(SETTINGS.format(tenant.id), {"settings": {DAYS: value}}).status_code == 400
