"""Forms of the account that a browser sends twice, one after the other and at the same time, over HTTP.

test_journeys.py has those of a sign-in, test_browser_double_clicks.py has double clicks in Chromium.
"""

from collections.abc import Callable, Iterator
from functools import partial
from uuid import UUID, uuid4

import pytest

from mfa.remembered_devices import remembered_devices
from mfa.webauthn.models import EndUserPasskey
from tenants.context import in_tenant
from tests.mfa.people import TestUser, code_to, messages_to, new_user, some_phone
from tests.openid.pages.test_account import signed_in
from tests.openid.pages.test_journeys import sends_twice, values_of
from tests.openid.pages.test_remembered_devices import DAYS, remembered, sets
from tests.openid.pages.visitor import Visitor
from tests.parallel import run_concurrently
from tests.userflow.email.test_undo import address, link_to, moved, verified
from tests.world import PASSWORD, TestTenant, new_client
from userflow.accounts.models import EndUser
from userflow.accounts.session_models import EndUserSession


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
