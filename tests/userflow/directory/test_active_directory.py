"""Synchronising from a real slapd that looks like an Active Directory, over TLS."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from tenants.entering.context import in_tenant
from tests.userflow.directory import slapd as ad
from tests.userflow.directory.conftest import Directory, counts
from tests.world import Api, TestTenant, capture_statements
from userflow.directory import runs
from userflow.directory.models import BY_COMMAND, DirectoryConfig, DirectoryRun
from userflow.events.models import WebhookEndpoint, WebhookMessage

pytestmark = pytest.mark.needs("slapd", "python-ldap")


@pytest.fixture(scope="module")
def server() -> Iterator[ad.Slapd]:
    running = ad.Slapd([])
    yield running
    running.end()


@pytest.fixture
def directory(server: ad.Slapd, tenant: TestTenant, configured: Callable[..., Directory]) -> Iterator[Any]:
    """An empty directory; its users have a domain of this test."""
    made = configured(tenant, **ad.settings_of(server))
    yield made
    server.clear()
    tenant.api.delete(made.path)


def some_people(server: ad.Slapd, directory: Directory, number: int = 3) -> list[ad.TestUser]:
    return [server.add(ad.TestUser(n, directory.mail(f"person{n}"))) for n in range(number)]


def test_second_sync_writes_nothing(directory: Directory, server: ad.Slapd) -> None:
    some_people(server, directory, 7)
    first = directory.sync()
    assert (first["state"], counts(first)) == ("succeeded", (7, 7, 0, 0, 0, 0)), first
    with capture_statements() as seen:
        assert counts(directory.sync()) == (7, 0, 0, 0, 0, 0)
    assert not [sql for sql in seen.tenant if sql.startswith(("INSERT", "UPDATE", "DELETE"))]
    user = directory.user(directory.mail("person3"))
    assert (user["provider"], user["active"], user["name"]) == ("active_directory", True, "Person 3")
    assert user["client_id"] == str(directory.tenant.client_id)


def test_dry_run_previews_and_changes_nothing(directory: Directory, server: ad.Slapd) -> None:
    some_people(server, directory)
    would = directory.sync(dry_run=True)
    assert (counts(would), would["dry_run"], directory.users(email=directory.mark)) == ((3, 3, 0, 0, 0, 0), True, [])
    assert {(shown["action"], shown["email"]) for shown in would["preview_users"]} == {
        ("create", directory.mail(f"person{n}")) for n in range(3)
    }


@pytest.mark.parametrize("off", [ad.DISABLED, ad.NEVER_EXPIRES_DISABLED])
@pytest.mark.parametrize("on", [ad.ENABLED, ad.NEVER_EXPIRES])
def test_user_account_control_deactivates_and_activates(
    directory: Directory, server: ad.Slapd, on: int, off: int
) -> None:
    person, *_ = some_people(server, directory)
    directory.sync()
    server.change(person, userAccountControl=str(off))
    assert counts(directory.sync()) == (3, 0, 0, 0, 1, 0)
    assert directory.user(person.mail)["active"] is False
    assert counts(directory.sync()) == (3, 0, 0, 0, 0, 0)
    server.change(person, userAccountControl=str(on))
    assert counts(directory.sync()) == (3, 0, 0, 1, 0, 0)
    assert directory.user(person.mail)["active"] is True


def test_disabled_object_is_not_created(directory: Directory, server: ad.Slapd) -> None:
    server.add(ad.TestUser(1, directory.mail("off"), status=ad.DISABLED))
    done = directory.sync()
    assert (counts(done), done["errors"], directory.users(email=directory.mark)) == ((1, 0, 0, 0, 0, 1), [], [])


def test_removed_object_is_deactivated_and_returns(directory: Directory, server: ad.Slapd) -> None:
    gone, *_ = some_people(server, directory)
    directory.sync()
    server.remove(gone)
    assert counts(directory.sync()) == (2, 0, 0, 0, 1, 0)
    assert directory.user(gone.mail)["active"] is False
    assert directory.sync()["preview_users"] == []
    server.add(gone)
    assert counts(directory.sync()) == (3, 0, 0, 1, 0, 0)


def test_renamed_object_stays_the_same_user(directory: Directory, server: ad.Slapd) -> None:
    person, *_ = some_people(server, directory)
    directory.sync()
    before = directory.user(person.mail)
    server.change(person, mail=directory.mail("married"), displayName="Ann Married")
    assert counts(directory.sync()) == (3, 0, 1, 0, 0, 0)
    after = directory.user(directory.mail("married"))
    assert (after["id"], after["name"]) == (before["id"], "Ann Married")
    assert directory.users(email=person.mail) == []


def test_swapped_addresses_are_synced_in_one_run(directory: Directory, server: ad.Slapd) -> None:
    first, second, third = some_people(server, directory)
    directory.sync()
    server.change(second, mail=directory.mail("free"))
    server.change(first, mail=second.mail)
    server.change(third, mail=first.mail)
    done = directory.sync()
    assert (counts(done), done["errors"]) == ((3, 0, 3, 0, 0, 0), [])
    assert directory.user(second.mail)["name"] == "Person 0"


def test_local_user_with_address_is_reported_not_merged(directory: Directory, server: ad.Slapd) -> None:
    local = directory.tenant.register(directory.mail("person1"), name="Local")
    directory.tenant.sign_in(local)
    some_people(server, directory)
    done = directory.sync()
    assert counts(done) == (3, 2, 0, 0, 0, 1)
    assert [problem["code"] for problem in done["errors"]] == ["email_taken"]
    kept = directory.user(local.email)
    assert (kept["id"], kept["provider"], kept["name"]) == (str(local.id), "local", "Local")
    assert directory.tenant.sign_in(local)["user"]["id"] == str(local.id)


def test_sync_replaces_unused_registrations(directory: Directory, server: ad.Slapd) -> None:
    person, *_ = some_people(server, directory)
    directory.sync()
    squatters = [directory.tenant.register(directory.mail(name)) for name in ("renamed", "new")]
    server.change(person, mail=directory.mail("renamed"))
    server.add(ad.TestUser(9, directory.mail("new")))
    done = directory.sync()
    assert (counts(done), done["errors"]) == ((4, 1, 1, 0, 0, 0), [])
    for squatter in squatters:
        assert directory.user(squatter.email)["provider"] == "active_directory"
        assert directory.user(squatter.email)["id"] != str(squatter.id)


def test_rename_to_taken_address_updates_other_fields(directory: Directory, server: ad.Slapd) -> None:
    person, *_ = some_people(server, directory)
    directory.sync()
    directory.tenant.sign_in(directory.tenant.register(directory.mail("local")))
    server.change(person, mail=directory.mail("local"), displayName="New Name")
    assert counts(directory.sync()) == (3, 0, 1, 0, 0, 1)
    assert directory.user(person.mail)["name"] == "New Name"


def test_second_directory_with_same_users_takes_none_over(
    directory: Directory, server: ad.Slapd, configured: Callable[..., Directory]
) -> None:
    some_people(server, directory)
    directory.sync()
    other = configured(directory.tenant, **ad.settings_of(server), name=directory.mail("Branch office"))
    assert counts(other.sync()) == (3, 0, 0, 0, 0, 3)
    assert counts(directory.sync()) == (3, 0, 0, 0, 0, 0)


def test_users_of_deleted_config_are_adopted_by_object_id(
    directory: Directory, server: ad.Slapd, configured: Callable[..., Directory]
) -> None:
    person, *_ = some_people(server, directory)
    directory.sync()
    assert directory.tenant.api.delete(directory.path).status_code == 200
    again = configured(directory.tenant, **ad.settings_of(server), name=directory.mail("Head office again"))
    assert counts(again.sync()) == (3, 0, 0, 0, 0, 0)
    server.remove(person)
    assert counts(again.sync()) == (2, 0, 0, 0, 1, 0)


@pytest.mark.parametrize("first_by_directory", [True, False])
def test_user_deactivated_by_admin_stays_inactive(
    directory: Directory, server: ad.Slapd, first_by_directory: bool
) -> None:
    person, *_ = some_people(server, directory)
    directory.sync()
    if first_by_directory:
        server.change(person, userAccountControl="514")
        directory.sync()
    user = directory.user(person.mail)
    status = f"/uflow/user/enduser/{directory.tenant.id}/{user['id']}/status"
    assert directory.tenant.api.put(status, {"active": False}).status_code == 200
    server.change(person, userAccountControl="512")
    assert counts(directory.sync()) == (3, 0, 0, 0, 0, 0)
    assert directory.user(person.mail)["active"] is False


def test_user_toggled_by_admin_stays_inactive(directory: Directory, server: ad.Slapd) -> None:
    person, *_ = some_people(server, directory)
    directory.sync()
    server.change(person, userAccountControl="514")
    directory.sync()
    status = f"/uflow/user/enduser/{directory.tenant.id}/{directory.user(person.mail)['id']}/status"
    for active in (True, False):
        assert directory.tenant.api.put(status, {"active": active}).status_code == 200
    server.change(person, userAccountControl="512")
    assert counts(directory.sync()) == (3, 0, 0, 0, 0, 0)
    assert directory.user(person.mail)["active"] is False


def test_deactivation_ends_sessions_and_tickets(directory: Directory, server: ad.Slapd) -> None:
    person, *_ = some_people(server, directory)
    directory.sync()
    api = directory.tenant.as_user(directory.person(person.mail))
    assert api.get("/authmgr/validate").status_code == 200
    server.change(person, userAccountControl="514")
    directory.sync()
    assert api.get("/authmgr/validate").status_code == 401


def test_mapped_attributes_keep_unmapped_metadata(directory: Directory, server: ad.Slapd) -> None:
    person = server.add(ad.TestUser(1, directory.mail("ann"), attributes={"department": "Sales"}))
    mapping = {"name": "sAMAccountName", "metadata": {"dept": "department"}}
    assert directory.change(mapping=mapping).json()["mapping"] == {"email": "mail", **mapping, "app_metadata": {}}
    directory.sync()
    user = directory.user(person.mail)
    assert (user["name"], user["metadata"]) == ("person1", {"dept": "Sales"})
    own = f"/uflow/user/enduser/{directory.tenant.id}/{user['id']}"
    directory.tenant.api.put(own, {"metadata": {"dept": "Sales", "theme": "dark"}})
    server.change(person, department=None)
    directory.sync()
    assert directory.user(person.mail)["metadata"] == {"theme": "dark"}


def test_directory_groups_set_memberships(directory: Directory, server: ad.Slapd) -> None:
    api, name = directory.tenant.api, directory.mail("Sales")
    group = api.post("/authmgr/groups", {"name": name}).json()
    assert directory.change(groups={f"CN=Sales, {ad.BASE}": name.upper()}).status_code == 200
    sales = {"memberOf": [f"cn=sales,{ad.BASE.lower()}"]}
    member = server.add(ad.TestUser(1, directory.mail("member"), attributes=sales))
    server.add(ad.TestUser(2, directory.mail("other")))
    local = directory.tenant.register()
    api.post(f"/authmgr/groups/{group['id']}/users", {"user_ids": [str(local.id)]})
    directory.sync()
    members = f"/authmgr/groups/{group['id']}/users"
    assert {user["email"] for user in api.get(members).json()["users"]} == {member.mail, local.email}
    with capture_statements() as seen:
        directory.sync()
    assert not [sql for sql in seen.tenant if sql.startswith(("UPDATE", "INSERT INTO audit"))]
    server.change(member, memberOf=None)
    directory.sync()
    assert {user["email"] for user in api.get(members).json()["users"]} == {local.email}


def test_invalid_objects_are_reported_others_synced(directory: Directory, server: ad.Slapd) -> None:
    server.add(ad.TestUser(1))
    server.add(ad.TestUser(2, "no address at all"))
    server.add(ad.TestUser(3, directory.mail("same")))
    server.add(ad.TestUser(4, directory.mail("SAME")))
    done = directory.sync()
    assert counts(done) == (4, 1, 0, 0, 0, 3)
    assert sorted(problem["code"] for problem in done["errors"]) == ["email_invalid", "email_taken", "no_email"]
    assert counts(directory.sync()) == (4, 0, 0, 0, 0, 3)


def test_hidden_status_changes_no_user_state(directory: Directory, server: ad.Slapd) -> None:
    off, on, _ = some_people(server, directory)
    directory.sync()
    server.change(off, userAccountControl="514")
    directory.sync()
    for person in (off, on):
        server.change(person, userAccountControl=None)
    done = directory.sync()
    assert counts(done) == (3, 0, 0, 0, 0, 2)
    assert {problem["code"] for problem in done["errors"]} == {"status_unreadable"}
    server.add(ad.TestUser(9, directory.mail("hidden"), guid=None))
    assert directory.tenant.api.post(f"{directory.path}/sync", {}).status_code == 502
    assert [directory.user(person.mail)["active"] for person in (off, on)] == [False, True]


def test_too_many_leavers_stop_sync_unless_forced(directory: Directory, server: ad.Slapd) -> None:
    people = some_people(server, directory, 12)
    directory.sync()
    for person in people[:6]:
        server.remove(person)
    server.add(ad.TestUser(100, directory.mail("new")))
    stopped = directory.sync()
    assert (stopped["state"], counts(stopped)) == ("refused", (7, 1, 0, 0, 0, 0))
    assert "6 of 12" in stopped["reason"]
    assert directory.user(people[0].mail)["active"] is True
    assert counts(directory.sync(force=True)) == (7, 0, 0, 0, 6, 0)


def test_empty_result_deactivates_no_user(directory: Directory, server: ad.Slapd) -> None:
    some_people(server, directory)
    directory.sync()
    directory.change(user_filter="(objectClass=computer)")
    assert directory.sync()["state"] == "refused"
    assert {user["active"] for user in directory.users(email=directory.mark)} == {True}


def test_erased_user_is_created_again_by_sync(directory: Directory, server: ad.Slapd) -> None:
    person, *_ = some_people(server, directory)
    directory.sync()
    before = directory.user(person.mail)["id"]
    body = {"tenant_id": str(directory.tenant.id), "user_id": before}
    erased = directory.tenant.api.post("/uflow/user/enduser/delete_all", body).json()
    assert erased["deleted"]["directory_links"] == 1
    assert counts(directory.sync()) == (3, 1, 0, 0, 0, 0)
    assert directory.user(person.mail)["id"] != before


def test_sync_audits_changes_without_names(directory: Directory, server: ad.Slapd) -> None:
    person, *_ = some_people(server, directory)
    directory.sync()
    server.change(person, userAccountControl="514", displayName="Renamed")
    directory.sync()
    user_id = directory.user(person.mail)["id"]
    events = directory.tenant.api.get("/uflow/admin/audit", {"target": user_id}).json()["events"]
    assert {event["action"] for event in events} == {"end_user.registered", "end_user.updated", "end_user.deactivated"}
    assert {event["details"]["directory_id"] for event in events} == {directory.made["id"]}
    assert person.mail not in str(events)


def test_sync_rejects_a_parallel_run(directory: Directory, server: ad.Slapd) -> None:
    some_people(server, directory, 20)

    def attempt(_: int) -> int:
        try:
            return int(Api(token=directory.tenant.api.token).post(f"{directory.path}/sync", {}).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        codes = list(pool.map(attempt, range(6)))
    assert set(codes) <= {200, 409}
    assert codes.count(200) >= 1
    assert len(directory.users(email=directory.mark)) == 20


def test_stale_run_is_taken_over(directory: Directory, server: ad.Slapd) -> None:
    some_people(server, directory)
    config = DirectoryConfig.objects.get(pk=directory.made["id"])
    left = runs.claim(config, trigger=BY_COMMAND, dry_run=False)
    refused = directory.tenant.api.post(f"{directory.path}/sync", {})
    assert (refused.status_code, "synchronization of this directory is running" in refused.json()["message"]) == (
        409,
        True,
    )
    assert directory.change(base_dn="DC=other", secret="s").status_code == 409
    assert directory.tenant.api.delete(directory.path).status_code == 409
    directory.forget_running()
    assert counts(directory.sync()) == (3, 3, 0, 0, 0, 0)
    assert DirectoryRun.objects.get(pk=left.pk).state == "interrupted"


def test_run_history_holds_no_names(directory: Directory, server: ad.Slapd) -> None:
    person, *_ = some_people(server, directory)
    directory.sync(dry_run=True)
    done = directory.sync()
    listed = directory.tenant.api.get(f"{directory.path}/runs", {"limit": 1}).json()
    assert (listed["total"], listed["total_pages"]) == (2, 2)
    (row,) = listed["runs"]
    assert (row["id"], row["state"], row["trigger"], counts(row)) == (done["id"], "succeeded", "request", counts(done))
    assert person.mail not in str(listed)
    assert directory.tenant.api.get(directory.path).json()["last_run"]["id"] == done["id"]


def test_sync_publishes_webhook_events(directory: Directory, server: ad.Slapd) -> None:
    with in_tenant(directory.tenant.id):
        endpoint = WebhookEndpoint.objects.create(
            url="https://hooks.example.com/", events=["end_user.*", "directory.*"], secret_sealed=b"x"
        )
    some_people(server, directory)
    directory.sync()
    with in_tenant(directory.tenant.id):
        told = WebhookMessage.objects.filter(endpoint_id=endpoint.pk).values_list("event", flat=True)
        assert Counter(told) == {"end_user.created": 3, "directory.sync_finished": 1}
        endpoint.delete()
