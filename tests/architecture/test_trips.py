"""How many modules of the platform a reader meets on the way of a request: the fewer, the sooner it is understood.

`bin/test tests/architecture/test_trips.py -s` prints the figures with the modules.
"""

from collections.abc import Callable
from typing import Any

from tests.architecture.trips import Trip, trip
from tests.mfa.webauthn.passkeys import end_users_of, new_authenticator
from tests.openid.pages.visitor import Visitor, code_of
from tests.openid.relying_party import Application, register_application
from tests.userflow.sessions.test_refresh import refresh
from tests.world import PASSWORD, TestTenant

# Lower one with every change that makes the way shorter. A few are allowed beyond what was counted: a connection or a cache
# that another test has emptied takes a way of its own.
LONGEST = {"login": 68, "refresh": 55, "profile": 45, "hosted sign-in": 91, "code to tokens": 69, "passkey": 99}


def test_ways_of_requests_do_not_grow(tenant: TestTenant) -> None:
    trips = {
        "login": warm(lambda: login(tenant)),
        "refresh": warm(lambda: refreshing(tenant)),
        "profile": warm(lambda: profile(tenant)),
        "hosted sign-in": warm(lambda: hosted(tenant)[0]),
        "code to tokens": warm(lambda: hosted(tenant)[1]),
        "passkey": warm(lambda: passkey(tenant)),
    }
    for name, made in trips.items():
        print(
            f"\n{name}: {len(made.modules)} modules, {made.entries} entries into rooms",
            *sorted(made.modules),
            sep="\n  ",
        )
    assert {name: count for name, made in trips.items() if (count := len(made.modules)) > LONGEST[name]} == {}


def warm(measure: Callable[[], Trip]) -> Trip:
    """Return the second trip: the first one imports, compiles and fills caches."""
    measure()
    return measure()


def login(tenant: TestTenant) -> Trip:
    user = tenant.register()
    with trip() as made:
        tenant.sign_in(user)
    return made


def refreshing(tenant: TestTenant) -> Trip:
    token = tenant.sign_in(tenant.register())["refresh_token"]
    with trip() as made:
        assert refresh(token, client_id=str(tenant.client_id)).status_code == 200
    return made


def profile(tenant: TestTenant) -> Trip:
    api = tenant.as_user(tenant.register())
    with trip() as made:
        assert api.get("/authmgr/profile").status_code == 200
    return made


def hosted(tenant: TestTenant) -> tuple[Trip, Trip]:
    """Return the trips from the authorization request to the code, and from the code to the tokens."""
    user, client_id = tenant.register(), register_application(tenant, first_party=True)
    visitor, app = Visitor(tenant), Application(tenant, client_id)
    app.browser.client, app.browser.address = visitor.client, visitor.address
    with trip() as signing_in:
        visitor.page = app.authorize(scope="openid profile email")
        page = visitor.sends(email=user.email, password=PASSWORD, follow=False)
    code = code_of(page)
    with trip() as exchanging:
        assert app.exchange(code).status_code == 200
    return signing_in, exchanging


def passkey(tenant: TestTenant) -> Trip:
    """Return the trip of a registration and a use, each with its options."""
    home, person = end_users_of(tenant), tenant.register()
    api = tenant.as_user(person)
    authenticator = new_authenticator()
    with trip() as made:
        home.enrol(api, person, authenticator)
        response: Any = home.finish_authentication(person, authenticator.get(home.options(person)))
    assert response.status_code == 200
    return made
