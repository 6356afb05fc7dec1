"""The index of all tenants' end users follows their databases; `index_end_users` removes what still differs."""

import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import transaction

from identity_platform.api import valkey
from tenants.entering.context import in_tenant, tenant_atomic
from tenants.errors import UnknownTenant
from tenants.journals import deliveries
from tenants.models import TenantDatabase, UndeliveredRevocation
from tenants.states import State
from tests.machine.conftest import within
from tests.tenants.conftest import connect_to, run_command
from tests.userflow.user_index.reading import indexed
from tests.userflow.webhooks.conftest import deliverers as deliverers
from tests.world import PASSWORD, Api, TestTenant, capture_statements
from userflow.accounts.models import EndUser
from userflow.user_index import entries as user_entries
from userflow.user_index.actions import compare, index_end_users
from userflow.user_index.entries import deliver, digest_of, remove, store
from userflow.user_index.models import IndexedEndUser, UnindexedEndUser


def address() -> str:
    return f"Person-{secrets.token_hex(6)}@example.com"


def entries(tenant: TestTenant) -> dict[Any, bytes]:
    """Return the tenant's entries, once what waits was delivered."""
    with suppress(UnknownTenant):
        deliver(tenant.id)
    rows = IndexedEndUser.objects.filter(tenant_id=tenant.id)
    return {row.user_id: bytes(row.digest) for row in rows}


def differences(tenant: TestTenant, **options: Any) -> tuple[int, int, int]:
    found = compare(tenant.id, **options)
    return found.missing, found.outdated, found.surplus


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_index_follows_registration_and_erasure(tenant: TestTenant) -> None:
    person = tenant.register(address())
    assert indexed(tenant, person.email) == [person.id]
    body = {"tenant_id": str(tenant.id), "user_id": str(person.id)}
    assert tenant.api.post("/uflow/user/enduser/delete_all", body).status_code == 200
    assert indexed(tenant, person.email) == []


def test_erasure_keeps_the_entry_of_another_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person, email = tenant.register(), address().lower()
    with in_tenant(other_tenant.id):
        # An id is unique in its tenant only: an import or a restored database can bring the same one.
        EndUser.objects.create(pk=person.id, email=email, email_key=email)
    store(other_tenant.id, {person.id: digest_of(email)})
    body = {"tenant_id": str(tenant.id), "user_id": str(person.id)}
    assert tenant.api.post("/uflow/user/enduser/delete_all", body).status_code == 200
    assert (indexed(tenant, person.email), indexed(other_tenant, email)) == ([], [person.id])
    other = {"tenant_id": str(other_tenant.id), "user_id": str(person.id)}
    assert other_tenant.api.post("/uflow/user/enduser/delete_all", other).status_code == 200
    assert indexed(other_tenant, email) == []


def test_changed_address_keeps_the_entry_of_another_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    person, email = tenant.register(), address().lower()
    store(other_tenant.id, {person.id: digest_of(email)})
    path = f"/uflow/user/enduser/{tenant.id}/{person.id}"
    assert tenant.api.put(path, {"email": (changed := address())}).status_code == 200
    assert (indexed(tenant, changed), indexed(other_tenant, email)) == ([person.id], [person.id])
    remove(other_tenant.id, [person.id])
    assert indexed(tenant, changed) == [person.id]


def test_index_follows_address_that_an_admin_changes(tenant: TestTenant) -> None:
    person, new = tenant.register(), address()
    response = tenant.api.put(f"/uflow/user/enduser/{tenant.id}/{person.id}", {"email": new})
    assert response.json()["email"] == new
    assert (indexed(tenant, person.email), indexed(tenant, new)) == ([], [person.id])


def test_unused_registration_leaves_index_with_its_address(tenant: TestTenant) -> None:
    first = tenant.register()
    body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": first.email, "provider": "google"}
    second = tenant.api.post("/uflow/user/clients/register", body)
    assert second.status_code == 201, second.content
    assert indexed(tenant, first.email) == [UUID(second.json()["user_id"])]


def test_rejected_registration_is_not_indexed(tenant: TestTenant) -> None:
    before = entries(tenant)
    body = {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "email": address(), "password": "short"}
    assert Api().post("/uflow/user/clients/register", body).status_code == 400
    assert entries(tenant) == before


def waiting(tenant: TestTenant) -> int:
    with in_tenant(tenant.id):
        return UnindexedEndUser.objects.count()


def test_requests_of_end_users_write_to_their_database_only(tenant: TestTenant) -> None:
    tenant.register()
    deliver(tenant.id)
    with capture_statements() as registering:
        person = tenant.register(address())
    assert (registering.default, waiting(tenant)) == ([], 1)
    assert not IndexedEndUser.objects.filter(user_id=person.id).exists()
    with capture_statements() as ending:
        session = tenant.as_user(person)
        change = {"current_password": PASSWORD, "new_password": f"{PASSWORD}-{secrets.token_hex(6)}"}
        assert session.post("/authmgr/profile/password", change).status_code == 200
    assert ending.default == []
    # The deliverer is woken for both.
    assert str(tenant.id) in deliveries.wakeups.take_due(1_000_000)
    with in_tenant(tenant.id):
        assert UndeliveredRevocation.objects.exists()
    assert deliveries.deliver_all(tenants=[tenant.id]) == []
    assert (indexed(tenant, person.email), waiting(tenant)) == ([person.id], 0)
    with in_tenant(tenant.id):
        assert not UndeliveredRevocation.objects.exists()


def test_admins_find_their_changes_at_once(tenant: TestTenant) -> None:
    person, new = tenant.register(), address()
    path = f"/uflow/user/enduser/{tenant.id}/{person.id}"
    assert tenant.api.put(path, {"email": new}).status_code == 200
    assert waiting(tenant) == 0
    assert IndexedEndUser.objects.get(tenant_id=tenant.id, user_id=person.id).digest == digest_of(new.lower())


def test_sign_in_notes_nothing(tenant: TestTenant) -> None:
    person = tenant.register()
    deliver(tenant.id)
    tenant.sign_in(person)
    with in_tenant(tenant.id):
        EndUser.objects.filter(pk=person.id).update(name="Another", email_key=person.email.lower())
    assert waiting(tenant) == 0


def users_without_rows_elsewhere(tenant: TestTenant, number: int) -> list[UUID]:
    with in_tenant(tenant.id):
        addresses = [address().lower() for _ in range(number)]
        return [EndUser.objects.create(email=email, email_key=email).pk for email in addresses]


def test_sql_by_hand_is_followed(tenant: TestTenant) -> None:
    changed, deleted = users_without_rows_elsewhere(tenant, 2)
    assert {changed, deleted} <= entries(tenant).keys()
    with connect_to(tenant.row) as raw:
        raw.execute("UPDATE userflow_enduser SET email_key = 'by-hand@example.com' WHERE id = %s", [changed])
        raw.execute("DELETE FROM userflow_enduser WHERE id = %s", [deleted])
    assert indexed(tenant, "by-hand@example.com") == [changed]
    assert deleted not in entries(tenant)


def test_transaction_that_is_rolled_back_notes_nothing(tenant: TestTenant) -> None:
    person = tenant.register()
    deliver(tenant.id)
    with in_tenant(tenant.id), suppress(RuntimeError), tenant_atomic():
        EndUser.objects.filter(pk=person.id).update(email_key="not-committed@example.com")
        assert UnindexedEndUser.objects.count() == 1
        raise RuntimeError
    assert waiting(tenant) == 0


def test_later_delivery_waits_for_an_earlier_one(tenant: TestTenant) -> None:
    """Two deliverers read one user before and after a change: the entry of the later one stays."""
    person, new = tenant.register(), address().lower()
    deliver(tenant.id)
    with connect_to(tenant.row) as earlier:
        earlier.autocommit = False
        earlier.execute("SELECT pg_advisory_xact_lock(%s)", [user_entries.DELIVERY_LOCK])
        with connect_to(tenant.row) as raw:
            raw.execute("UPDATE userflow_enduser SET email_key = %s WHERE id = %s", [new, person.id])
        # A request and a wake-up do not wait, and leave it to the next wake-up.
        assert deliver(tenant.id, batches=3) is True
        assert waiting(tenant) == 1
        later = in_thread(lambda: deliver(tenant.id))
        later.join(0.5)
        assert later.is_alive()
        store(tenant.id, {person.id: digest_of("before@example.com")})
        earlier.commit()
    later.join(30)
    assert IndexedEndUser.objects.get(tenant_id=tenant.id, user_id=person.id).digest == digest_of(new)


def test_without_valkey_requests_deliver_themselves(tenant: TestTenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries.wakeups, "_breaker", open_breaker())
    person = tenant.register(address())
    assert IndexedEndUser.objects.filter(tenant_id=tenant.id, user_id=person.id).exists()


def open_breaker() -> valkey.CircuitBreaker:
    breaker = valkey.CircuitBreaker()
    breaker.record_failure()
    return breaker


def test_changes_of_admins_are_delivered_after_a_rollback_too(tenant: TestTenant) -> None:
    (user_id,) = users_without_rows_elsewhere(tenant, 1)
    deliver(tenant.id)
    with suppress(RuntimeError), transaction.atomic():
        with in_tenant(tenant.id):
            EndUser.objects.filter(pk=user_id).update(email_key="rolled-back-elsewhere@example.com")
        raise RuntimeError
    # The tenant's transaction is committed, and the deliverer looks later.
    assert waiting(tenant) == 1
    name = deliveries.wakeups._name()
    assert valkey.client().zscore(name, str(tenant.id)) is not None
    assert indexed(tenant, "rolled-back-elsewhere@example.com") == [user_id]


@pytest.mark.parametrize("member", ["no id", ""])
def test_malformed_wakeup_is_dropped(member: str) -> None:
    while deliveries.wakeups.take_due(1_000):
        pass
    deliveries.wakeups.wake(member)
    assert deliveries.deliver_due()
    assert not deliveries.deliver_due()


def test_batches_of_a_large_change_are_left_to_the_deliverer(
    tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = users_without_rows_elsewhere(tenant, 3)
    with connect_to(tenant.row) as raw:
        raw.execute("DELETE FROM userflow_enduser WHERE id = ANY(%s)", [ids])
    monkeypatch.setattr(user_entries, "AT_ONCE", 1)
    assert deliver(tenant.id, batches=2) is True
    assert waiting(tenant) == 1
    assert deliver(tenant.id, batches=2) is False
    assert waiting(tenant) == 0


def test_running_process_follows_within_seconds(
    new_tenant: Callable[[], TestTenant], deliverers: Callable[[], "subprocess.Popen[str]"]
) -> None:
    tenant = new_tenant()
    process = deliverers()
    person = tenant.register(address())
    assert within(20, IndexedEndUser.objects.filter(tenant_id=tenant.id, user_id=person.id).exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_process_tries_again_after_an_error(tenant: TestTenant) -> None:
    person = tenant.register(address())
    deliveries.wakeups.take_due(1_000_000)
    with connect_to(tenant.row) as raw:
        raw.execute("ALTER TABLE userflow_unindexedenduser RENAME TO elsewhere")
        try:
            deliveries.wakeups.wake(str(tenant.id))
            assert deliveries.deliver_due()
        finally:
            raw.execute("ALTER TABLE elsewhere RENAME TO userflow_unindexedenduser")
    assert str(tenant.id) not in deliveries.wakeups.take_due(1_000_000)
    name = deliveries.wakeups._name()
    due = valkey.client().zscore(name, str(tenant.id))
    assert due is not None
    assert 0 < due - time.time() <= deliveries.RETRY_SECONDS
    valkey.client().zrem(name, str(tenant.id))
    assert indexed(tenant, person.email) == [person.id]


def test_digest_is_keyed_and_the_same_in_every_tenant(tenant: TestTenant, other_tenant: TestTenant) -> None:
    email = address()
    one, other = tenant.register(email), other_tenant.register(email)
    assert entries(tenant)[one.id] == entries(other_tenant)[other.id] == digest_of(email.lower())
    columns = {column.name for column in IndexedEndUser._meta.concrete_fields}
    assert (len(digest_of("a@example.com")), columns) == (16, {"tenant_id", "user_id", "digest"})


def test_sign_in_needs_no_statement_for_the_index(tenant: TestTenant) -> None:
    person = tenant.register()
    with capture_statements() as seen:
        tenant.sign_in(person)
    assert not [sql for sql in seen.default if "indexedenduser" in sql]


@pytest.mark.parametrize("size", [2, 5000])
def test_comparison_corrects_the_index(size: int, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    people = [tenant.register() for _ in range(5)]
    right = entries(tenant)
    IndexedEndUser.objects.filter(tenant_id=tenant.id, user_id__in=[people[0].id, people[1].id]).delete()
    IndexedEndUser.objects.filter(tenant_id=tenant.id, user_id=people[2].id).update(digest=b"x" * 16)
    IndexedEndUser.objects.bulk_create(
        IndexedEndUser(tenant_id=tenant.id, user_id=uuid4(), digest=b"y" * 16) for _ in range(7)
    )
    wrong = entries(tenant)
    assert (differences(tenant, size=size, dry_run=True), entries(tenant)) == ((2, 1, 7), wrong)
    assert (differences(tenant, size=size), entries(tenant)) == ((2, 1, 7), right)
    assert differences(tenant, size=size) == (0, 0, 0)


def test_command_reports_and_corrects(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    tenant.register()
    right = entries(tenant)
    IndexedEndUser.objects.filter(tenant_id=tenant.id).delete()
    said = run_command("index_end_users", tenant=[tenant.slug], dry_run=True)
    assert f"{tenant.slug}: 1 missing, 0 outdated, 0 surplus" in said
    assert "1 compared, 0 failed. Entries that differ: 1." in said
    assert entries(tenant) == {}
    assert "Entries corrected: 1." in run_command("index_end_users", tenant=[tenant.slug])
    assert entries(tenant) == right


def test_command_rejects_unknown_slug() -> None:
    with pytest.raises(Exception, match="No tenant with a readable database"):
        run_command("index_end_users", tenant=["no-such-tenant"])


def test_deleted_tenant_leaves_the_index(new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    tenant.register()
    run_command("delete_tenant", tenant.slug, yes=True, no_final_backup=True)
    assert (entries(tenant), TenantDatabase.objects.get(pk=tenant.id).status) == ({}, State.DELETED)
    # Written by a transaction that has ended after the deletion.
    IndexedEndUser.objects.create(tenant_id=tenant.id, user_id=uuid4(), digest=b"z" * 16)
    assert index_end_users(until=lambda: True) == []
    assert entries(tenant) == {}
