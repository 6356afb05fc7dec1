"""Registering end users at the public door."""

from tests.world import PASSWORD, Api, House


def body(house: House, **members: object) -> dict[str, object]:
    return {
        "tenant_id": str(house.id),
        "client_id": str(house.client_id),
        "email": "someone@example.com",
        "password": PASSWORD,
        "name": "Some One",
        **members,
    }


def test_a_new_user_is_stored_in_the_tenant_and_can_sign_in(api: Api, house: House) -> None:
    answer = api.post("/uflow/user/clients/register", body(house, email="Ann.First@Example.COM"))
    assert answer.status_code == 201
    assert answer.json() | {"user_id": "", "message": ""} == {
        "user_id": "",
        "email": "Ann.First@example.com",
        "tenant_id": str(house.id),
        "client_id": str(house.client_id),
        "message": "",
    }
    assert answer.headers["X-Enrollment-Ticket"]
    login = {"client_id": str(house.client_id), "email": "ann.first@example.com", "password": PASSWORD}
    signed_in = api.post("/uflow/auth/enduser/login", login)
    assert signed_in.status_code == 200
    assert signed_in.json()["user"]["id"] == answer.json()["user_id"]
