"""Which changes publish events, and their data."""

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from tests.copies import change_tenant
from tests.mfa.people import new_user
from tests.userflow.mailbox import mails_to, token_in
from tests.userflow.webhooks.conftest import Listening, deliver
from tests.userflow.webhooks.consumer import Consumer
from tests.world import PASSWORD, Api

NEW, NEWER = "another horse 8 battery", "a third horse 7 battery"


@pytest.fixture
def heard(listening: Listening, consumer: Consumer) -> Callable[[], list[tuple[str, dict[str, Any]]]]:
    """Return type and data of the events since the last call."""

    def events() -> list[tuple[str, dict[str, Any]]]:
        deliver()
        found = [(each.event["type"], each.event["data"]) for each in consumer.seen]
        consumer.seen.clear()
        return found

    return events


Heard = Callable[[], list[tuple[str, dict[str, Any]]]]


def types(found: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [event for event, _ in found]


def test_replaced_registration_publishes_erasure(listening: Listening, heard: Heard) -> None:
    home, squatter = listening.home, listening.home.register()
    body = {"tenant_id": str(home.id), "client_id": str(home.client_id), "email": squatter.email, "provider": "google"}
    owner = home.api.post("/uflow/user/clients/register", body).json()["user_id"]
    found = [(event, data["user_id"]) for event, data in heard()]
    assert found[-2:] == [("end_user.erased", str(squatter.id)), ("end_user.created", owner)]


def test_user_lifecycle_publishes_events(listening: Listening, heard: Heard) -> None:
    home = listening.home
    home.register()
    person = home.register(name="Ada")
    path = f"/uflow/user/enduser/{home.id}/{person.id}"
    more = {"app_metadata": {"plan": "pro"}, "external_id": "crm-1"}
    home.api.put(path, {"name": "Ada L.", "metadata": {"team": "engines"}, **more})
    home.api.put(f"{path}/status", {"active": False})
    home.api.put(f"{path}/status", {"active": True})
    home.api.post("/uflow/user/enduser/delete_all", {"tenant_id": str(home.id), "user_id": str(person.id)})
    found = heard()[1:]
    assert types(found) == [
        "end_user.created",
        "end_user.updated",
        "end_user.deactivated",
        "end_user.activated",
        "end_user.erased",
    ]
    assert {data["user_id"] for _, data in found} == {str(person.id)}
    created, updated, deactivated, _, erased = (data for _, data in found)
    assert (created["via"], created["name"], deactivated["active"]) == ("registration", "Ada", False)
    assert updated["changed"] == ["app_metadata", "external_id", "metadata", "name"]
    assert (updated["metadata"], updated["app_metadata"]) == ({"team": "engines"}, {"plan": "pro"})
    assert updated["external_id"] == "crm-1"
    assert erased.keys() == {"tenant_id", "user_id"}


def test_password_events_hold_no_password(listening: Listening, consumer: Consumer) -> None:
    home = listening.home
    person = home.register()
    change = {"current_password": PASSWORD, "new_password": NEW}
    assert home.as_user(person).post("/authmgr/profile/password", change).status_code == 200
    Api().post("/uflow/auth/enduser/password/forgot", {"email": person.email, "client_id": str(home.client_id)})
    token = mails_to(person.email, "new password")[-1].body.partition("token=")[2].split()[0]
    response = Api().post("/uflow/auth/enduser/password/reset", {"token": token, "password": NEWER})
    assert response.status_code == 200, response.content
    deliver()
    assert [each.event["type"] for each in consumer.seen][1:] == [
        "end_user.password_changed",
        "end_user.password_reset",
        # The first reset verifies the address of a registration.
        "end_user.email_verified",
    ]
    sent = b" ".join(each.body for each in consumer.seen)
    assert not any(secret.encode() in sent for secret in (PASSWORD, NEW, NEWER, token, "$argon2"))


def test_invitation_publishes_events(listening: Listening, heard: Heard) -> None:
    home = listening.home
    email = f"guest-{secrets.token_hex(5)}@example.com"
    home.api.post("/uflow/admin/invitations", {"email": email, "kind": "end_user"})
    token = token_in(mails_to(email, "invited")[-1])
    response = Api().post("/uflow/invitations/accept", {"token": token, "password": PASSWORD, "name": "Grace"})
    found = heard()
    assert types(found) == ["invitation.created", "end_user.created", "invitation.accepted"]
    assert found[1][1]["via"] == "invitation"
    assert found[2][1]["user_id"] == response.json()["user_id"]
    assert token not in str(found)


def test_verified_email_publishes_event(listening: Listening, heard: Heard) -> None:
    home = listening.home
    change_tenant(home.id, settings={"email_verification": "required"})
    person = home.register()
    # A registration is no user before its address is verified.
    assert heard() == []
    token = token_in(mails_to(person.email)[-1])
    assert Api().post("/uflow/user/email/verify", {"token": token}).status_code == 200
    assert types(heard()) == ["end_user.created", "end_user.email_verified"]
    home.api.put(f"/uflow/user/enduser/{home.id}/{person.id}", {"email": f"new-{person.email}"})
    # A pending change of address has changed nothing yet.
    assert heard() == []
    token = token_in(mails_to(f"new-{person.email}")[-1])
    assert Api().post("/uflow/user/email/verify", {"token": token}).status_code == 200
    found = heard()
    assert types(found) == ["end_user.updated", "end_user.email_verified"]
    assert found[0][1]["email"] == found[1][1]["email"] == f"new-{person.email}"


def test_groups_and_roles_publish_events(listening: Listening, heard: Heard) -> None:
    home, api = listening.home, listening.home.api
    person = home.register()
    ids = {"user_ids": [str(person.id)]}
    for kind, people in (("roles", "bindings"), ("groups", "users")):
        path = f"/authmgr/{kind}/{api.post(f'/authmgr/{kind}', {'name': 'Readers'}).json()['id']}"
        api.put(path, {"description": "They read"})
        api.post(f"{path}/{people}", ids)
        # Existing members are not published again.
        api.post(f"{path}/{people}", ids)
        api.delete(f"{path}/{people}", ids)
        api.delete(path)
    found = heard()[1:]
    assert types(found) == [
        *("role.created", "role.updated", "role.assigned", "role.revoked", "role.deleted"),
        *("group.created", "group.updated", "group.members_added", "group.members_removed", "group.deleted"),
    ]
    assert found[1][1]["changed"] == found[6][1]["changed"] == ["description"]
    assert found[2][1]["user_ids"] == found[7][1]["user_ids"] == [str(person.id)]


def test_factors(listening: Listening, heard: Heard) -> None:
    ann = new_user(listening.home).enrol_totp()
    response = listening.home.api.post(
        "/webauthn/factors/reset", {"user_id": str(ann.id), "tenant_id": str(listening.home.id), "reason": "lost phone"}
    )
    assert response.status_code == 200, response.content
    found = heard()
    assert types(found) == ["end_user.created", "factor.enrolled", "factor.reset"]
    assert (found[1][1]["kind"], found[1][1]["mfa_methods"]) == ("totp", ["totp", "backup_code"])
    assert found[2][1]["mfa_methods"] == []
    assert ann.secret not in str(found)


def test_rejected_request_publishes_no_event(listening: Listening, heard: Heard) -> None:
    home = listening.home
    person = home.register()
    body = {"tenant_id": str(home.id), "user_id": str(person.id)}
    # The last active user stays, and an address is taken once.
    assert home.api.post("/uflow/user/enduser/delete_all", body).status_code == 400
    assert home.api.post("/authmgr/groups", {"name": "A", "roles": ["no such role"]}).status_code == 400
    assert types(heard()) == ["end_user.created"]
