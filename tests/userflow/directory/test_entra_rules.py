"""The rules of a synchronization, tested with Entra ID: machines without slapd skip the LDAP tests."""

from collections.abc import Callable, Iterator

import pytest

from tenants.entering.context import in_tenant
from tests.userflow.directory.conftest import Directory, counts
from tests.userflow.directory.entra import Entra
from tests.world import Api, TestTenant, capture_statements
from userflow.directory.models import DirectoryConfig
from userflow.events.models import WebhookEndpoint, WebhookMessage


@pytest.fixture
def directory(entra: Entra, tenant: TestTenant, configured: Callable[..., Directory]) -> Iterator[Directory]:
    made = configured(tenant, **entra.members())
    yield made
    tenant.api.delete(made.path)


def add_people(entra: Entra, directory: Directory, number: int = 3) -> list[str]:
    """The object ids of person0, person1, ..."""
    return [entra.add(directory.mail(f"person{n}")) for n in range(number)]


def signed_in(directory: Directory, name: str) -> str:
    """An access token of the person."""
    person = directory.person(directory.mail(name))
    body = {"client_id": str(directory.tenant.client_id), "email": person.email, "password": person.password}
    return str(Api().post("/uflow/auth/enduser/login", body).json()["access_token"])


def set_active(directory: Directory, email: str, *states: bool) -> None:
    path = f"/uflow/user/enduser/{directory.tenant.id}/{directory.user(email)['id']}/status"
    for active in states:
        assert directory.tenant.api.put(path, {"active": active}).status_code == 200


def test_second_full_run_writes_nothing(directory: Directory, entra: Entra) -> None:
    add_people(entra, directory)
    directory.sync()
    with capture_statements() as seen:
        done = directory.sync(full=True)
    assert (counts(done), done["full"]) == ((3, 0, 0, 0, 0, 0), True)
    assert not [sql for sql in seen.tenant if sql.startswith(("INSERT", "UPDATE", "DELETE"))]


def test_dry_run_changes_nothing(directory: Directory, entra: Entra) -> None:
    add_people(entra, directory)
    would = directory.sync(dry_run=True)
    assert (counts(would), directory.users(email=directory.mark)) == ((3, 3, 0, 0, 0, 0), [])
    assert {(shown["action"], shown["email"]) for shown in would["preview_users"]} == {
        ("create", directory.mail(f"person{n}")) for n in range(3)
    }
    # The delta link is unchanged too.
    assert counts(directory.sync()) == (3, 3, 0, 0, 0, 0)


def test_disabled_object_creates_no_user(directory: Directory, entra: Entra) -> None:
    entra.add(directory.mail("off"), accountEnabled=False)
    done = directory.sync()
    assert (counts(done), done["errors"], directory.users(email=directory.mark)) == ((1, 0, 0, 0, 0, 1), [], [])


@pytest.mark.parametrize("full", [True, False])
def test_removed_user_is_deactivated_and_returns(directory: Directory, entra: Entra, full: bool) -> None:
    gone, *_ = add_people(entra, directory)
    kept = entra.users[gone]
    directory.sync()
    entra.remove(gone)
    assert counts(directory.sync(full=full))[1:] == (0, 0, 0, 1, 0)
    assert directory.user(directory.mail("person0"))["active"] is False
    entra.users[gone] = kept
    entra.changes.append(gone)
    assert counts(directory.sync(full=full))[1:] == (0, 0, 1, 0, 0)


@pytest.mark.parametrize("first_by_directory", [True, False])
def test_user_deactivated_here_stays_inactive(directory: Directory, entra: Entra, first_by_directory: bool) -> None:
    person, email = add_people(entra, directory)[0], directory.mail("person0")
    directory.sync()
    if first_by_directory:
        entra.change(person, accountEnabled=False)
        directory.sync()
    set_active(directory, email, False)
    entra.change(person, accountEnabled=True)
    for full in (False, True):
        assert counts(directory.sync(full=full))[1:] == (0, 0, 0, 0, 0)
    assert directory.user(email)["active"] is False


def test_user_toggled_here_stays_inactive(directory: Directory, entra: Entra) -> None:
    person, email = add_people(entra, directory)[0], directory.mail("person0")
    directory.sync()
    entra.change(person, accountEnabled=False)
    directory.sync()
    set_active(directory, email, True, False)
    entra.change(person, accountEnabled=True)
    assert counts(directory.sync()) == (1, 0, 0, 0, 0, 0)
    assert directory.user(email)["active"] is False


def test_disabled_user_loses_everything_open(directory: Directory, entra: Entra) -> None:
    identity, *_ = add_people(entra, directory)
    directory.sync()
    person, home = directory.person(directory.mail("person0")), Api()
    body = {"client_id": str(directory.tenant.client_id), "email": person.email, "password": person.password}
    signed_in = home.post("/uflow/auth/enduser/login", body)
    named = {"email": person.email, "tenant_id": str(directory.tenant.id)}

    def tried() -> list[int]:
        """Return whether session, enrollment window and ticket are usable."""
        token, ticket = (
            signed_in.json()["access_token"],
            {"X-Enrollment-Ticket": signed_in.headers["X-Enrollment-Ticket"]},
        )
        begin = "/webauthn/totp/beginSetup"
        responses = [
            Api(token=token).get("/authmgr/validate"),
            home.post(begin, named),
            Api().post(begin, named, headers=ticket),
        ]
        return [response.status_code for response in responses]

    assert tried() == [200, 200, 200]
    for enabled in (False, True):
        entra.change(identity, accountEnabled=enabled)
        directory.sync()
    assert directory.user(person.email)["active"] is True
    assert tried() == [401, 401, 401]


def test_changed_address_ends_sessions(directory: Directory, entra: Entra) -> None:
    moved, kept = add_people(entra, directory)[:2]
    directory.sync()
    tokens = [signed_in(directory, name) for name in ("person0", "person1")]
    entra.change(moved, mail=directory.mail("married"))
    entra.change(kept, displayName="Married")
    assert counts(directory.sync())[2] == 2
    assert [Api(token=token).get("/authmgr/validate").status_code for token in tokens] == [401, 200]


def test_addresses_handed_on_arrive_in_one_run(directory: Directory, entra: Entra) -> None:
    first, second, third = add_people(entra, directory)
    directory.sync()
    entra.change(second, mail=directory.mail("free"))
    entra.change(first, mail=directory.mail("person1"))
    entra.change(third, mail=directory.mail("person0"))
    done = directory.sync()
    assert (counts(done), done["errors"]) == ((3, 0, 3, 0, 0, 0), [])
    assert directory.user(directory.mail("person1"))["name"] == "person0"


def test_local_user_with_the_address_is_not_merged(directory: Directory, entra: Entra) -> None:
    local = directory.tenant.register(directory.mail("person1"), name="Local")
    directory.tenant.sign_in(local)
    add_people(entra, directory)
    done = directory.sync()
    assert (counts(done), [each["code"] for each in done["errors"]]) == ((3, 2, 0, 0, 0, 1), ["email_taken"])
    kept = directory.user(local.email)
    assert (kept["id"], kept["provider"], kept["name"]) == (str(local.id), "local", "Local")
    assert directory.tenant.sign_in(local)["user"]["id"] == str(local.id)


def test_rename_to_a_taken_address_changes_the_rest(directory: Directory, entra: Entra) -> None:
    person, *_ = add_people(entra, directory)
    directory.sync()
    local = directory.tenant.register(directory.mail("local"))
    directory.tenant.sign_in(local)
    entra.change(person, mail=local.email, displayName="New Name")
    assert counts(directory.sync()) == (1, 0, 1, 0, 0, 1)
    assert directory.user(directory.mail("person0"))["name"] == "New Name"
    assert directory.user(local.email)["id"] == str(local.id)


def test_second_directory_takes_no_user_over(
    directory: Directory, entra: Entra, configured: Callable[..., Directory]
) -> None:
    identity, *_ = add_people(entra, directory)
    directory.sync()
    other = configured(directory.tenant, **entra.members())
    assert counts(other.sync()) == (3, 0, 0, 0, 0, 3)
    entra.remove(identity)
    assert counts(other.sync(full=True))[1:] == (0, 0, 0, 0, 2)
    assert directory.user(directory.mail("person0"))["active"] is True
    directory.tenant.api.delete(other.path)


def test_removed_configuration_is_succeeded_by_object(
    directory: Directory, entra: Entra, configured: Callable[..., Directory]
) -> None:
    identity, *_ = add_people(entra, directory)
    directory.sync()
    assert directory.tenant.api.delete(directory.path).status_code == 200
    again = configured(directory.tenant, **entra.members())
    assert counts(again.sync()) == (3, 0, 0, 0, 0, 0)
    entra.remove(identity)
    assert counts(again.sync()) == (1, 0, 0, 0, 1, 0)
    directory.tenant.api.delete(again.path)


def test_mapped_attributes_keep_other_metadata(directory: Directory, entra: Entra) -> None:
    identity = entra.add(directory.mail("ann"), department="Sales")
    assert directory.change(mapping={"metadata": {"dept": "department"}}).status_code == 200
    directory.sync()
    user = directory.user(directory.mail("ann"))
    assert user["metadata"] == {"dept": "Sales"}
    own = f"/uflow/user/enduser/{directory.tenant.id}/{user['id']}"
    directory.tenant.api.put(own, {"metadata": {"dept": "Sales", "theme": "dark"}})
    entra.change(identity, department=None)
    directory.sync()
    assert directory.user(directory.mail("ann"))["metadata"] == {"theme": "dark"}


def test_mapped_app_metadata_is_written_by_the_directory(directory: Directory, entra: Entra) -> None:
    identity = entra.add(directory.mail("ann"), department="Sales")
    assert directory.change(mapping={"app_metadata": {"dept": "department"}}).status_code == 200
    directory.sync()
    user = directory.user(directory.mail("ann"))
    assert (user["app_metadata"], user["metadata"], user["external_id"]) == ({"dept": "Sales"}, {}, None)
    own = f"/uflow/user/enduser/{directory.tenant.id}/{user['id']}"
    directory.tenant.api.put(own, {"app_metadata": {"dept": "Sales", "plan": "pro"}, "metadata": {"dept": "Board"}})
    entra.change(identity, department="Books")
    assert counts(directory.sync())[:3] == (1, 0, 1)
    changed = directory.user(directory.mail("ann"))
    assert (changed["app_metadata"], changed["metadata"]) == ({"dept": "Books", "plan": "pro"}, {"dept": "Board"})
    entra.change(identity, department=None)
    directory.sync()
    assert directory.user(directory.mail("ann"))["app_metadata"] == {"plan": "pro"}


def test_mapping_stored_before_app_metadata_is_read(directory: Directory, entra: Entra) -> None:
    entra.add(directory.mail("ann"), department="Sales")
    stored = {"email": "mail", "name": "displayName", "metadata": {"dept": "department"}}
    with in_tenant(directory.tenant.id):
        DirectoryConfig.objects.filter(pk=directory.made["id"]).update(mapping=stored)
    directory.sync()
    user = directory.user(directory.mail("ann"))
    assert (user["metadata"], user["app_metadata"]) == ({"dept": "Sales"}, {})
    assert directory.tenant.api.get(directory.path).json()["mapping"] == stored | {"app_metadata": {}}


def test_unusable_addresses_are_reported(directory: Directory, entra: Entra) -> None:
    entra.add(None)
    entra.add("no address at all")
    entra.add(directory.mail("same"))
    entra.add(directory.mail("SAME"))
    done = directory.sync()
    assert counts(done) == (4, 1, 0, 0, 0, 3)
    assert sorted(each["code"] for each in done["errors"]) == ["email_invalid", "email_taken", "no_email"]


def test_hidden_status_changes_no_user(directory: Directory, entra: Entra) -> None:
    off, on, _ = add_people(entra, directory)
    directory.sync()
    entra.change(off, accountEnabled=False)
    directory.sync()
    for identity in (off, on):
        entra.change(identity, accountEnabled=None)
    done = directory.sync()
    assert (counts(done)[1:], {each["code"] for each in done["errors"]}) == ((0, 0, 0, 0, 2), {"status_unreadable"})
    assert [directory.user(directory.mail(f"person{n}"))["active"] for n in range(2)] == [False, True]


def test_too_many_leavers_stop_the_run(directory: Directory, entra: Entra) -> None:
    people = add_people(entra, directory, 12)
    directory.sync()
    for identity in people[:6]:
        entra.change(identity, accountEnabled=False)
    entra.add(directory.mail("new"))
    stopped = directory.sync()
    assert (stopped["state"], counts(stopped), "6 of 12" in stopped["reason"]) == ("refused", (7, 1, 0, 0, 0, 0), True)
    assert directory.user(directory.mail("person0"))["active"] is True
    # The delta link is unchanged: the same changes are read again.
    assert counts(directory.sync(force=True)) == (7, 0, 0, 0, 6, 0)


def test_empty_directory_deactivates_no_user(directory: Directory, entra: Entra) -> None:
    add_people(entra, directory)
    directory.sync()
    entra.users.clear()
    assert directory.sync(full=True)["state"] == "refused"
    assert {user["active"] for user in directory.users(email=directory.mark)} == {True}


def test_erased_user_is_created_again(directory: Directory, entra: Entra) -> None:
    add_people(entra, directory)
    directory.sync()
    before = directory.user(directory.mail("person0"))["id"]
    body = {"tenant_id": str(directory.tenant.id), "user_id": before}
    erased = directory.tenant.api.post("/uflow/user/enduser/delete_all", body).json()
    assert erased["deleted"]["directory_links"] == 1
    assert counts(directory.sync(full=True)) == (3, 1, 0, 0, 0, 0)
    assert directory.user(directory.mail("person0"))["id"] != before


def test_changes_are_audited_without_names(directory: Directory, entra: Entra) -> None:
    identity, *_ = add_people(entra, directory)
    directory.sync()
    entra.change(identity, accountEnabled=False, displayName="Renamed")
    directory.sync()
    user_id = directory.user(directory.mail("person0"))["id"]
    events = directory.tenant.api.get("/uflow/admin/audit", {"target": user_id}).json()["events"]
    assert {event["action"] for event in events} == {"end_user.registered", "end_user.updated", "end_user.deactivated"}
    assert directory.mail("person0") not in str(events)


def test_webhooks_tell_of_a_run(directory: Directory, entra: Entra) -> None:
    with in_tenant(directory.tenant.id):
        endpoint = WebhookEndpoint.objects.create(
            url="https://hooks.example.com/", events=["end_user.*", "directory.*"], secret_sealed=b"x"
        )
    add_people(entra, directory)
    directory.sync()
    with in_tenant(directory.tenant.id):
        told = list(WebhookMessage.objects.filter(endpoint_id=endpoint.pk).values_list("event", flat=True))
        endpoint.delete()
    assert sorted(told) == ["directory.sync_finished", *["end_user.created"] * 3]


@pytest.mark.parametrize("at", ["login", "graph"])
def test_redirects_are_not_followed(directory: Directory, entra: Entra, at: str) -> None:
    add_people(entra, directory)
    other = Entra()
    entra.redirects = {at: other.base}
    response = directory.tenant.api.post(f"{directory.path}/sync", {})
    other.end()
    assert (response.status_code, other.asked, other.posted) == (502, [], [])
    assert directory.users(email=directory.mark) == []


@pytest.mark.parametrize("kind", ["nextLink", "deltaLink"])
def test_links_to_another_origin_get_no_token(directory: Directory, entra: Entra, kind: str) -> None:
    add_people(entra, directory, 150 if kind == "nextLink" else 3)
    other = Entra()
    # Another port of the same host is another origin.
    entra.next_link_host = other.base
    codes = [directory.tenant.api.post(f"{directory.path}/sync", {}).status_code for _ in range(2)]
    other.end()
    assert (codes[-1], other.asked) == (502, [])
