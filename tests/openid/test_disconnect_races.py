"""Disconnecting an application while it gets tokens: no session of it survives, whichever comes first."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.utils.timezone import now

from openid.account.applications import disconnect_user
from openid.authorization.consents import grant_consent
from openid.models import AuthorizationCode, Consent, DeviceCode
from tenants.entering.context import in_tenant
from tests.openid.devices import Device
from tests.openid.pages.visitor import Visitor
from tests.openid.relying_party import Application, register_application
from tests.parallel import ROUNDS, run_concurrently
from tests.world import Api, TestTenant, build_tenant
from userflow.accounts.grant_types import AUTHORIZATION_CODE, DEVICE_CODE, REFRESH_TOKEN
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION
from userflow.accounts.principals import OPERATOR, Principal
from userflow.accounts.session_models import EndUserSession

GRANTS = [AUTHORIZATION_CODE, DEVICE_CODE, REFRESH_TOKEN]


class Scene:
    """A user in a browser, with an application that has a device too."""

    def __init__(self, tenant: TestTenant, *, first_party: bool) -> None:
        self.tenant, self.person, self.visitor = tenant, tenant.register(), Visitor(tenant)
        fields = {"first_party": first_party, "grant_types": GRANTS}
        self.app = Application(tenant, register_application(tenant, **fields))
        self.app.browser.client = self.visitor.client
        self.visitor.signs_in(self.person)
        self.device = Device(tenant, self.app.client)

    @property
    def ids(self) -> dict[str, Any]:
        return {"user_id": self.person.id, "client_id": self.app.client["client_id"]}

    def consents(self) -> None:
        with in_tenant(self.tenant.id):
            grant_consent(**self.ids, scopes=("openid", "offline_access"))

    def by_code(self) -> Callable[[], Any]:
        return partial(self.app.exchange, self.app.code(scope="openid offline_access"))

    def by_device(self) -> Callable[[], Any]:
        self.device.starts(scope="openid offline_access")
        self.device.approved_by(self.visitor)
        return self.device.polls

    def by_refresh(self) -> Callable[[], Any]:
        used = self.app.tokens(scope="openid offline_access")["refresh_token"]
        return partial(self.app.token, grant_type=REFRESH_TOKEN, refresh_token=used)

    def by_user(self) -> Callable[[], Any]:
        self.visitor.opens("account/applications")
        return partial(self.visitor.sends, client=str(self.ids["client_id"]))

    def by_operator(self) -> Callable[[], Any]:
        rights = frozenset(EVERY_PERMISSION)
        root = Principal(OPERATOR, self.person.id, None, None, None, (), rights, acr="aal2", auth_time=now())
        return partial(disconnect_user, by=root, tenant_id=self.tenant.id, **self.ids)

    def nothing_is_left(self) -> bool:
        with in_tenant(self.tenant.id):
            sessions = EndUserSession.objects.filter(**self.ids, ended_at=None)
            codes = AuthorizationCode.objects.filter(**self.ids, used_at=None)
            own = DeviceCode.objects.filter(client_id=self.ids["client_id"]).exclude(status=DeviceCode.Status.USED)
            consents = Consent.objects.filter(**self.ids)
            return not any(rows.exists() for rows in (sessions, codes, own, consents))


@pytest.fixture(scope="module")
def home(django_db_setup: None, django_db_blocker: Any) -> TestTenant:
    with django_db_blocker.unblock():
        return build_tenant("disconnect")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first_party", [True, False], ids=["first_party", "third_party"])
@pytest.mark.parametrize("disconnecting", [Scene.by_user, Scene.by_operator], ids=lambda way: way.__name__)
@pytest.mark.parametrize("getting", [Scene.by_code, Scene.by_device, Scene.by_refresh], ids=lambda way: way.__name__)
def test_disconnected_application_keeps_no_session(
    getting: Callable[[Scene], Callable[[], Any]],
    disconnecting: Callable[[Scene], Callable[[], Any]],
    first_party: bool,
    home: TestTenant,
) -> None:
    scene = Scene(home, first_party=first_party)
    for _ in range(max(2, ROUNDS // 10)):
        scene.consents()
        calls = [getting(scene), disconnecting(scene)]
        tokens, _ = run_concurrently(calls)
        assert tokens.status_code in (200, 400), tokens.content
        assert scene.nothing_is_left()
        if tokens.status_code == 200:
            got = tokens.json()
            assert scene.app.token(grant_type=REFRESH_TOKEN, refresh_token=got["refresh_token"]).status_code == 400
            assert Api(token=got["access_token"]).get(f"{scene.app.issuer}/userinfo").status_code == 401
