"""Retention: expired rows are deleted; other rows and the chain of the rest stay."""

import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.utils.timezone import now

from identity_platform.audit import purge as purging
from identity_platform.audit.models import ChainHead
from mfa.push.models import PushAuthenticationRequest, PushDevice
from tenants.entering.context import in_tenant
from tenants.journals import audit_trails
from tenants.lifecycle import provisioning, retention
from tests.identity_platform.audit.conftest import as_owner, fill, run, seal
from tests.identity_platform.audit.test_chain import INSERT_COPY
from tests.world import Api, TestTenant
from userflow.accounts.session_models import EndUserEnrollmentWindow, EndUserRefreshToken, EndUserSession, EndUserTicket


def owner(tenant: TestTenant) -> audit_trails.Owner:
    return audit_trails.Owner(tenant.slug, tenant.id)


def numbers(tenant: TestTenant) -> tuple[int, int]:
    """Return the numbers of old and of young events."""
    ((old, young),) = run(
        tenant,
        "SELECT count(*) FILTER (WHERE at < now() - interval '300 days'), count(*) FILTER (WHERE at > now() -"
        " interval '1 day') FROM audit_tenantevent WHERE action = 'test.filled'",
    )
    return old, young


def test_purge_keeps_old_events_behind_a_young_one(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    for days_ago in (0, 500):
        fill(tenant, 1500, days_ago=days_ago)
        seal(tenant)
    assert audit_trails.purge(owner(tenant)) == 0
    assert numbers(tenant) == (1500, 1500)
    assert audit_trails.verify(owner(tenant)).faults == []


def aged(new_tenant: Callable[[], TestTenant], *, old: int = 4000, young: int = 2000) -> TestTenant:
    """Return a tenant whose history up to some day is old."""
    tenant = new_tenant()
    with as_owner(tenant) as sql:
        sql("UPDATE audit_tenantevent SET at = now() - interval '500 days'")
    fill(tenant, old, days_ago=500)
    seal(tenant)
    fill(tenant, young)
    seal(tenant)
    return tenant


def test_purged_trail_verifies_and_grows(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = aged(new_tenant)
    assert audit_trails.purge(owner(tenant)) >= 4000
    assert numbers(tenant) == (0, 2000)
    verdict = audit_trails.verify(owner(tenant))
    assert (verdict.faults, verdict.events) == ([], 2000)
    fill(tenant, 10)
    seal(tenant)
    assert audit_trails.purge(owner(tenant)) == 0
    assert audit_trails.verify(owner(tenant)).faults == []


def test_verify_finds_events_written_below_a_purge(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = aged(new_tenant)
    audit_trails.purge(owner(tenant))
    with as_owner(tenant) as sql:
        sql(INSERT_COPY, 17)
    [fault] = audit_trails.verify(owner(tenant)).faults
    assert fault.startswith("1 events below event ")


def test_unfinished_purge_is_no_fault(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = aged(new_tenant)

    def stop(events: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit_trails.purge(owner(tenant), seen=stop)
    assert numbers(tenant)[0] > 0
    assert audit_trails.verify(owner(tenant)).faults == []
    audit_trails.purge(owner(tenant))
    assert numbers(tenant)[0] == 0


def test_deleting_a_tenant_removes_its_chain_head_only(
    new_tenant: Callable[[], TestTenant], other_tenant: TestTenant
) -> None:
    tenant = new_tenant()
    for one in (tenant, other_tenant):
        one.register()
        seal(one)
    heads = ChainHead.objects.filter(owner__in=[str(tenant.id), str(other_tenant.id)])
    assert heads.count() == 2
    provisioning.delete_tenant(tenant_id=tenant.id)
    assert heads.get().owner == str(other_tenant.id)
    # A sealer that ran at that moment writes what it has just sealed.
    ChainHead.objects.create(owner=str(tenant.id), number=2, mac=b"late")
    retention.purge(audit_trails.THE_PLATFORM)
    assert heads.get().owner == str(other_tenant.id)
    assert audit_trails.verify(owner(other_tenant)).faults == []


def test_chain_continues_after_everything_was_purged(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = aged(new_tenant, old=1500, young=0)
    audit_trails.purge(owner(tenant))
    assert run(tenant, "SELECT count(*) FROM audit_tenantevent") == [(0,)]
    fill(tenant, 1200)
    assert seal(tenant) == 1200
    verdict = audit_trails.verify(owner(tenant))
    assert (verdict.faults, verdict.events, verdict.unsealed) == ([], 1200, 0)


def test_verify_after_purge_finds_change_and_removed_anchor(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = aged(new_tenant)
    audit_trails.purge(owner(tenant))
    with as_owner(tenant) as sql:
        sql("UPDATE audit_tenantevent SET actor_id = 'x' WHERE id = (SELECT max(id) FROM audit_tenantevent)")
    assert len(audit_trails.verify(owner(tenant)).faults) == 1
    with as_owner(tenant) as sql:
        sql("DELETE FROM audit_tenantseal WHERE kind = 'anchor'")
    assert any("missing" in fault for fault in audit_trails.verify(owner(tenant)).faults)


def test_verify_finds_a_forged_anchor(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = aged(new_tenant)
    run(
        tenant,
        "INSERT INTO audit_tenantseal (number, kind, from_id, to_id, count, newest_at, purged_number, digest, previous,"
        " mac) SELECT max(number) + 1, 'anchor', 1, 3000, 3000, now(), 2, (SELECT mac FROM audit_tenantseal WHERE"
        " number = 2), (SELECT mac FROM audit_tenantseal ORDER BY number DESC LIMIT 1), sha256('x')"
        " FROM audit_tenantseal",
    )
    run(tenant, "DELETE FROM audit_tenantevent WHERE id <= 1000")
    assert any("not made by this platform" in fault for fault in audit_trails.verify(owner(tenant)).faults)


def test_killed_purge_resumes(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = aged(new_tenant, old=6000)

    class Killed(BaseException):
        """Stand for the end of a process, which nothing catches."""

    def kill(_: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        audit_trails.purge(owner(tenant), seen=kill)
    assert 0 < numbers(tenant)[0] < 6000
    assert audit_trails.verify(owner(tenant)).faults == []
    audit_trails.purge(owner(tenant))
    assert numbers(tenant) == (0, 2000)
    assert run(tenant, "SELECT count(*) FROM audit_tenantseal WHERE kind = 'anchor'") == [(1,)]
    assert audit_trails.verify(owner(tenant)).faults == []


def test_purge_never_deletes_events_under_thirty_days(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    fill(tenant, 1000)
    seal(tenant)
    with (
        in_tenant(tenant.id),
        audit_trails.opened(owner(tenant)) as trail,
        pytest.raises(Exception, match="append-only"),
    ):
        purging.purge(trail, before=now() + timedelta(days=1))
    assert numbers(tenant) == (0, 1000)


def test_purge_deletes_expired_sessions_tickets_and_windows(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    person = tenant.register()
    old, fresh = tenant.sign_in(person), tenant.sign_in(person)
    with in_tenant(tenant.id):
        first = EndUserSession.objects.order_by("created_at").first()
        assert first is not None
        EndUserSession.objects.filter(pk=first.pk).update(expires_at=now() - timedelta(days=31))
        EndUserTicket.objects.update(expires_at=now() - timedelta(seconds=1))
        EndUserEnrollmentWindow.objects.update(expires_at=now() - timedelta(seconds=1))
    purged = retention.purge(owner(tenant))
    assert (purged.problem, purged.rows["end user sessions"]) == ("", 1)
    with in_tenant(tenant.id):
        left = EndUserSession.objects.count(), EndUserRefreshToken.objects.count()
        assert (*left, EndUserTicket.objects.count(), EndUserEnrollmentWindow.objects.count()) == (1, 1, 0, 0)
    for response, status in ((old, 400), (fresh, 200)):
        body = {"grant_type": "refresh_token", "refresh_token": response["refresh_token"]}
        assert Api().post("/authmgr/token", body).status_code == status


def test_purge_command_skips_an_unreachable_tenant(new_tenant: Callable[[], TestTenant]) -> None:
    sound, broken = new_tenant(), new_tenant()
    with as_owner(broken):
        run(broken, "ALTER TABLE audit_tenantseal RENAME TO hidden")
        out, err = io.StringIO(), io.StringIO()
        with pytest.raises(SystemExit) as ended:
            call_command("purge_expired", str(sound.id), str(broken.id), stdout=out, stderr=err)
        run(broken, "ALTER TABLE hidden RENAME TO audit_tenantseal")
    assert (ended.value.code, "1 of 2 done" in out.getvalue()) == (1, True)
    assert err.getvalue().startswith(broken.slug)


def test_purge_deletes_expired_challenges_keeps_devices(new_tenant: Callable[[], TestTenant]) -> None:
    tenant, other_tenant = new_tenant(), new_tenant()
    for one in (tenant, other_tenant):
        person = one.register()
        with in_tenant(one.id):
            device = PushDevice.objects.create(user_id=person.id, platform="ios", address_sealed=b"")
            for minutes in (-1, 1):
                PushAuthenticationRequest.objects.create(
                    user_id=person.id, device=device, expires_at=now() + timedelta(minutes=minutes)
                )
    assert retention.purge(owner(tenant)).rows["push authentication requests"] == 1
    for one, left in ((tenant, 1), (other_tenant, 2)):
        with in_tenant(one.id):
            assert (PushAuthenticationRequest.objects.count(), PushDevice.objects.count()) == (left, 1)


def test_purge_covers_every_model_that_expires() -> None:
    from django.apps import apps

    # Kept, and deleted by the clock of the database: a wrong one of this machine must not end leases.
    kept = {"registry.ServiceCredential", "tenants.ConnectionLease"}
    expiring: list[Any] = [m for m in apps.get_models() if any(f.name == "expires_at" for f in m._meta.get_fields())]
    silent = {m._meta.label for m in expiring if not hasattr(m, "expired")} - kept
    assert silent == set()
    connections.close_all()
