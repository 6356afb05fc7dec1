"""Connected applications on the page of an end user: shown in words, disconnected by staff."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils.timezone import now

from openid.authorization.consents import grant_consent
from openid.authorization.queries import covers
from openid.models import AuthorizationCode, Consent
from tenants.entering.context import in_tenant
from tests.console.people.browsing import PEOPLE, operator_in, send, tenant_events, text_of
from tests.console.staff import Staff, new_tenant_admin
from tests.openid.application_sessions import browser, open_application
from tests.openid.relying_party import register_application
from tests.world import TestTenant, User, capture_statements
from userflow.accounts.session_models import EndUserSession


@pytest.fixture
def staff(tenant: TestTenant) -> Staff:
    return operator_in(tenant)


class Connection:
    """A user, an application that the user has consented to, and a session and an unused code of it."""

    def __init__(self, tenant: TestTenant, person: User | None = None, name: str = "Shop") -> None:
        self.tenant, self.person = tenant, person or tenant.register()
        self.client_id = register_application(tenant, name=f"{name} {uuid4().hex[:6]}")["client_id"]
        self.parent = browser(tenant, self.person.email)
        self.session = open_application(tenant, self.parent, client_id=self.client_id).session
        with in_tenant(tenant.id):
            whose = {"user_id": self.person.id, "client_id": self.client_id}
            grant_consent(**whose, scopes=["openid", "email", "invoices:read"], audiences=["identity-api"])
            AuthorizationCode.objects.create(
                digest=uuid4().bytes * 2, session=self.parent, expires_at=now() + timedelta(minutes=1), **whose
            )

    @property
    def page(self) -> str:
        return f"{PEOPLE}{self.person.id}/"

    @property
    def disconnect(self) -> str:
        return f"{self.page}applications/{self.client_id}/disconnect/"

    def is_active(self) -> bool:
        with in_tenant(self.tenant.id):
            consented = covers(
                user_id=self.person.id, client_id=self.client_id, scopes=["openid"], audiences=["identity-api"]
            )
            session = EndUserSession.objects.get(pk=self.session.pk)
            codes = AuthorizationCode.objects.filter(user_id=self.person.id, client_id=self.client_id).exists()
        assert consented == codes == (session.ended_at is None)
        return consented


def test_user_page_shows_connected_applications(tenant: TestTenant, staff: Staff) -> None:
    connected = Connection(tenant)
    page = text_of(staff.get(connected.page))
    for text in ("Shop", "identifier, e-mail address, API of this platform, invoices:read", "1 active session"):
        assert text in page
    assert connected.disconnect in page
    reader = operator_in(tenant, "endusers:read", "sessions:read")
    assert connected.disconnect not in text_of(reader.get(connected.page))
    assert "invoices:read" not in text_of(operator_in(tenant, "endusers:read").get(connected.page))


def test_disconnect_ends_consent_sessions_and_codes(tenant: TestTenant, staff: Staff) -> None:
    connected = Connection(tenant)
    other = Connection(tenant, connected.person, "Other")
    assert "Shop" in text_of(staff.get(connected.disconnect))
    assert send(staff, tenant, connected.disconnect).status_code == 302
    assert (connected.is_active(), other.is_active()) == (False, True)
    with in_tenant(tenant.id):
        assert EndUserSession.objects.get(pk=connected.parent.pk).ended_at is None
    event = tenant_events(tenant, "consent.revoked")[0]
    assert (event.target_id, event.actor_id) == (connected.client_id, str(staff.id))
    assert event.details == {"user_id": str(connected.person.id), "sessions": 1}
    assert send(staff, tenant, connected.disconnect).status_code == 404


def test_disconnect_requires_permission_and_step_up(tenant: TestTenant, staff: Staff) -> None:
    connected = Connection(tenant)
    readers = (
        operator_in(tenant, "endusers:read", "sessions:read"),
        new_tenant_admin(tenant, "endusers:read", "sessions:read").sign_in(),
    )
    for reader in readers:
        assert send(reader, tenant, connected.disconnect).status_code == 403
    staff.time_passes(minutes=16)
    assert send(staff, tenant, connected.disconnect).headers["Location"].startswith("/admin/reauthenticate/")
    assert connected.is_active()


def test_disconnect_rejects_other_users_and_tenants(tenant: TestTenant, other_tenant: TestTenant) -> None:
    connected, foreign = Connection(tenant), Connection(other_tenant)
    admin = new_tenant_admin(tenant).sign_in()
    other_user = tenant.register()
    for path in (
        f"{PEOPLE}{other_user.id}/applications/{connected.client_id}/disconnect/",
        f"{PEOPLE}{connected.person.id}/applications/{foreign.client_id}/disconnect/",
        foreign.disconnect,
    ):
        assert admin.get(path).status_code == 404
        assert send(admin, tenant, path).status_code == 404
    assert (connected.is_active(), foreign.is_active()) == (True, True)


def test_disconnect_rejects_users_of_higher_rank(tenant: TestTenant) -> None:
    connected = Connection(tenant)
    role = tenant.api.post(
        "/authmgr/roles", {"name": f"role-{uuid4().hex[:8]}", "permissions": ["clients:write"]}
    ).json()
    assert send(operator_in(tenant), tenant, f"{connected.page}roles/", chosen=[role["id"]], was="").status_code == 302
    clerk = new_tenant_admin(tenant, "endusers:read", "sessions:read", "sessions:write").sign_in()
    assert send(clerk, tenant, connected.disconnect).status_code == 400
    assert connected.is_active()


def test_user_page_statements_ignore_applications(tenant: TestTenant, staff: Staff) -> None:
    first = Connection(tenant)
    counted = []
    for _ in range(2):
        staff.just_seen()
        with capture_statements() as seen:
            assert staff.get(first.page).status_code == 200
        counted.append(seen.counts)
        Connection(tenant, first.person)
    assert counted[0] == counted[1] == (6, 21)


def test_application_without_consent_is_disconnected(tenant: TestTenant, staff: Staff) -> None:
    connected = Connection(tenant)
    with in_tenant(tenant.id):
        Consent.objects.filter(user_id=connected.person.id).delete()
    assert connected.disconnect in text_of(staff.get(connected.page))
    assert send(staff, tenant, connected.disconnect).status_code == 302
    assert connected.is_active() is False
