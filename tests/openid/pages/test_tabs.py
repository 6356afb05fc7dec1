"""Two tabs of one browser with two accounts, over HTTP: each page with steps acts on the account that it shows.

test_journeys.py has the password and a code of an app, test_browser_tabs.py has both and the device in Chromium.
"""

import json
from collections.abc import Callable
from typing import Final

import pytest

from tenants.entering.context import in_tenant
from tests.copies import change_tenant
from tests.mfa.people import TestUser, code_to, new_user, some_phone
from tests.mfa.webauthn.authenticator import Authenticator
from tests.mfa.webauthn.passkeys import new_authenticator, user_with_passkey
from tests.openid.devices import Device, new_device
from tests.openid.pages.test_journeys import links_of, tab
from tests.openid.pages.test_repeated_forms import credential_of
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.openid.test_application_tokens import claims_in
from tests.userflow.invitations.test_invitations import invite, token_of
from tests.userflow.passwords.test_reset import mails_to as reset_mails_to
from tests.userflow.passwords.test_reset import token_in
from tests.world import PASSWORD, TestTenant, User
from userflow.accounts.models import EndUser

SIGNED_IN: Final = "You have signed in in another tab of this browser since this page was opened"
SIGNED_OUT: Final = "You have signed out in another tab of this browser since this page was opened"
GONE_ON: Final = "You have gone on with another account in another tab of this browser"
NEW: Final = "another horse 8 battery"


def enters_password(visitor: Visitor, user: User | TestUser, password: str = PASSWORD) -> None:
    """Enter address and password at the page of the sign-in."""
    visitor.sends(email=user.email, password=password)


def in_two_tabs(tenant: TestTenant, *users: User | TestUser) -> list[Visitor]:
    """Enter the passwords of two users in two tabs of one browser."""
    first = Visitor(tenant)
    tabs = [first, tab(first)]
    for visitor, user in zip(tabs, users, strict=True):
        visitor.opens("signin?another=1")
        enters_password(visitor, user)
    return tabs


def is_refused(visitor: Visitor, reason: str = SIGNED_IN) -> None:
    """Check that the last form was refused with the reason, and open its page again."""
    assert (visitor.page.status_code, reason in visitor.words) == (403, True), visitor.words
    visitor.opens(links_of(visitor)["Open the page again"].replace("&amp;", "&"))


def address_of(visitor: Visitor) -> str:
    """Return the address of the account that is signed in."""
    return str(tab(visitor).opens("account/data").json()["profile"]["email"])


def methods_of(tenant: TestTenant, user: User) -> list[str]:
    with in_tenant(tenant.id):
        return list(EndUser.objects.get(pk=user.id).mfa_methods)


# --- second step -----------------------------------------------------------------------------------------------------


def test_text_messages_of_two_tabs_stay_apart(tenant: TestTenant) -> None:
    people = [new_user(tenant).enrol_phone() for _ in range(2)]
    first, second = in_two_tabs(tenant, *people)
    for visitor in (first, second):
        visitor.sends(send="1")
    first.sends(sms_code=code_to(people[0].phone))
    assert address_of(first) == people[0].email
    second.sends(sms_code=code_to(people[1].phone))
    is_refused(second)
    assert people[1].email in second.words
    second.sends(sms_code=code_to(people[1].phone))
    assert (second.at, address_of(second)) == ("account", people[1].email)


def test_passkeys_of_two_tabs_stay_apart(tenant: TestTenant) -> None:
    people = [user_with_passkey(tenant) for _ in range(2)]
    first, second = in_two_tabs(tenant, *(user for user, _ in people))

    def response(visitor: Visitor, authenticator: Authenticator) -> str:
        return credential_of(visitor, "second_step", authenticator.get)

    # The other account's passkey is not accepted,.
    first.sends(credential=response(first, people[1][1]))
    assert (first.page.status_code, first.session) == (400, None)
    first.sends(credential=response(first, people[0][1]))
    assert address_of(first) == people[0][0].email
    second.sends(credential=json.dumps({}))
    is_refused(second)
    second.sends(credential=response(second, people[1][1]))
    assert (second.at, address_of(second)) == ("account", people[1][0].email)


# --- enrollment ------------------------------------------------------------------------------------------------------


@pytest.fixture
def strict(new_tenant: Callable[[], TestTenant]) -> TestTenant:
    """A tenant that requires a second factor."""
    tenant = new_tenant()
    change_tenant(tenant.id, settings={"mfa_policy": "required"})
    return tenant


def enroll_page(visitor: Visitor, kind: str) -> str:
    """Return the address of a page that enrolls a factor, in the journey of the tab."""
    return f"enroll/{kind}?{visitor.query}"


def test_phones_of_two_tabs_stay_apart(strict: TestTenant) -> None:
    users, numbers = [strict.register() for _ in range(2)], [some_phone() for _ in range(2)]
    first, second = tabs = in_two_tabs(strict, *users)
    for visitor, number in zip(tabs, numbers, strict=True):
        visitor.opens(enroll_page(visitor, "phone"))
        visitor.sends(phone_number=number)
    first.sends(phone_number=numbers[0], sms_code=code_to(numbers[0]))
    assert address_of(first) == users[0].email
    second.sends(phone_number=numbers[1], sms_code=code_to(numbers[1]))
    is_refused(second)
    assert (second.at, methods_of(strict, users[1])) == ("enroll/phone", [])
    second.sends(phone_number=numbers[1], sms_code=code_to(numbers[1]))
    assert (address_of(second), methods_of(strict, users[1])) == (users[1].email, ["sms"])


def test_new_passkeys_of_two_tabs_stay_apart(strict: TestTenant) -> None:
    users = [strict.register() for _ in range(2)]
    first, second = tabs = in_two_tabs(strict, *users)
    created = []
    for visitor in tabs:
        visitor.opens(enroll_page(visitor, "passkey"))
        created.append(credential_of(visitor, "", new_authenticator().create, "enroll/passkey-options"))
    first.sends(credential=created[0])
    assert address_of(first) == users[0].email
    second.sends(credential=created[1])
    is_refused(second)
    assert (second.at, methods_of(strict, users[1])) == ("enroll/passkey", [])
    second.sends(credential=created[1])
    assert (address_of(second), methods_of(strict, users[1])) == (users[1].email, ["webauthn"])


# --- pages of the session: step-up, consent, account, device -----------------------------------------------------------


@pytest.fixture
def user(tenant: TestTenant) -> User:
    return tenant.register()


@pytest.fixture
def other(tenant: TestTenant) -> User:
    return tenant.register()


@pytest.fixture
def shown(tenant: TestTenant, user: User) -> Visitor:
    """A tab in which the first user is signed in."""
    visitor = Visitor(tenant)
    visitor.signs_in(user)
    return visitor


def signs_in_elsewhere(shown: Visitor, other: User) -> None:
    """Sign another user in in another tab."""
    tab(shown).signs_in(other, "signin?another=1")
    assert address_of(shown) == other.email


def test_step_up_of_another_account_is_refused(shown: Visitor, user: User, other: User) -> None:
    shown.opens("step-up?next=security")
    assert user.email in shown.words
    signs_in_elsewhere(shown, other)
    shown.sends(password=PASSWORD)
    is_refused(shown)
    assert (shown.at, other.email in shown.words) == ("step-up", True)


def test_consent_of_another_account_is_refused(shown: Visitor, user: User, other: User) -> None:
    app = begin(shown, client={})
    assert (shown.at, user.email in shown.words) == ("consent", True)
    signs_in_elsewhere(shown, other)
    shown.sends(allow="1")
    is_refused(shown)
    assert (shown.at, other.email in shown.words) == ("consent", True)
    tokens = app.exchange(code_of(shown.sends(allow="1"))).json()
    assert claims_in(tokens["id_token"])["sub"] == str(other.id)


def test_choice_of_another_account_is_refused(shown: Visitor, user: User, other: User) -> None:
    app = begin(shown, prompt="select_account")
    assert (shown.at, user.email in shown.words) == ("select-account", True)
    signs_in_elsewhere(shown, other)
    shown.sends()
    is_refused(shown)
    # The sign-in in the other tab was a choice.
    tokens = app.exchange(code_of(shown.page)).json()
    assert claims_in(tokens["id_token"])["sub"] == str(other.id)


def waiting_device(tenant: TestTenant) -> Device:
    """Return a device that shows a code."""
    device = new_device(tenant)
    device.starts(scope="openid email")
    return device


def test_device_of_another_account_is_refused(tenant: TestTenant, shown: Visitor, user: User, other: User) -> None:
    device = waiting_device(tenant)
    shown.opens(f"device?user_code={device.codes['user_code']}")
    assert (shown.at, user.email in shown.words) == ("consent", True)
    signs_in_elsewhere(shown, other)
    shown.sends(allow="1")
    assert device.error == "authorization_pending"
    is_refused(shown)
    assert (shown.at, other.email in shown.words) == ("consent", True)
    shown.sends(allow="1")
    assert claims_in(device.polls().json()["id_token"])["sub"] == str(other.id)


def test_two_tabs_approve_their_own_devices(tenant: TestTenant, user: User, other: User) -> None:
    """The second tab signs another account in for its device; the first one asks that account before it goes on."""
    devices = [waiting_device(tenant) for _ in range(2)]
    first = Visitor(tenant)
    second = tab(first)
    for visitor, device in zip((first, second), devices, strict=True):
        visitor.opens(f"device?user_code={device.codes['user_code']}")
    enters_password(first, user)
    enters_password(second, other)
    is_refused(second)
    # It goes on with the account that has signed in, until another one is chosen.
    assert (second.at, user.email in second.words) == ("consent", True)
    second.opens(f"signin?{second.query}&another=1")
    enters_password(second, other)
    for visitor, device in zip((first, second), devices, strict=True):
        assert (visitor.at, device.codes["user_code"] in visitor.words) == ("consent", True)
    second.sends(allow="1")
    assert claims_in(devices[1].polls().json()["id_token"])["sub"] == str(other.id)
    first.sends(allow="1")
    is_refused(first)
    assert (other.email in first.words, devices[0].codes["user_code"] in first.words) == (True, True)


# --- links of mails --------------------------------------------------------------------------------------------------


def test_resets_of_two_tabs_stay_apart(tenant: TestTenant, user: User, other: User) -> None:
    first = Visitor(tenant)
    tabs, users = [first, tab(first)], [user, other]
    for visitor, owner in zip(tabs, users, strict=True):
        visitor.opens("forgot")
        visitor.sends(email=owner.email)
        visitor.opens("reset")
    for visitor, owner in zip(tabs, users, strict=True):
        visitor.sends(token=token_in(reset_mails_to(owner.email)[-1]), password=NEW)
        assert (visitor.at, owner.email in visitor.words) == ("signin/password", True)
    first.sends(password=NEW)
    assert address_of(first) == user.email
    tabs[1].sends(password=NEW)
    is_refused(tabs[1])
    assert other.email in tabs[1].words
    tabs[1].sends(password=NEW)
    assert address_of(first) == other.email


def test_invitations_of_two_tabs_stay_apart(tenant: TestTenant) -> None:
    first, invitations = Visitor(tenant), [invite(tenant, "end_user") for _ in range(2)]
    second = tab(first)
    for visitor in (first, second):
        visitor.opens("invitation")
    first.sends(token=token_of(invitations[0]), name="Ina", password=PASSWORD)
    assert address_of(first) == invitations[0]["email"]
    second.sends(token=token_of(invitations[1]), name="Ian", password=PASSWORD)
    is_refused(second)
    assert second.at == "invitation"
    second.sends(token=token_of(invitations[1]), name="Ian", password=PASSWORD)
    assert address_of(second) == invitations[1]["email"]


# --- the other reasons -----------------------------------------------------------------------------------------------


def test_form_after_signing_out_in_another_tab_says_so(shown: Visitor) -> None:
    shown.opens("account")
    leaving = tab(shown)
    leaving.opens("signout")
    leaving.sends()
    shown.sends(name="Nina")
    is_refused(shown, SIGNED_OUT)
    assert shown.at == "signin"


def test_journey_that_goes_on_with_another_account_says_so(tenant: TestTenant) -> None:
    first, second = new_user(tenant).enrol_totp(), new_user(tenant).enrol_totp()
    shown = Visitor(tenant)
    begin(shown)
    query = shown.query
    enters_password(shown, first)
    copy = tab(shown)
    copy.opens(f"signin?{query}&another=1")
    enters_password(copy, second)
    shown.sends(code=first.code(1))
    is_refused(shown, GONE_ON)
    assert second.email in shown.words


# --- no cookies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["signin", "register", "consent", "continue"])
def test_request_in_a_browser_without_cookies_names_them(tenant: TestTenant, path: str) -> None:
    visitor = Visitor(tenant)
    begin(visitor)
    address = f"{path}?{visitor.query}"
    visitor.client.cookies.clear()
    visitor.opens(address)
    assert visitor.page.status_code == 400
    assert "Allow cookies for this site, then go back to the application and sign in again." in visitor.words
    assert links_of(visitor) == {"Sign in": f"{visitor.root}/signin"}


def test_form_without_cookies_names_them(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.opens("signin")
    visitor.client.cookies.clear()
    visitor.sends(email="without@example.com", password=PASSWORD)
    assert (visitor.page.status_code, "your browser does not accept cookies" in visitor.words) == (403, True)
