"""Forms that a browser sends twice, one after the other and at the same time, over HTTP.

test_journeys.py has those of a sign-in, test_browser_double_clicks.py has double clicks in Chromium.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

import pytest

from mfa.webauthn.models import EndUserPasskey
from tenants.entering.context import in_tenant
from tests.copies import change_client, change_tenant
from tests.mfa.people import TestUser, code_to, messages_to, new_user, some_phone
from tests.mfa.webauthn.passkeys import new_authenticator, user_with_passkey
from tests.openid.pages.test_account import signed_in
from tests.openid.pages.test_journeys import sends_twice, values_of
from tests.openid.pages.test_remembered_devices import DAYS, remembered, sets
from tests.openid.pages.visitor import Visitor, begin, code_of
from tests.openid.relying_party import CALLBACK, query_of
from tests.parallel import run_concurrently
from tests.userflow.email.test_undo import address, link_to, moved, verified
from tests.userflow.mailbox import mails_to, token_in
from tests.world import PASSWORD, TestTenant, new_client
from userflow.accounts.models import EndUser
from userflow.accounts.session_models import EndUserSession
from userflow.signin.remembered_browsers import remembered_devices


def sends_at_once(visitor: Visitor, **fields: str) -> None:
    """Send the form of the page from two connections of the browser; check that both responses are the same."""
    senders = [Visitor(visitor.tenant, new_client(), visitor.address, visitor.page) for _ in range(2)]
    for sender in senders:
        sender.client.cookies.load(values_of(visitor.client.cookies))
    responses = run_concurrently([partial(sender.sends, follow=False, **fields) for sender in senders])
    first, second = (
        (response.status_code, response.content, response.headers.get("Location"), values_of(response.cookies))
        for response in responses
    )
    assert first == second
    visitor.client.cookies.load(values_of(senders[0].client.cookies))
    visitor.page = responses[0]
    visitor._follow()


@pytest.fixture(params=[sends_twice, sends_at_once], ids=lambda send: send.__name__)
def send(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that sends the form of a visitor's page two times."""
    return request.param  # type: ignore[no-any-return]  # one of the functions above


def test_repeated_name_of_a_passkey_is_saved_once(tenant: TestTenant, send: Callable[..., None]) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    with in_tenant(tenant.id):
        row = EndUserPasskey.objects.create(
            user_id=user.id, credential_id=uuid4().bytes, aaguid=UUID(int=0), backup_eligible=False, backed_up=False
        )
    visitor.opens(f"account/rename/{row.pk}")
    send(visitor, name="Laptop")
    assert visitor.at == "account/security"
    assert "Your changes are saved." in visitor.words
    assert "Passkey · Laptop" in visitor.words


def test_repeated_forms_enroll_a_phone_once(tenant: TestTenant, send: Callable[..., None]) -> None:
    person = tenant.register()
    visitor, number = signed_in(tenant, person), some_phone()
    visitor.opens("enroll/phone?own=1")
    visitor.sends(password=PASSWORD)
    send(visitor, phone_number=number)
    assert "We have sent a code" in visitor.words
    assert len(messages_to(number)) == 1
    send(visitor, phone_number=number, sms_code=code_to(number))
    assert visitor.at == "account/security"
    assert "Your new second factor is ready." in visitor.words
    with in_tenant(tenant.id):
        assert EndUser.objects.get(pk=person.id).mfa_methods == ["sms"]


def test_repeated_sign_out_elsewhere_keeps_this_browser(tenant: TestTenant, send: Callable[..., None]) -> None:
    user = tenant.register()
    other, visitor = signed_in(tenant, user), signed_in(tenant, user)
    visitor.opens("account/devices")
    send(visitor, others="1")
    assert (visitor.at, "Signed out there." in visitor.words) == ("account/devices", True)
    other.opens("account")
    assert other.at == "signin"


def test_repeated_sign_out_of_one_device_says_that_it_is(tenant: TestTenant, send: Callable[..., None]) -> None:
    user = tenant.register()
    other = signed_in(tenant, user)
    with in_tenant(tenant.id):
        session = EndUserSession.objects.get(user_id=user.id, browser_digest__isnull=False)
    visitor = signed_in(tenant, user)
    visitor.opens("account/devices")
    send(visitor, session=str(session.pk))
    assert (visitor.at, "Signed out there." in visitor.words) == ("account/devices", True)
    other.opens("account")
    assert other.at == "signin"


@pytest.fixture
def person(tenant: TestTenant) -> Iterator[TestUser]:
    """A user with a second factor, in a tenant that remembers browsers during the test."""
    sets(tenant, **{DAYS: 30})
    yield new_user(tenant).enrol_totp()
    sets(tenant, **{DAYS: None})


def test_repeated_form_forgets_a_browser_once(person: TestUser, send: Callable[..., None]) -> None:
    visitor = remembered(person)
    with in_tenant(person.tenant.id):
        (device,) = remembered_devices(person.id)
    visitor.opens("account/devices")
    send(visitor, remembered=device.id)
    assert (visitor.at, "asks for your second step again" in visitor.words) == ("account/devices", True)
    with in_tenant(person.tenant.id):
        assert list(remembered_devices(person.id)) == []


def test_repeated_undo_says_that_the_address_is_restored(tenant: TestTenant, send: Callable[..., None]) -> None:
    user = verified(tenant)
    moved(tenant, user, address())
    visitor = Visitor(tenant)
    visitor.opens("email-undo")
    send(visitor, token=link_to(user.email))
    assert (visitor.page.status_code, "Your e-mail address is restored" in visitor.words) == (200, True)
    with in_tenant(tenant.id):
        assert EndUser.objects.get(pk=user.id).email == user.email


def test_repeated_text_message_completes_the_sign_in_and_a_step_up(
    tenant: TestTenant, send: Callable[..., None]
) -> None:
    person, visitor = new_user(tenant).enrol_phone(), Visitor(tenant)
    begin(visitor)
    visitor.sends(email=person.email, password=PASSWORD)
    for number in (2, 3):
        send(visitor, send="1")
        assert "We have sent you a new code." in visitor.words
        # The first one enrolled the phone.
        assert len(messages_to(person.phone)) == number
        send(visitor, sms_code=code_to(person.phone))
        if number == 2:
            assert code_of(visitor.page)
            person.minutes_pass(2)
            visitor.opens("step-up?next=security")
    assert visitor.at == "account/security"


def credential_of(visitor: Visitor, stage: str, create: Callable[[Any], Any], at: str = "passkey-options") -> str:
    """Return the response of an authenticator to the options for the form of the page."""
    before = visitor.page
    options = visitor.sends(f"{at}?{before.request['QUERY_STRING']}", stage=stage)
    assert options.status_code == 200, options.content
    visitor.page = before
    return json.dumps(create(options.json()))


def test_repeated_passkey_signs_in(tenant: TestTenant, send: Callable[..., None]) -> None:
    _user, authenticator = user_with_passkey(tenant)
    visitor = Visitor(tenant)
    begin(visitor)
    send(visitor, credential=credential_of(visitor, "sign_in", authenticator.get))
    assert code_of(visitor.page)


def test_repeated_passkey_completes_the_second_step_and_a_step_up(
    tenant: TestTenant, send: Callable[..., None]
) -> None:
    user, authenticator = user_with_passkey(tenant)
    visitor = Visitor(tenant)
    begin(visitor)
    visitor.sends(email=user.email, password=PASSWORD)
    assert visitor.at == "signin/verify"
    send(visitor, credential=credential_of(visitor, "second_step", authenticator.get))
    assert code_of(visitor.page)
    visitor.opens("step-up?next=security")
    send(visitor, credential=credential_of(visitor, "step_up", authenticator.get))
    assert visitor.at == "account/security"


def test_repeated_form_creates_one_passkey(tenant: TestTenant, send: Callable[..., None]) -> None:
    user = tenant.register()
    visitor = signed_in(tenant, user)
    visitor.opens("enroll/passkey?own=1")
    visitor.sends(password=PASSWORD)
    created = credential_of(visitor, "", new_authenticator().create, "enroll/passkey-options")
    send(visitor, credential=created)
    assert (visitor.at, "Your passkey is ready." in visitor.words) == ("account/security", True)
    with in_tenant(tenant.id):
        assert EndUserPasskey.objects.filter(user_id=user.id).count() == 1


def test_repeated_cancel_returns_to_the_application(tenant: TestTenant, send: Callable[..., None]) -> None:
    visitor = signed_in(tenant)
    begin(visitor, client={})
    assert visitor.at == "consent"
    send(visitor, deny="1")
    target = visitor.page.headers["Location"]
    assert (target.startswith(CALLBACK), query_of(target)["error"]) == (True, "access_denied")


@pytest.fixture
def unverified(new_tenant: Callable[[], TestTenant]) -> tuple[Visitor, str]:
    """A user who has registered in a tenant that requires verified addresses, and the address."""
    tenant, email = new_tenant(), address()
    change_tenant(tenant.id, settings={"email_verification": "required"})
    visitor = Visitor(tenant)
    visitor.opens("register")
    visitor.sends(email=email, name="", password=PASSWORD)
    assert visitor.at == "verify-email"
    return visitor, email


def test_repeated_forms_send_one_mail_and_verify_by_its_link(
    unverified: tuple[Visitor, str], send: Callable[..., None]
) -> None:
    visitor, email = unverified
    send(visitor, email=email, again="1")
    assert "a new mail is on its way" in visitor.words
    # The first one is that of the registration.
    _first, second = mails_to(email)
    send(visitor, token=token_in(second))
    assert (visitor.at, "Your e-mail address is verified." in visitor.words) == ("signin/password", True)


def test_repeated_sign_out_of_an_application_returns_to_it(tenant: TestTenant, send: Callable[..., None]) -> None:
    back = "https://app.example.com/bye"
    change_client(tenant.client_id, post_logout_redirect_uris=[back])
    visitor, asked = signed_in(tenant), {"client_id": str(tenant.client_id), "post_logout_redirect_uri": back}
    visitor.opens("logout?" + urlencode(asked))
    send(visitor, **asked)
    assert visitor.page.headers["Location"] == back
    assert not visitor.session


def test_sign_out_that_arrives_after_the_first_returns_too(tenant: TestTenant) -> None:
    visitor = signed_in(tenant)
    visitor.opens("logout")
    question = visitor.page
    visitor.sends(follow=False)
    visitor.page = question
    visitor.sends()
    assert (visitor.at, "You are signed out." in visitor.words) == ("signin", True)
