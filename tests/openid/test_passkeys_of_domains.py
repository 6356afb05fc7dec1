"""Passkeys belong to one RP ID: what a change of the sign-in domain does to them, and to the people who have them."""

from collections.abc import Callable

import pytest

from mfa.webauthn.models import EndUserPasskey
from tenants.entering.context import in_tenant
from tenants.settings.page_addresses import origin_of
from tests.console.platform.conftest import send
from tests.console.staff import new_tenant_admin
from tests.mfa.people import TestUser, new_user
from tests.mfa.webauthn.authenticator import Authenticator
from tests.mfa.webauthn.passkeys import Home, end_users_of, new_authenticator, user_with_passkey
from tests.openid.pages.visitor import Visitor
from tests.openid.sign_in_domains import DOMAINS, set_sign_in, sign_in_domain, verified_domain
from tests.userflow.domains.conftest import _dns_server as _dns_server
from tests.userflow.domains.conftest import name_server as name_server
from tests.userflow.domains.dns_server import DnsServer
from tests.world import PASSWORD, Api, TestTenant, User, capture_statements

NewTenant = Callable[[], TestTenant]


@pytest.fixture
def home(new_tenant: NewTenant, name_server: DnsServer) -> TestTenant:
    return new_tenant()


def with_passkey_at(tenant: TestTenant, domain: str) -> tuple[TestUser, Authenticator]:
    """A user who has registered a passkey at a sign-in domain, and an authenticator app."""
    person = new_user(tenant).enrol_totp()
    passkey = Authenticator(origin=origin_of(domain))
    end_users_of(tenant).enrol(signed_in(person), person, passkey, backup_code=person.backup_codes.pop())
    return person, passkey


def signed_in(person: TestUser) -> Api:
    """Sign in with password and backup code."""
    body = {**person.name, "backup_code": person.backup_codes.pop(), "mfa_token": person.sign_in().json()["mfa_token"]}
    verified = Api().post("/webauthn/totp/verifyLogin", body)
    assert verified.status_code == 200, verified.content
    return Api(token=verified.json()["access_token"])


def rp_ids(tenant: TestTenant, user: User | TestUser) -> list[str | None]:
    with in_tenant(tenant.id):
        return list(EndUserPasskey.objects.filter(user_id=user.id).values_list("rp_id", flat=True))


def make_older(tenant: TestTenant, user: User | TestUser) -> None:
    """Leave the user's passkeys as an earlier release has stored them."""
    with in_tenant(tenant.id):
        EndUserPasskey.objects.filter(user_id=user.id).update(rp_id=None)


def change(tenant: TestTenant, row: dict[str, str], on: bool) -> None:
    response = tenant.api.patch(f"{DOMAINS}/{row['id']}", {"sign_in": on, "disable_passkeys": True})
    assert response.status_code == 200, response.content


def works(at: Home, user: User | TestUser, passkey: Authenticator) -> bool:
    return bool(at.finish_authentication(user, passkey.get(at.options(user))).status_code == 200)


def test_registration_stores_the_rp_id(home: TestTenant) -> None:
    user, _ = user_with_passkey(home)
    assert rp_ids(home, user) == ["localhost"]


def test_change_counts_the_passkeys_that_it_disables(home: TestTenant, name_server: DnsServer) -> None:
    (user, _), row = user_with_passkey(home), verified_domain(home, name_server)
    rejected = set_sign_in(home, row, True)
    assert rejected.status_code == 400
    (says,) = rejected.json()["details"]["sign_in"]
    assert "for localhost that cannot be used until it is the RP ID again: 1, of users: 1." in says
    assert says.endswith("need a factor reset: 1.")
    change(home, row, True)
    assert rp_ids(home, user) == ["localhost"]


def test_passkeys_work_again_when_their_domain_returns(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    (person, passkey), at = with_passkey_at(home, row["domain"]), end_users_of(home)
    assert works(at, person, passkey)
    change(home, row, False)
    other = at.begin_authentication(person)
    assert (other.status_code, "another RP ID" in other.json()["message"]) == (400, True)
    # Nothing is in the way of the return.
    assert set_sign_in(home, row, True).status_code == 200
    assert works(at, person, passkey)


def test_withdrawn_domain_can_return(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    (person, passkey), at = with_passkey_at(home, row["domain"]), end_users_of(home)
    make_older(home, person)
    assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 200
    assert rp_ids(home, person) == [row["domain"]]
    name_server.records.clear()
    again = sign_in_domain(home, name_server, row["domain"])
    assert again["sign_in"] is True
    assert works(at, person, passkey)


def test_options_offer_passkeys_of_the_rp_id_only(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    (person, old), at = with_passkey_at(home, row["domain"]), end_users_of(home)
    change(home, row, False)
    api = signed_in(person)
    new = new_authenticator()
    offered = at.begin_registration(api, person).json()
    assert offered["excludeCredentials"] == []
    at.enrol(api, person, new, backup_code=person.backup_codes.pop())
    assert len(at.options(person)["allowCredentials"]) == 1
    assert works(at, person, new)
    assert not works(at, person, old)
    listed = api.get("/webauthn/factors").json()["factors"]
    assert [each.get("rp_id") for each in listed if each["kind"] == "webauthn"] == [row["domain"], "localhost"]


def test_older_passkey_gets_its_rp_id_at_its_next_use(home: TestTenant) -> None:
    user, passkey = user_with_passkey(home)
    make_older(home, user)
    at = end_users_of(home)
    options = at.options(user)
    with capture_statements() as seen:
        assert at.finish_authentication(user, passkey.get(options)).status_code == 200
    assert rp_ids(home, user) == ["localhost"]
    assert len(options["allowCredentials"]) == 1
    assert seen.counts[1] <= 4


def test_older_passkeys_get_the_rp_id_before_it_changes(home: TestTenant, name_server: DnsServer) -> None:
    user, _ = user_with_passkey(home)
    make_older(home, user)
    change(home, verified_domain(home, name_server), True)
    assert rp_ids(home, user) == ["localhost"]


def test_setting_counts_passkeys_of_the_present_id_only(
    home: TestTenant, name_server: DnsServer, operator: Api
) -> None:
    row = sign_in_domain(home, name_server)
    person, _ = with_passkey_at(home, row["domain"])
    change(home, row, False)
    path = f"/uflow/admin/tenants/{home.id}"
    assert operator.patch(path, {"settings": {"webauthn_rp_id": row["domain"]}}).status_code == 200
    assert len(end_users_of(home).options(person)["allowCredentials"]) == 1
    rejected = operator.patch(path, {"settings": {"webauthn_rp_id": None}})
    assert (rejected.status_code, list(rejected.json()["details"])) == (400, ["settings.webauthn_rp_id"])


def test_second_step_names_the_other_methods(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    person, _ = with_passkey_at(home, row["domain"])
    change(home, row, False)
    visitor = Visitor(home)
    visitor.opens("signin")
    visitor.sends(email=person.email, password=PASSWORD)
    assert "created at another address" in visitor.words
    assert "method=webauthn" not in visitor.text
    visitor.sends(code=person.code(1))
    assert visitor.at == "account"
    visitor.opens("account/security")
    assert f"only for {row['domain']}, does not work here" in visitor.words
    visitor.opens("step-up?next=security")
    assert "created at another address" in visitor.words


def test_second_step_without_other_methods_says_what_to_do(home: TestTenant, name_server: DnsServer) -> None:
    row, user = sign_in_domain(home, name_server), home.register()
    end_users_of(home).enrol(home.as_user(user), user, Authenticator(origin=origin_of(row["domain"])))
    change(home, row, False)
    visitor = Visitor(home)
    visitor.signs_in(user)
    assert visitor.at == "signin/verify"
    assert "Ask the people who run this service to reset yours." in visitor.words
    assert "data-passkey" not in visitor.text


def test_last_usable_factor_stays(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    person, _ = with_passkey_at(home, row["domain"])
    change(home, row, False)
    api = signed_in(person)
    totp, passkey = (
        next(each["id"] for each in api.get("/webauthn/factors").json()["factors"] if each["kind"] == kind)
        for kind in ("totp", "webauthn")
    )
    kept = api.delete(f"/webauthn/factors/{totp}", {"backup_code": person.backup_codes[0]})
    assert kept.status_code == 409, kept.content
    gone = api.delete(f"/webauthn/factors/{passkey}", {"backup_code": person.backup_codes[1]})
    assert gone.status_code == 200, gone.content


def test_console_counts_passkeys_before_a_deletion(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    with_passkey_at(home, row["domain"])
    admin = new_tenant_admin(home).sign_in()
    page = f"/admin/platform/domains/{row['id']}/delete/"
    assert "cannot be used until it is the RP ID again: 1, of users: 1." in admin.get(page).text
    assert send(admin, home, page).status_code == 302


def test_console_asks_before_passkeys_are_disabled(home: TestTenant, name_server: DnsServer) -> None:
    user_with_passkey(home)
    row = verified_domain(home, name_server)
    admin = new_tenant_admin(home).sign_in()
    page = f"/admin/platform/domains/{row['id']}/sign-in/"
    warned = send(admin, home, page)
    assert (warned.status_code, "cannot be used until it is the RP ID again: 1" in warned.text) == (400, True)
    assert send(admin, home, page, disable_passkeys="on").status_code == 302
