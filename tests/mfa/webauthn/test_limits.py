"""Limits of passkey ceremonies per network: a page that offers passkeys by autofill begins one at every view."""

from pytest_django.fixtures import Settings

from tests.mfa.webauthn.authenticator import Authenticator
from tests.mfa.webauthn.passkeys import Home
from tests.openid.pages.visitor import Visitor
from tests.world import Api, TestTenant, User, unique_ip


def test_options_for_sign_in_count_as_ceremonies(home: Home, settings: Settings) -> None:
    settings.LIMITS = {**settings.LIMITS, "ceremony": (2, 60), "signin": (1, 60)}
    api = Api(address=unique_ip())
    assert [home.begin_authentication(api=api).status_code for _ in range(3)] == [200, 200, 429]


def test_finished_sign_ins_are_limited(home: Home, enrolled: tuple[User, Authenticator], settings: Settings) -> None:
    _, authenticator = enrolled
    settings.LIMITS = {**settings.LIMITS, "signin": (1, 60)}
    api, statuses = Api(address=unique_ip()), []
    for _ in range(2):
        response = authenticator.get(home.begin_authentication(api=api).json())
        statuses.append(home.finish_authentication(None, response, api=api).status_code)
    assert statuses == [200, 429]


def test_views_of_hosted_sign_in_leave_room_for_passwords(tenant: TestTenant, settings: Settings) -> None:
    settings.LIMITS = {**settings.LIMITS, "ceremony": (3, 60), "signin": (1, 60)}
    person, visitor = tenant.register(), Visitor(tenant)
    statuses = []
    for _ in range(4):
        visitor.opens("signin")
        statuses.append(visitor.sends("passkey-options", stage="sign_in").status_code)
    assert statuses == [200, 200, 200, 429]
    visitor.signs_in(person)
    assert visitor.session
