"""Synchronising from Entra ID over Graph: the same rules, read by pages and changes."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils.timezone import now

from tests.userflow.directory.conftest import Directory, counts
from tests.userflow.directory.entra import Entra
from tests.userflow.user_index.reading import indexed
from tests.world import TestTenant, capture_statements
from userflow.directory.models import DirectoryConfig


@pytest.fixture
def directory(entra: Entra, tenant: TestTenant, configured: Callable[..., Directory]) -> Iterator[Directory]:
    made = configured(tenant, **entra.members())
    yield made
    tenant.api.delete(made.path)


def some_people(entra: Entra, directory: Directory, number: int = 3) -> list[str]:
    return [entra.add(directory.mail(f"person{n}")) for n in range(number)]


def test_second_entra_sync_reads_changes_only(directory: Directory, entra: Entra) -> None:
    some_people(entra, directory, 250)
    first = directory.sync()
    assert (counts(first), first["full"], len(entra.asked)) == ((250, 250, 0, 0, 0, 0), True, 3)
    assert "accountEnabled,displayName,mail" in entra.asked[0]
    second = directory.sync()
    assert (counts(second), second["full"], len(entra.asked)) == ((0, 0, 0, 0, 0, 0), False, 4)
    assert directory.user(directory.mail("person7"))["provider"] == "entra_id"


def test_entra_delta_updates_users(directory: Directory, entra: Entra) -> None:
    renamed, disabled, removed = some_people(entra, directory)
    directory.sync()
    entra.change(renamed, mail=directory.mail("married"), displayName="Ann")
    entra.change(disabled, accountEnabled=False)
    entra.remove(removed)
    entra.add(directory.mail("new"))
    done = directory.sync()
    assert (counts(done), done["full"]) == ((4, 1, 1, 0, 2, 0), False)
    married = directory.user(directory.mail("married"))
    assert married["name"] == "Ann"
    assert [str(user_id) for user_id in indexed(directory.tenant, married["email"])] == [married["id"]]
    assert len(indexed(directory.tenant, directory.mail("new"))) == 1
    assert directory.user(directory.mail("person1"))["active"] is False
    assert directory.user(directory.mail("person2"))["active"] is False
    entra.change(disabled, accountEnabled=True)
    assert counts(directory.sync()) == (1, 0, 0, 1, 0, 0)


def test_expired_delta_link_triggers_full_read(directory: Directory, entra: Entra) -> None:
    some_people(entra, directory)
    directory.sync()
    entra.forgets_links = True
    entra.add(directory.mail("new"))
    entra.changes.clear()
    done = directory.sync()
    assert (counts(done), done["full"]) == ((4, 1, 0, 0, 0, 0), True)
    entra.forgets_links = False
    assert directory.sync()["full"] is False


def test_full_read_after_a_day_or_on_request(directory: Directory, entra: Entra) -> None:
    some_people(entra, directory)
    directory.sync()
    assert directory.sync(full=True)["full"] is True
    assert directory.sync()["full"] is False
    DirectoryConfig.objects.filter(pk=directory.made["id"]).update(read_in_full_at=now() - timedelta(hours=25))
    assert directory.sync()["full"] is True
    directory.change(mapping={"email": "mail", "name": "givenName"})
    assert directory.sync()["full"] is True


def test_entra_sync_waits_for_retry_after(directory: Directory, entra: Entra) -> None:
    some_people(entra, directory)
    entra.refusals = [(429, 1), (503, 1)]
    assert counts(directory.sync()) == (3, 3, 0, 0, 0, 0)
    assert len(entra.asked) == 3


def test_entra_sync_gives_up_after_long_throttling(directory: Directory, entra: Entra) -> None:
    some_people(entra, directory)
    entra.refusals = [(429, 3600)]
    response = directory.tenant.api.post(f"{directory.path}/sync", {})
    assert (response.status_code, "throttles" in response.json()["message"]) == (502, True)
    (run,) = directory.tenant.api.get(f"{directory.path}/runs").json()["runs"]
    assert (run["state"], run["reason"]) == ("failed", response.json()["message"])
    assert DirectoryConfig.objects.get(pk=directory.made["id"]).failing_since is not None
    assert counts(directory.sync()) == (3, 3, 0, 0, 0, 0)
    assert DirectoryConfig.objects.get(pk=directory.made["id"]).failing_since is None


def test_expired_entra_token_is_renewed(directory: Directory, entra: Entra) -> None:
    some_people(entra, directory, 450)
    entra.token_lasts = 2
    assert counts(directory.sync()) == (450, 450, 0, 0, 0, 0)
    assert entra.tokens_given == 3


def test_rejected_entra_token_fails_the_run(directory: Directory, entra: Entra) -> None:
    entra.token_lasts = 0
    response = directory.tenant.api.post(f"{directory.path}/sync", {})
    assert (response.status_code, entra.tokens_given) == (502, 1)


def test_link_to_other_host_is_not_followed(directory: Directory, entra: Entra) -> None:
    some_people(entra, directory, 150)
    other = Entra()
    entra.next_link_host = other.base
    response = directory.tenant.api.post(f"{directory.path}/sync", {})
    assert (response.status_code, other.asked) == (502, [])
    assert "another host" in response.json()["message"]
    other.end()


def test_interrupted_read_deactivates_no_user(directory: Directory, entra: Entra) -> None:
    some_people(entra, directory, 150)
    directory.sync()
    entra.token_lasts = 0
    entra.refusals = []
    entra.users.clear()
    assert directory.tenant.api.post(f"{directory.path}/sync", {"full": True}).status_code == 502
    assert {user["active"] for user in directory.users(email=directory.mark)} == {True}


def test_taken_address_is_retried_without_delta(directory: Directory, entra: Entra) -> None:
    local = directory.tenant.register(directory.mail("person1"))
    directory.tenant.sign_in(local)
    some_people(entra, directory)
    assert counts(directory.sync()) == (3, 2, 0, 0, 0, 1)
    path = f"/uflow/user/enduser/{directory.tenant.id}/{local.id}"
    assert directory.tenant.api.put(path, {"email": directory.mail("moved")}).status_code == 200
    assert counts(directory.sync()) == (3, 1, 0, 0, 0, 0)
    assert directory.sync()["full"] is False


def test_nested_group_changes_are_synced(directory: Directory, entra: Entra) -> None:
    api, name = directory.tenant.api, directory.mail("Sales")
    group = api.post("/authmgr/groups", {"name": name}).json()
    first, second, _ = some_people(entra, directory)
    entra.groups["g1"] = {first, "an-object-that-is-no-user"}
    directory.change(groups={"g1": name})
    members = f"/authmgr/groups/{group['id']}/users"
    directory.sync()
    assert [user["email"] for user in api.get(members).json()["users"]] == [directory.mail("person0")]
    entra.groups["g1"] = {second}
    assert directory.sync()["full"] is False
    assert [user["email"] for user in api.get(members).json()["users"]] == [directory.mail("person1")]


@pytest.fixture
def sales(directory: Directory, entra: Entra) -> str:
    """The path of the members of a group; one of three users is in it, in the directory and in the tenant."""
    group = directory.tenant.api.post("/authmgr/groups", {"name": directory.mail("Sales")}).json()
    first, *_ = some_people(entra, directory)
    entra.groups["g1"], entra.groups["g2"] = {first}, set()
    directory.change(groups={"g1": group["name"], "g2": group["name"]})
    directory.sync()
    return f"/authmgr/groups/{group['id']}/users"


def members_at(directory: Directory, path: str) -> list[str]:
    return [user["email"] for user in directory.tenant.api.get(path).json()["users"]]


@pytest.mark.quiet_machine
@pytest.mark.parametrize("named", [0, 1], ids=["empty", "of one"])
def test_endless_member_pages_end_at_deadline(
    directory: Directory, entra: Entra, sales: str, settings: Any, named: int
) -> None:
    settings.DIRECTORY_REQUEST_SECONDS = 0.5
    entra.groups["g1"], entra.endless = set(), {"g2": named}
    began = time.monotonic()
    cut = directory.sync(full=True)
    assert (cut["state"], time.monotonic() - began < 20) == ("incomplete", True)
    assert members_at(directory, sales) == [directory.mail("person0")]


def test_too_many_members_change_no_membership(directory: Directory, entra: Entra, sales: str) -> None:
    entra.groups["g1"], entra.endless = set(), {"g2": 250_000}
    response = directory.tenant.api.post(f"{directory.path}/sync", {})
    assert (response.status_code, "1000000 members" in response.json()["message"]) == (502, True)
    assert members_at(directory, sales) == [directory.mail("person0")]


def test_member_without_usable_id_fails_the_run(directory: Directory, entra: Entra, sales: str) -> None:
    entra.groups["g1"] = {"x" * 65}
    response = directory.tenant.api.post(f"{directory.path}/sync", {})
    assert (response.status_code, "without an id" in response.json()["message"]) == (502, True)
    assert members_at(directory, sales) == [directory.mail("person0")]


def test_hidden_account_enabled_creates_no_user(directory: Directory, entra: Entra) -> None:
    entra.add(directory.mail("unknown"), accountEnabled=None)
    done = directory.sync()
    assert (counts(done), done["errors"][0]["code"]) == ((1, 0, 0, 0, 0, 1), "status_unreadable")


def test_directory_test_returns_sample_without_changes(directory: Directory, entra: Entra) -> None:
    some_people(entra, directory, 9)
    tried = directory.test()
    assert (tried["success"], len(tried["sample_users"])) == (True, 5)
    assert tried["sample_users"][0]["email"] == directory.mail("person0")
    assert directory.users(email=directory.mark) == []


def test_directory_test_reports_wrong_secret(directory: Directory, entra: Entra) -> None:
    directory.change(secret="not this one")
    tried = directory.test()
    assert (tried["success"], "issues no token" in tried["message"]) == (False, True)
    assert "not this one" not in str(tried)


def test_loopback_directory_is_rejected(directory: Directory, entra: Entra, settings: Any) -> None:
    settings.DIRECTORY_ALLOWED_NETWORKS = []
    response = directory.tenant.api.post(f"{directory.path}/sync", {})
    assert (response.status_code, list(response.json()["details"])) == (400, ["cloud"])
    assert directory.test()["success"] is False
    assert (entra.asked, entra.tokens_given) == ([], 0)


def test_two_tenants_sync_one_directory_separately(
    directory: Directory, entra: Entra, other_tenant: TestTenant, configured: Callable[..., Directory]
) -> None:
    identity, *_ = some_people(entra, directory)
    theirs = configured(other_tenant, **entra.members())
    assert counts(directory.sync()) == counts(theirs.sync()) == (3, 3, 0, 0, 0, 0)
    entra.remove(identity)
    assert counts(directory.sync()) == (1, 0, 0, 0, 1, 0)
    assert theirs.user(directory.mail("person0"))["active"] is True
    other_tenant.api.delete(theirs.path)


def test_unchanged_sync_query_count_is_bounded(directory: Directory, entra: Entra) -> None:
    some_people(entra, directory)
    directory.sync()
    with capture_statements() as seen:
        directory.sync()
    # In the global database the run is claimed, kept alive and ended, and the directories are listed. In the tenant's database
    # the grants of linked users, the number of active ones and the webhook endpoints are read.
    assert seen.counts == (13, 3), (seen.default, seen.tenant)
