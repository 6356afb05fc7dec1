"""Reading, changing, switching off and erasing one end user."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from tenants.context import in_tenant
from tests.world import PASSWORD, Api, House, Person, sign_in_admin, statements
from userflow.accounts.models import EndUser
from userflow.accounts.session_models import EndUserAttempts, EndUserSession

NOBODY = "00000000-0000-4000-8000-000000000000"


def path(house: House, user: Any, rest: str = "") -> str:
    return f"/uflow/user/enduser/{house.id}/{getattr(user, 'id', user)}{rest}"


def test_a_user_reads_and_changes_their_own_record(house: House) -> None:
    person = house.register()
    me = house.as_user(person)
    changed = me.put(path(house, person), {"name": "New Name", "metadata": {"plan": {"seats": 3}}})
    assert changed.status_code == 200
    assert set(changed.json()) == {"user_id", "email", "name", "updated_at", "message"}
    read = me.get(path(house, person)).json()
    assert (read["name"], read["metadata"], read["email"]) == ("New Name", {"plan": {"seats": 3}}, person.email)
    me.put(path(house, person), {"metadata": {}})
    assert me.get(path(house, person)).json()["metadata"] == {}


@pytest.mark.parametrize("body", [{"name": 5}, {"metadata": []}, {"metadata": "x"}, {"email": "x"}])
def test_a_bad_change_names_the_member_and_changes_nothing(house: House, body: dict[str, Any]) -> None:
    person = house.register()
    answer = house.api.put(path(house, person), {"name": "kept out", **body})
    assert answer.status_code == 400
    assert set(answer.json()["details"]) == set(body)
    assert house.api.get(path(house, person)).json()["name"] != "kept out"


def test_a_taken_address_is_409_and_an_own_one_in_another_spelling_is_fine(house: House) -> None:
    one, two = house.register(), house.register()
    house.sign_in(two)
    assert house.api.put(path(house, one), {"email": two.email.upper()}).status_code == 409
    assert house.api.put(path(house, one), {"email": one.email.upper()}).status_code == 200


@pytest.mark.parametrize("member", ["active", "provider", "client_id", "id", "password", "mfa_methods", "tenant_id"])
def test_other_members_cannot_be_changed(house: House, member: str) -> None:
    person = house.register()
    me = house.as_user(person)
    before = me.get(path(house, person)).json()
    assert me.put(path(house, person), {member: "x"}).status_code == 200
    assert me.get(path(house, person)).json() | {"updated_at": ""} == before | {"updated_at": ""}


def test_an_end_user_reaches_nobody_else_known_or_not(house: House, other_house: House) -> None:
    me, neighbour, stranger = house.register(), house.register(), other_house.register()
    door = house.as_user(me)
    answers = [door.get(path(house, user)) for user in (neighbour, stranger, NOBODY)]
    assert {answer.status_code for answer in answers} == {403}
    assert len({answer.content for answer in answers}) == 1
    assert door.put(path(house, neighbour), {"name": "x"}).status_code == 403
    assert door.put(path(house, me, "/status"), {"active": True}).status_code == 403
    assert door.delete(path(house, me)).status_code == 403


def test_switching_off_ends_sessions_and_switching_on_does_not_revive_them(house: House) -> None:
    person = house.register()
    door = house.as_user(person)
    answer = house.api.put(path(house, person, "/status"), {"active": False})
    assert answer.json() | {"updated_at": ""} == {
        "message": "The user is deactivated.",
        "user_id": str(person.id),
        "active": False,
        "updated_at": "",
    }
    assert door.get(path(house, person)).status_code == 401
    body = {"tenant_id": str(house.id), "user_id": str(person.id), "active": True}
    assert house.api.post("/uflow/admin/enduser/active", body).json()["active"] is True
    assert door.get(path(house, person)).status_code == 401
    assert house.as_user(person).get(path(house, person)).status_code == 200


@pytest.mark.parametrize("active", ["true", 1, None, [], {}])
def test_active_is_true_or_false(house: House, active: Any) -> None:
    person = house.register()
    assert house.api.put(path(house, person, "/status"), {"active": active}).status_code == 400
    body = {"tenant_id": str(house.id), "user_id": str(person.id), "active": active}
    assert house.api.post("/uflow/admin/enduser/active", body).status_code == 400


def test_both_soft_deletes_keep_the_record(house: House) -> None:
    one, two = house.register(), house.register()
    by_path = house.api.delete(path(house, one))
    by_body = house.api.post("/uflow/user/enduser/delete", {"tenant_id": str(house.id), "user_id": str(two.id)})
    for person, answer in ((one, by_path), (two, by_body)):
        assert answer.status_code == 200
        assert (answer.json()["user_id"], answer.json()["active"]) == (str(person.id), False)
        assert house.api.get(path(house, person)).json()["active"] is False


def test_erasing_removes_everything_and_counts_it(house: House) -> None:
    person = house.register()
    house.sign_in(person)
    answer = house.api.post("/uflow/user/enduser/delete_all", {"tenant_id": str(house.id), "user_id": str(person.id)})
    assert answer.status_code == 200
    deleted = answer.json()["deleted"]
    assert (deleted["role_bindings"], deleted["sessions"], deleted["end_users"]) == (1, 1, 1)
    with in_tenant(house.id):
        assert not EndUser.objects.filter(pk=person.id).exists()
        assert not EndUserSession.objects.filter(user_id=person.id).exists()
    assert house.api.get(path(house, person)).status_code == 404
    again = house.api.post("/uflow/user/enduser/delete_all", {"tenant_id": str(house.id), "user_id": str(person.id)})
    assert again.status_code == 404
    assert house.register(person.email).id != person.id


def test_the_last_active_user_stays(new_house: Any) -> None:
    house = new_house()
    one, two = house.register(), house.register()
    body = {"tenant_id": str(house.id)}
    assert house.api.delete(path(house, two)).status_code == 200
    refused = house.api.post("/uflow/user/enduser/delete_all", {**body, "user_id": str(one.id)})
    assert (refused.status_code, refused.json()["error"]) == (400, "Bad Request")
    assert house.api.post("/uflow/user/enduser/delete_all", {**body, "user_id": str(two.id)}).status_code == 200
    assert house.api.get(path(house, one)).json()["active"] is True


def test_two_erasures_at_once_leave_one(new_house: Any) -> None:
    house = new_house()
    for _ in range(5):
        pair = [house.register(), house.register()]

        def erase(person: Person) -> int:
            try:
                body = {"tenant_id": str(house.id), "user_id": str(person.id)}
                return int(house.api.post("/uflow/user/enduser/delete_all", body).status_code)
            finally:
                connections.close_all()

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(erase, pair)) == [200, 400]
        with in_tenant(house.id):
            (left,) = EndUser.objects.values_list("id", flat=True)
            assert EndUser.objects.filter(pk=left).delete()


def test_erasing_touches_no_more_rows_with_more_users(new_house: Any) -> None:
    def erased(house: House) -> tuple[int, list[str]]:
        body = {"tenant_id": str(house.id), "user_id": str(house.register().id)}
        with statements() as seen:
            assert house.api.post("/uflow/user/enduser/delete_all", body).status_code == 200
        return len(seen.own), [sql for sql in seen.own if "FOR UPDATE" in sql]

    small, large = new_house(), new_house()
    small.register()
    with in_tenant(large.id):
        EndUser.objects.bulk_create(
            EndUser(email=f"{n}@example.com", email_key=f"{n}-{secrets.token_hex(4)}@example.com") for n in range(5000)
        )
    (few, _), (many, locking) = erased(small), erased(large)
    assert few == many
    assert all("LIMIT 1" in statement or '"id" = ' in statement for statement in locking)


def test_cross_tenant_calls_are_403_before_anything_is_looked_up(house: House, other_house: House) -> None:
    person = other_house.register()
    body = {"tenant_id": str(other_house.id), "user_id": str(person.id)}
    answers = [
        house.api.get(path(other_house, person)),
        house.api.put(path(other_house, person), {"name": "x"}),
        house.api.put(path(other_house, person, "/status"), {"active": False}),
        house.api.delete(path(other_house, person)),
        house.api.post("/uflow/user/enduser/delete", body),
        house.api.post("/uflow/user/enduser/delete_all", body),
        house.api.post("/uflow/admin/enduser/active", {**body, "active": False}),
        house.api.get("/uflow/user/enduser/databases", {"tenant_id": str(other_house.id)}),
    ]
    assert [answer.status_code for answer in answers] == [403] * len(answers)
    assert other_house.api.get(path(other_house, person)).json()["active"] is True


def test_a_foreign_users_id_is_an_unknown_id(house: House, other_house: House) -> None:
    stranger = other_house.register()
    for user in (stranger.id, NOBODY, "no-id", str(stranger.id).upper()):
        answers = [
            house.api.get(path(house, user)),
            house.api.put(path(house, user), {"name": "x"}),
            house.api.put(path(house, user, "/status"), {"active": False}),
            house.api.delete(path(house, user)),
        ]
        assert [answer.status_code for answer in answers] == [404] * 4
        assert len({answer.content for answer in answers}) == 1
    for user in (str(stranger.id), NOBODY):
        body = {"tenant_id": str(house.id), "user_id": user}
        assert house.api.post("/uflow/user/enduser/delete", body).status_code == 404
        assert house.api.post("/uflow/user/enduser/delete_all", body).status_code == 404
        assert house.api.post("/uflow/admin/enduser/active", {**body, "active": True}).status_code == 404


def test_database_mapping_for_operator_and_own_admin(operator: Api, house: House) -> None:
    asked = {"tenant_id": str(house.id)}
    mapping = house.api.get("/uflow/user/enduser/databases", asked)
    assert set(mapping.json()) == {"tenant_id", "database_host", "database_name", "status"}
    assert mapping.json()["status"] == "active"
    assert operator.get("/uflow/user/enduser/databases", asked).content == mapping.content
    assert operator.get("/uflow/user/enduser/databases", {"tenant_id": NOBODY}).status_code == 404
    assert operator.get("/uflow/user/enduser/databases").status_code == 400
    assert house.as_user(house.register()).get("/uflow/user/enduser/databases", asked).status_code == 403


def test_reading_costs_one_statement_a_database(house: House) -> None:
    person = house.register()
    with statements() as seen:
        assert house.api.get(path(house, person)).status_code == 200
    assert seen.counts == (1, 1)
    door = house.as_user(person)
    with statements() as seen:
        assert door.get(path(house, person)).status_code == 200
    # The end user's state is in the tenant's database, so that one is asked twice: state, then record.
    assert seen.counts == (1, 2)


def test_no_attempt_rows_stay_behind(house: House) -> None:
    person = house.register()
    wrong = {"client_id": str(house.client_id), "email": person.email, "password": "wrong wrong"}
    assert Api().post("/uflow/auth/enduser/login", wrong).status_code == 401
    with in_tenant(house.id):
        before = EndUserAttempts.objects.count()
        house.api.post("/uflow/user/enduser/delete_all", {"tenant_id": str(house.id), "user_id": str(person.id)})
        assert EndUserAttempts.objects.count() == before - 1


def test_put_changes_no_user_who_holds_more(house: House) -> None:
    person, plain = house.register(), house.register()
    role = house.api.post(
        "/authmgr/roles", {"name": f"r-{secrets.token_hex(6)}", "permissions": ["services:credentials"]}
    ).json()
    house.api.post(f"/authmgr/roles/{role['id']}/bindings", {"user_ids": [str(person.id)]})
    manager = admin_with(house, "user-manager")
    new = {"email": f"{secrets.token_hex(6)}@example.com"}
    assert manager.put(f"/uflow/user/enduser/{house.id}/{person.id}", new).status_code == 403
    assert manager.put(f"/uflow/user/enduser/{house.id}/{person.id}", {"name": "Ann"}).status_code == 403
    assert manager.put(f"/uflow/user/enduser/{house.id}/{plain.id}", new).status_code == 200
    own = {"email": f"{secrets.token_hex(6)}@example.com", "current_password": PASSWORD}
    assert house.as_user(person).put(f"/uflow/user/enduser/{house.id}/{person.id}", own).status_code == 200


def admin_with(house: House, role: str) -> Api:
    """An admin of the house with this role only."""
    name = f"weak-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "first_name": "W", "last_name": "K"}
    assert house.api.post("/uflow/admin/users", {**body, "roles": [role]}).status_code == 201
    return Api(token=sign_in_admin(name)["access_token"])
