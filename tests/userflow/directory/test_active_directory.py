"""Synchronising from a real slapd that looks like an Active Directory, over TLS."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.userflow.directory import slapd as ad
from tests.userflow.directory.conftest import Directory, counts
from tests.world import PASSWORD, House, statements

pytestmark = pytest.mark.needs("slapd", "python-ldap")


@pytest.fixture(scope="module")
def server() -> Iterator[ad.Slapd]:
    running = ad.Slapd([])
    yield running
    running.end()


@pytest.fixture
def directory(server: ad.Slapd, new_house: Callable[[], House], configured: Callable[..., Directory]) -> Iterator[Any]:
    """A directory that is empty at the beginning, in a tenant of the test's own."""
    yield configured(new_house(), **ad.settings_of(server))
    server.clear()


def some_people(server: ad.Slapd, number: int = 3) -> list[ad.Somebody]:
    return [server.add(ad.Somebody(n, f"person{n}@corp.example")) for n in range(number)]


def test_people_come_and_a_second_run_writes_nothing(directory: Directory, server: ad.Slapd) -> None:
    some_people(server, 7)
    first = directory.sync()
    assert (first["state"], counts(first)) == ("succeeded", (7, 7, 0, 0, 0, 0)), first
    with statements() as seen:
        assert counts(directory.sync()) == (7, 0, 0, 0, 0, 0)
    assert not [sql for sql in seen.own if sql.startswith(("INSERT", "UPDATE", "DELETE"))]
    user = directory.user("person3@corp.example")
    assert (user["provider"], user["active"], user["name"]) == ("active_directory", True, "Person 3")
    assert user["client_id"] == str(directory.house.client_id)


def test_a_dry_run_says_what_would_be_done_and_does_nothing(directory: Directory, server: ad.Slapd) -> None:
    some_people(server)
    would = directory.sync(dry_run=True)
    assert (counts(would), would["dry_run"], directory.users()) == ((3, 3, 0, 0, 0, 0), True, [])
    assert {(shown["action"], shown["email"]) for shown in would["preview_users"]} == {
        ("create", f"person{n}@corp.example") for n in range(3)
    }


@pytest.mark.parametrize("off", [ad.DISABLED, ad.NEVER_EXPIRES_DISABLED])
@pytest.mark.parametrize("on", [ad.ENABLED, ad.NEVER_EXPIRES])
def test_bit_two_of_user_account_control_switches_off_and_on_again(
    directory: Directory, server: ad.Slapd, on: int, off: int
) -> None:
    person, *_ = some_people(server)
    directory.sync()
    server.change(person, userAccountControl=str(off))
    assert counts(directory.sync()) == (3, 0, 0, 0, 1, 0)
    assert directory.user(person.mail)["active"] is False
    assert counts(directory.sync()) == (3, 0, 0, 0, 0, 0)
    server.change(person, userAccountControl=str(on))
    assert counts(directory.sync()) == (3, 0, 0, 1, 0, 0)
    assert directory.user(person.mail)["active"] is True


def test_who_is_disabled_is_not_made(directory: Directory, server: ad.Slapd) -> None:
    server.add(ad.Somebody(1, "off@corp.example", status=ad.DISABLED))
    done = directory.sync()
    assert (counts(done), done["errors"], directory.users()) == ((1, 0, 0, 0, 0, 1), [], [])


def test_who_is_removed_is_switched_off_and_comes_back(directory: Directory, server: ad.Slapd) -> None:
    gone, *_ = some_people(server)
    directory.sync()
    server.remove(gone)
    assert counts(directory.sync()) == (2, 0, 0, 0, 1, 0)
    assert directory.user(gone.mail)["active"] is False
    server.add(gone)
    assert counts(directory.sync()) == (3, 0, 0, 1, 0, 0)


def test_the_same_object_under_another_name_and_address_is_the_same_user(
    directory: Directory, server: ad.Slapd
) -> None:
    person, *_ = some_people(server)
    directory.sync()
    before = directory.user(person.mail)
    server.change(person, mail="married@corp.example", displayName="Ann Married")
    assert counts(directory.sync()) == (3, 0, 1, 0, 0, 0)
    after = directory.user("married@corp.example")
    assert (after["id"], after["name"]) == (before["id"], "Ann Married")
    assert directory.users(email=person.mail) == []


def test_addresses_that_are_handed_on_arrive_in_one_run(directory: Directory, server: ad.Slapd) -> None:
    first, second, third = some_people(server)
    directory.sync()
    server.change(second, mail="free@corp.example")
    server.change(first, mail=second.mail)
    server.change(third, mail=first.mail)
    done = directory.sync()
    assert (counts(done), done["errors"]) == ((3, 0, 3, 0, 0, 0), [])
    assert directory.user(second.mail)["name"] == "Person 0"


def test_a_local_user_with_the_address_is_reported_and_never_merged(directory: Directory, server: ad.Slapd) -> None:
    local = directory.house.register("person1@corp.example", name="Local")
    some_people(server)
    done = directory.sync()
    assert counts(done) == (3, 2, 0, 0, 0, 1)
    assert [problem["code"] for problem in done["errors"]] == ["email_taken"]
    kept = directory.user(local.email)
    assert (kept["id"], kept["provider"], kept["name"]) == (str(local.id), "local", "Local")
    assert directory.house.sign_in(local)["user"]["id"] == str(local.id)


def test_a_rename_onto_a_local_users_address_changes_the_rest_only(directory: Directory, server: ad.Slapd) -> None:
    person, *_ = some_people(server)
    directory.sync()
    directory.house.register("local@corp.example")
    server.change(person, mail="local@corp.example", displayName="New Name")
    assert counts(directory.sync()) == (3, 0, 1, 0, 0, 1)
    assert directory.user(person.mail)["name"] == "New Name"


def test_another_directory_with_the_same_people_takes_nobody_over(
    directory: Directory, server: ad.Slapd, configured: Callable[..., Directory]
) -> None:
    some_people(server)
    directory.sync()
    other = configured(directory.house, **ad.settings_of(server), name="Branch office")
    assert counts(other.sync()) == (3, 0, 0, 0, 0, 3)
    assert counts(directory.sync()) == (3, 0, 0, 0, 0, 0)


def test_people_of_a_removed_configuration_are_known_again_by_their_objects(
    directory: Directory, server: ad.Slapd, configured: Callable[..., Directory]
) -> None:
    person, *_ = some_people(server)
    directory.sync()
    assert directory.house.api.delete(directory.path).status_code == 200
    again = configured(directory.house, **ad.settings_of(server), name="Head office again")
    assert counts(again.sync()) == (3, 0, 0, 0, 0, 0)
    server.remove(person)
    assert counts(again.sync()) == (2, 0, 0, 0, 1, 0)


@pytest.mark.parametrize("first_by_directory", [True, False])
def test_who_is_switched_off_here_stays_off(directory: Directory, server: ad.Slapd, first_by_directory: bool) -> None:
    person, *_ = some_people(server)
    directory.sync()
    if first_by_directory:
        server.change(person, userAccountControl="514")
        directory.sync()
    user = directory.user(person.mail)
    status = f"/uflow/user/enduser/{directory.house.id}/{user['id']}/status"
    assert directory.house.api.put(status, {"active": False}).status_code == 200
    server.change(person, userAccountControl="512")
    assert counts(directory.sync()) == (3, 0, 0, 0, 0, 0)
    assert directory.user(person.mail)["active"] is False


def test_switching_off_ends_what_is_open(directory: Directory, server: ad.Slapd) -> None:
    person, *_ = some_people(server)
    directory.sync()
    from tenants.context import in_tenant
    from userflow.endusers.models import EndUser
    from userflow.signin.passwords import hashed

    with in_tenant(directory.house.id):
        EndUser.objects.filter(email=person.mail).update(password=hashed(PASSWORD))
    door = directory.house.as_user(ad.as_person(directory.user(person.mail)))
    assert door.get("/authmgr/validate").status_code == 200
    server.change(person, userAccountControl="514")
    directory.sync()
    assert door.get("/authmgr/validate").status_code == 401
