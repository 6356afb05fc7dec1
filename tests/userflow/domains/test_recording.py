"""Domains of tenants that are suspended, restored or out of reach: the claims are checked, and the changes recorded later."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.utils.timezone import now

from identity_platform.audit.models import PlatformEvent, TenantEvent
from tenants.addresses.domain_claims import GRACE, note_look_up
from tenants.consistency import repairs
from tenants.entering.context import in_tenant
from tenants.errors import TenantBusy
from tenants.lifecycle import provisioning
from tenants.models import DomainClaim, TenantDatabase
from tenants.states import Purpose, State
from tests.openid.application_sessions import cookie_of
from tests.openid.sign_in_domains import DOMAINS, ApiAt, set_sign_in, sign_in_domain, verified_domain
from tests.tenants.records import commits_fail, differing
from tests.userflow.domains.dns_server import DnsServer
from tests.world import Api, TestTenant
from userflow.accounts.session_models import EndUserTicket
from userflow.domains.actions import check_domains
from userflow.domains.models import TenantDomain
from userflow.sessions.browser import find_browser_session
from userflow.signin.remembered_browsers import REMEMBERED

NewTenant = Callable[[], TestTenant]
METADATA = "/.well-known/openid-configuration"


@pytest.fixture
def home(new_tenant: NewTenant) -> TestTenant:
    return new_tenant()


def events(tenant: TestTenant) -> list[str]:
    with in_tenant(tenant.id, Purpose.INSPECT):
        found = TenantEvent.objects.filter(action__startswith="domain.").order_by("pk")
        return [action.removeprefix("domain.") for action in found.values_list("action", flat=True)]


def findings(tenant: TestTenant) -> list[repairs.Finding]:
    return [each for each in repairs.find_problems() if each.subject == tenant.slug]


def status(tenant: TestTenant, row: dict[str, Any]) -> str:
    return str(tenant.api.get(f"{DOMAINS}/{row['id']}").json()["status"])


def lose(row: dict[str, Any], name_server: DnsServer) -> None:
    """The record has been gone for seven days."""
    name_server.records.clear()
    DomainClaim.objects.filter(pk=row["domain"]).update(lost_since=now() - GRACE)


@contextmanager
def no_commit(tenant: TestTenant) -> Iterator[None]:
    """The tenant's server ends the connection when a change of a domain is committed."""
    function = "BEGIN RAISE EXCEPTION 'gone' USING ERRCODE = '57P01'; END"
    with in_tenant(tenant.id), connections["tenant"].cursor() as cursor:
        cursor.execute(f"CREATE FUNCTION no_commit() RETURNS trigger LANGUAGE plpgsql AS $${function}$$")
        cursor.execute(
            "CREATE CONSTRAINT TRIGGER no_commit AFTER INSERT OR UPDATE OR DELETE ON userflow_tenantdomain"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION no_commit()"
        )
    yield
    with in_tenant(tenant.id), connections["tenant"].cursor() as cursor:
        cursor.execute("DROP FUNCTION no_commit CASCADE")


@contextmanager
def no_release(domain: str) -> Iterator[None]:
    """The server of the global database ends the connection when the claim's deletion is committed."""
    function = "BEGIN RAISE EXCEPTION 'gone' USING ERRCODE = '57P01'; END"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE FUNCTION no_release() RETURNS trigger LANGUAGE plpgsql AS $${function}$$")
        cursor.execute(
            "CREATE CONSTRAINT TRIGGER no_release AFTER DELETE ON tenants_domainclaim DEFERRABLE INITIALLY DEFERRED"
            f" FOR EACH ROW WHEN (OLD.domain = '{domain}') EXECUTE FUNCTION no_release()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION no_release CASCADE")


def test_check_withdraws_domain_of_suspended_tenant(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    provisioning.suspend_tenant(tenant_id=home.id)
    name_server.records.clear()
    check_domains(tenant_id=home.id)
    assert DomainClaim.objects.get(pk=row["domain"]).lost_since is not None
    lose(row, name_server)
    check_domains(tenant_id=home.id)
    assert not DomainClaim.objects.filter(pk=row["domain"]).exists()
    withdrawn = PlatformEvent.objects.get(action="domain.withdrawn", tenant_id=home.id)
    assert withdrawn.details["domain"] == row["domain"]
    provisioning.resume_tenant(tenant_id=home.id)
    assert (status(home, row), findings(home)) == ("pending", [])
    assert events(home) == ["added", "verified", "updated", "record_lost", "withdrawn"]
    assert Api().get(f"/t/{home.slug}{METADATA}").status_code == 200
    assert ApiAt(host=row["domain"]).get(METADATA).status_code == 400


def test_check_withdraws_domain_of_unusable_tenant(
    home: TestTenant, tenant: TestTenant, name_server: DnsServer
) -> None:
    row = verified_domain(home, name_server)
    lose(row, name_server)
    mapping = TenantDatabase.objects.filter(pk=home.id)
    mapping.update(status=State.MIGRATING)
    with pytest.raises(TenantBusy):
        check_domains(tenant_id=home.id)
    assert not DomainClaim.objects.filter(pk=row["domain"]).exists()
    assert verified_domain(tenant, name_server, row["domain"])["status"] == "verified"
    mapping.update(status=State.ACTIVE)
    (found,) = findings(home)
    assert f"{row['domain']} belongs to another tenant" in found.message
    check_domains(tenant_id=home.id)
    assert (events(home), findings(home)) == (["added", "verified", "withdrawn"], [])


def test_verification_is_recorded_after_a_failure(home: TestTenant, name_server: DnsServer) -> None:
    made = home.api.post(DOMAINS, {"domain": "login.recorded-later.example"}).json()
    name_server.records[made["record"]["name"]] = [made["record"]["value"]]
    with no_commit(home):
        assert home.api.post(f"{DOMAINS}/{made['id']}/verify", {}).status_code == 503
    assert (status(home, made), events(home)) == ("verified", ["added"])
    (found,) = findings(home)
    assert (str(found.kind), f"{made['domain']} is verified" in found.message) == ("outdated domains", True)
    assert repairs.repair(found) == ""
    assert (events(home), findings(home)) == (["added", "verified"], [])


def test_change_of_sign_in_domain_that_fails_changes_nothing(home: TestTenant, name_server: DnsServer) -> None:
    first, second = sign_in_domain(home, name_server), verified_domain(home, name_server)
    with no_commit(home):
        assert set_sign_in(home, second, True).status_code == 503
    assert [ApiAt(host=row["domain"]).get(METADATA).status_code for row in (first, second)] == [200, 400]
    assert (findings(home), differing(home)) == ([], [])
    assert set_sign_in(home, second, True).status_code == 200
    assert (events(home)[-2:], findings(home), differing(home)) == (["updated", "updated"], [], [])


def test_sign_in_domain_is_recorded_after_an_interruption(home: TestTenant, name_server: DnsServer) -> None:
    first, second = sign_in_domain(home, name_server), verified_domain(home, name_server)
    with commits_fail("tenants_domainclaim"):
        assert set_sign_in(home, second, True).status_code == 503
    # The tenant's database is ahead, so the first is a former one; the second is unknown until the repair.
    assert [ApiAt(host=row["domain"]).get(METADATA).status_code for row in (first, second)] == [404, 400]
    (found,) = findings(home)
    assert f"{first['domain']} is the sign-in domain" in found.message
    assert f"{second['domain']} is not the sign-in domain any more" in found.message
    assert repairs.repair(found) == ""
    # The same call again records it too.
    assert set_sign_in(home, second, True).status_code == 200
    assert (findings(home), differing(home)) == ([], [])


def test_deletion_that_fails_changes_nothing(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    with no_commit(home):
        assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 503
    assert (status(home, row), ApiAt(host=row["domain"]).get(METADATA).status_code) == ("verified", 200)
    assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 200
    assert (events(home)[-1], findings(home)) == ("deleted", [])


def test_domain_whose_release_fails_returns(home: TestTenant, name_server: DnsServer) -> None:
    row = sign_in_domain(home, name_server)
    with no_release(row["domain"]):
        assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 503
    assert home.api.get(DOMAINS).json() == {"domains": []}
    (found,) = findings(home)
    assert f"{row['domain']} is verified" in found.message
    assert repairs.repair(found) == ""
    (again,) = home.api.get(DOMAINS).json()["domains"]
    assert (again["status"], again["sign_in"], again["record"]) == ("verified", True, row["record"])
    assert home.api.delete(f"{DOMAINS}/{again['id']}").status_code == 200
    assert findings(home) == []


def test_restored_tenant_learns_that_its_domain_is_taken(
    home: TestTenant, tenant: TestTenant, name_server: DnsServer
) -> None:
    row = sign_in_domain(home, name_server)
    with in_tenant(home.id):
        in_backup = TenantDomain.objects.get()
    assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 200
    verified_domain(tenant, name_server, row["domain"])
    with in_tenant(home.id):
        in_backup.save(force_insert=True)
    assert status(home, row) == "taken"
    (found,) = findings(home)
    assert f"{row['domain']} belongs to another tenant" in found.message
    assert repairs.repair(found) == ""
    with in_tenant(home.id):
        kept = TenantDomain.objects.get()
        assert (kept.checked_at, kept.lost_since, kept.sign_in) == (None, None, None)
        recorded = TenantEvent.objects.get(action="domain.withdrawn")
    assert (recorded.details["taken"], findings(home), status(home, row)) == (True, [], "taken")
    assert DomainClaim.objects.get(pk=row["domain"]).tenant_id == tenant.id


@pytest.mark.parametrize("how", ["deleted", "withdrawn", "withdrawn unnoticed"])
def test_cookies_of_a_given_up_domain_never_work_again(home: TestTenant, name_server: DnsServer, how: str) -> None:
    row, user = sign_in_domain(home, name_server), home.register()
    cookie = cookie_of(home, user.email, user.password)
    with in_tenant(home.id):
        ends = now() + timedelta(days=1)
        EndUserTicket.objects.create(digest=b"device", user_id=user.id, purpose=REMEMBERED, expires_at=ends)
        assert find_browser_session(cookie) is not None
    if how == "deleted":
        assert home.api.delete(f"{DOMAINS}/{row['id']}").status_code == 200
        verified_again = verified_domain(home, name_server, row["domain"])
    else:
        records = dict(name_server.records)
        lose(row, name_server)
        if how == "withdrawn":
            check_domains(tenant_id=home.id)
        else:
            note_look_up(DomainClaim.objects.get(pk=row["domain"]), has_record=False)
        name_server.records |= records
        verified_again = home.api.post(f"{DOMAINS}/{row['id']}/verify", {}).json()
    assert set_sign_in(home, verified_again, True).status_code == 200
    with in_tenant(home.id):
        assert find_browser_session(cookie) is None
        assert not EndUserTicket.objects.filter(purpose=REMEMBERED).exists()


def test_slow_check_changes_no_newer_claim(home: TestTenant, name_server: DnsServer) -> None:
    row = verified_domain(home, name_server)
    claims = DomainClaim.objects.filter(pk=row["domain"])
    claims.update(lost_since=now() - GRACE)
    seen = claims.get()
    assert home.api.post(f"{DOMAINS}/{row['id']}/verify", {}).status_code == 200
    note_look_up(seen, has_record=False)
    assert claims.get().lost_since is None
    seen = claims.get()
    assert home.api.post(f"{DOMAINS}/{row['id']}/verify", {}).status_code == 200
    note_look_up(seen, has_record=False)
    assert claims.get().lost_since is None
    note_look_up(claims.get(), has_record=False)
    assert claims.get().lost_since is not None
