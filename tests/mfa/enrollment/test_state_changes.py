"""What was issued under an earlier state ends with the change: sessions, tickets and windows."""

from typing import Any

import pyotp

from tests.mfa.people import TestUser, new_user
from tests.userflow.sessions.aged import proof_token, strong
from tests.userflow.sessions.test_refresh import refresh
from tests.world import PASSWORD, Api, TestTenant, sign_in_admin

VALIDATE = "/authmgr/validate"
BEGIN = "/webauthn/totp/beginSetup"


def works(token: str) -> bool:
    return bool(Api(token=token).get(VALIDATE).status_code == 200)


def by(ticket: str) -> dict[str, str]:
    return {"X-Enrollment-Ticket": ticket}


def passkey_options(ann: TestUser, **how: Any) -> int:
    return int(ann.api.post("/webauthn/enduser/beginRegistration", ann.name, **how).status_code)


def test_first_factor_ends_other_sessions(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    own, other = ann.sign_in().json(), ann.sign_in().json()
    ann.enrol_totp(token=own["access_token"])
    assert works(own["access_token"])
    assert not works(other["access_token"])
    assert refresh(other["refresh_token"]).json()["error"] == "invalid_grant"


def test_first_factor_by_ticket_or_window_ends_all_sessions(tenant: TestTenant) -> None:
    for proof in ("ticket", "window"):
        ann = new_user(tenant)
        token = str(ann.sign_in(ann.api).json()["access_token"])
        ann.enrol_totp(headers=by(ann.ticket) if proof == "ticket" else {})
        assert not works(token), proof


def test_first_factor_ends_window_and_other_tickets(tenant: TestTenant) -> None:
    # The caller at the victim's own address has a window too, and an attacker's login has earned an older ticket.
    ann = new_user(tenant)
    older = ann.sign_in(ann.api).headers["X-Enrollment-Ticket"]
    assert passkey_options(ann) == passkey_options(ann, headers=by(older)) == 200
    ann.enrol_totp()
    assert passkey_options(ann) == passkey_options(ann, headers=by(older)) == 401
    # The ticket that was used may add one more kind, and no third one.
    assert passkey_options(ann, headers=by(ann.ticket)) == 200
    ann.enrol_phone()
    assert passkey_options(ann, headers=by(ann.ticket)) == 401


def by_factor(token: str) -> dict[str, str]:
    return {"proof_token": proof_token(token)}


def test_removing_the_last_factor_ends_other_sessions(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    own = ann.token()
    ann.enrol_totp(token=own)
    own = strong(own)
    ann.enrol_phone(token=own)
    done = Api().post(
        "/webauthn/totp/verifyLogin",
        {**ann.name, "mfa_token": ann.sign_in().json()["mfa_token"], "backup_code": ann.backup_codes[0]},
    )
    other = done.json()["access_token"]
    factors = {one["kind"]: one["id"] for one in Api(token=own).get("/webauthn/factors").json()["factors"]}
    assert Api(token=own).delete(f"/webauthn/factors/{factors['totp']}", by_factor(own)).status_code == 200
    assert works(other)
    assert Api(token=own).delete(f"/webauthn/factors/{factors['sms']}", by_factor(own)).status_code == 200
    assert (works(own), works(other)) == (True, False)


def test_factor_reset_ends_every_session(tenant: TestTenant, other_tenant: TestTenant) -> None:
    ann, ben, far = new_user(tenant), new_user(tenant), new_user(other_tenant)
    own, bens, fars = ann.token(), ben.token(), far.token()
    ann.enrol_totp(token=own)
    body = {"tenant_id": str(tenant.id), "user_id": str(ann.id), "reason": "lost"}
    assert tenant.api.post("/webauthn/factors/reset", body).status_code == 200
    assert [works(token) for token in (own, bens, fars)] == [False, True, True]


def test_first_factor_of_an_admin_ends_other_sessions(new_tenant: Any) -> None:
    tenant = new_tenant()
    own, other = sign_in_admin(tenant.admin.username), sign_in_admin(tenant.admin.username)
    body = {"email": tenant.admin.email}
    begun = Api(token=own["access_token"]).post("/webauthn/admin/totp/beginSetup", body).json()
    code = pyotp.TOTP(begun["secret"]).now()
    confirm = {**body, "secret": begun["secret"], "code": code, "current_password": PASSWORD}
    assert Api(token=own["access_token"]).post("/webauthn/admin/totp/confirmSetup", confirm).status_code == 200
    assert (works(own["access_token"]), works(other["access_token"])) == (True, False)
    assert not works(str(tenant.api.token))


def test_changed_address_ends_other_sessions(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    own, other = ann.token(), ann.token()
    changed = Api(token=own).put("/authmgr/profile", {"email": f"new-{ann.email}", **ann.proof()})
    assert changed.status_code == 200, changed.content
    assert (works(own), works(other)) == (True, False)


def test_address_changed_by_an_admin_ends_every_session(tenant: TestTenant) -> None:
    ann, ben = new_user(tenant), new_user(tenant)
    token, bens = ann.token(), ben.token()
    path = f"/uflow/user/enduser/{tenant.id}/{ann.id}"
    assert tenant.api.put(path, {"name": "Ann"}).status_code == 200
    assert works(token)
    assert tenant.api.put(path, {"email": f"new-{ann.email}"}).status_code == 200
    assert (works(token), works(bens)) == (False, True)
