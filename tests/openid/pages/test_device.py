"""The page where users enter the code that a device shows."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.test import override_settings
from django.utils.timezone import now

from openid.models import DeviceCode
from tenants.entering.context import in_tenant
from tests.copies import change_client
from tests.openid.devices import Device, new_device
from tests.openid.pages.visitor import Visitor
from tests.world import TestTenant, User
from userflow.accounts.session_models import EndUserSession

WRONG = "BBBB-BBBB"


@pytest.fixture
def user(tenant: TestTenant) -> User:
    return tenant.register()


@pytest.fixture
def device(tenant: TestTenant) -> Device:
    started = new_device(tenant)
    started.starts(scope="openid email")
    return started


@pytest.fixture
def visitor(tenant: TestTenant, user: User) -> Visitor:
    opened = Visitor(tenant)
    opened.signs_in(user)
    return opened


def test_page_asks_for_the_code_and_warns(tenant: TestTenant) -> None:
    visitor = Visitor(tenant)
    visitor.opens("device")
    assert "Only continue if you started this on a device that you see." in visitor.words
    assert 'autocapitalize="characters"' in visitor.text


def test_code_is_accepted_as_people_type_it(device: Device, visitor: Visitor) -> None:
    visitor.opens("device")
    visitor.sends(user_code=f" {device.codes['user_code'].lower().replace('-', ' ')}")
    assert visitor.at == "consent"
    assert device.codes["user_code"] in visitor.words


@pytest.mark.parametrize("code", ["", "BCDF", "AEIO-UAEI", "1234-5678", "\x00", "ß" * 8, "B" * 40])
def test_text_that_is_no_code_is_explained(visitor: Visitor, code: str) -> None:
    visitor.opens("device")
    visitor.sends(user_code=code)
    assert visitor.page.status_code == 400
    assert "user_code" in visitor.text


def test_unknown_code_is_explained(visitor: Visitor) -> None:
    visitor.opens(f"device?user_code={WRONG}")
    assert visitor.page.status_code == 400
    assert "This code is not valid." in visitor.words


def test_page_shows_what_the_user_approves(device: Device, visitor: Visitor, user: User) -> None:
    visitor.opens(f"device?user_code={device.codes['user_code']}")
    for text in (
        "Sign in to Television on another device?",
        device.codes["user_code"],
        "See your e-mail address",
        user.email,
        "Cancel if the code or a link was sent to you",
        "Requested from",
    ):
        assert text in visitor.words, text
    assert device.error == "authorization_pending"
    visitor.sends(allow="1")
    assert visitor.at == "device"
    assert "Go back to your device" in visitor.words


def test_user_signs_in_first_and_comes_back(device: Device, tenant: TestTenant, user: User) -> None:
    visitor = Visitor(tenant)
    visitor.signs_in(user, f"device?user_code={device.codes['user_code']}")
    assert visitor.at == "consent"
    assert device.codes["user_code"] in visitor.words
    visitor.sends(allow="1")
    assert device.polls().status_code == 200


def test_new_user_registers_and_comes_back(tenant: TestTenant) -> None:
    own = new_device(tenant)
    own.starts(scope="openid")
    change_client(own.client["client_id"], self_registration=True)
    visitor = Visitor(tenant)
    visitor.opens(f"device?user_code={own.codes['user_code']}")
    assert "to continue to Television" in visitor.words


def test_old_sign_in_is_repeated_for_strict_clients(tenant: TestTenant, visitor: Visitor, user: User) -> None:
    strict = new_device(tenant, default_max_age=300)
    strict.starts(scope="openid")
    with in_tenant(tenant.id):
        EndUserSession.objects.filter(user_id=user.id).update(auth_time=now() - timedelta(hours=1))
    visitor.opens(f"device?user_code={strict.codes['user_code']}")
    assert visitor.at == "signin"


def test_form_of_another_browser_approves_nothing(device: Device, visitor: Visitor, tenant: TestTenant) -> None:
    attacker = Visitor(tenant)
    attacker.signs_in(tenant.register(), f"device?user_code={device.codes['user_code']}")
    handle = attacker.query
    visitor.opens(f"consent?{handle}")
    assert visitor.page.status_code == 400
    visitor.client.post(f"{visitor.root}/consent?{handle}", {"allow": "1"})
    assert device.error == "authorization_pending"


def test_device_form_needs_its_token(device: Device, visitor: Visitor) -> None:
    visitor.opens("device")
    page = visitor.client.post(f"{visitor.root}/device", {"user_code": device.codes["user_code"]})
    assert page.status_code == 403


def test_of_two_browsers_the_first_decides(device: Device, visitor: Visitor, tenant: TestTenant) -> None:
    second = Visitor(tenant)
    second.signs_in(tenant.register(), f"device?user_code={device.codes['user_code']}")
    visitor.opens(f"device?user_code={device.codes['user_code']}")
    visitor.sends(deny="1")
    second.sends(allow="1")
    assert second.page.status_code == 400
    assert device.error == "access_denied"


def test_code_that_expires_on_the_page_is_rejected(device: Device, visitor: Visitor, tenant: TestTenant) -> None:
    visitor.opens(f"device?user_code={device.codes['user_code']}")
    with in_tenant(tenant.id):
        DeviceCode.objects.filter(client_id=device.client["client_id"]).update(expires_at=now())
    visitor.sends(allow="1")
    assert visitor.page.status_code == 400
    assert device.error == "expired_token"


@pytest.mark.parametrize("own_network", [True, False], ids=["of a network", "of a session"])
def test_guessing_is_limited(device: Device, visitor: Visitor, own_network: bool) -> None:
    with override_settings(LIMITS={**settings.LIMITS, "user_code": (3 if own_network else 30, 600)}):
        for _ in range(3 if own_network else 10):
            visitor.opens(f"device?user_code={WRONG}")
            assert visitor.page.status_code == 400
        if own_network:
            # Another browser in the same network.
            other = Visitor(visitor.tenant, address=visitor.address)
        else:
            other, visitor.address = visitor, "203.0.113.77"
        other.opens(f"device?user_code={device.codes['user_code']}")
    assert other.page.status_code == 429
    assert "Retry-After" in other.page.headers
    assert device.error == "authorization_pending"
