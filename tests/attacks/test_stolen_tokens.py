"""A stolen access token, a minute old and of the highest level, cannot do what needs a proof in the request."""

import secrets
from typing import Any

import pytest

from tests.attacks.victims import Victim
from tests.world import PASSWORD, Api

THIEF = "stolen horse 7 battery"


@pytest.fixture(params=["without a factor", "with a factor"])
def stolen(victim: Victim, request: Any) -> Api:
    """Return the thief's API client, at another address, with the victim's newest token."""
    if request.param == "with a factor":
        victim.enroll_totp()
        return Api(token=victim.second_step()["access_token"])
    return Api(token=victim.token)


def is_rejected(response: Any) -> bool:
    # 403: directory users have no password on the platform.
    return bool(response.status_code in (400, 401, 403))


def test_stolen_token_keeps_the_address(victim: Victim, stolen: Api) -> None:
    new = f"thief-{secrets.token_hex(5)}@example.com"
    wrong = {"current_password": THIEF}, {"code": "000000"}, {"proof_token": "A" * 43}
    for proof in ({}, *wrong):
        assert is_rejected(stolen.put("/authmgr/profile", {"email": new, **proof}))
    assert stolen.get("/authmgr/profile").json()["email"] == victim.email


def test_stolen_token_keeps_the_password(victim: Victim, stolen: Api) -> None:
    for proof in ({}, {"current_password": THIEF}, {"proof_token": "A" * 43}):
        response = stolen.post("/authmgr/profile/password", {"new_password": THIEF, **proof})
        assert is_rejected(response), response.content
    assert victim.sign_in(Api()).status_code == 200


def test_stolen_token_removes_no_factor(victim: Victim) -> None:
    victim.enroll_totp()
    stolen = Api(token=victim.second_step()["access_token"])
    (factor,) = stolen.get("/webauthn/factors").json()["factors"]
    for proof in (None, {}, {"current_password": THIEF}, {"proof_token": "A" * 43}):
        assert is_rejected(stolen.delete(f"/webauthn/factors/{factor['id']}", proof))
        assert is_rejected(stolen.post(f"{victim.totp}/disable", {**victim.user_fields, **(proof or {})}))
    assert victim.methods() == ["totp", "backup_code"]


def test_proof_token_of_another_session_is_rejected(victim: Victim) -> None:
    owner = Api(token=victim.token)
    raised = owner.post("/authmgr/step-up", {"password": PASSWORD})
    assert raised.status_code == 200, raised.content
    other = Api(token=victim.sign_in(Api()).json()["access_token"])
    body = {"email": f"thief-{secrets.token_hex(5)}@example.com", "proof_token": raised.json()["proof_token"]}
    assert is_rejected(other.put("/authmgr/profile", body))
    # The rejected call consumed nothing.
    own = Api(token=raised.json()["access_token"]).put("/authmgr/profile", body)
    assert own.status_code == 200, own.content
