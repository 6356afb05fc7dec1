"""Changes of one's own sign-in: a recent session with the factor, and a proof in the request itself."""

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

import pyotp
import pytest
from django.utils.timezone import now

from tests.mfa.stepup.members import REALMS, WRONG, Member, member, realm_name
from tests.parallel import run_concurrently
from tests.userflow.sessions.clients import make_client, own_token
from tests.world import PASSWORD, Api, TestTenant, User, sign_in_admin
from userflow.accounts.realms import ADMINS, END_USERS, Realm

Change = Callable[..., Any]
PROFILE = "/authmgr/profile"


def new_address() -> str:
    return f"new-{secrets.token_hex(6)}@example.com"


def remove_factor(user: Member, api: Api, **proof: Any) -> Any:
    with user.entered():
        factor = user.row().totp_secrets.get(confirmed_at__isnull=False).pk
    return api.delete(f"/webauthn/factors/{factor}", proof)


def disable_totp(user: Member, api: Api, **proof: Any) -> Any:
    return api.post(f"{user.totp}/disable", {**user.named, **proof})


def replace_totp(user: Member, api: Api, **proof: Any) -> Any:
    begun = api.post(f"{user.totp}/beginSetup", user.named)
    if begun.status_code != 200:
        return begun
    secret = begun.json()["secret"]
    body = {**user.named, **proof, "secret": secret, "code": pyotp.TOTP(secret).at(now())}
    return api.post(f"{user.totp}/confirmSetup", body)


def change_address(user: Member, api: Api, **proof: Any) -> Any:
    return api.put(PROFILE, {"email": new_address(), **proof})


def change_address_by_id(user: Member, api: Api, **proof: Any) -> Any:
    of_realm = {END_USERS: f"/uflow/user/enduser/{user.tenant.id}/{user.id}", ADMINS: f"/uflow/admin/users/{user.id}"}
    return api.put(of_realm[user.realm], {"email": new_address(), **proof})


def change_password(user: Member, api: Api, **proof: Any) -> Any:
    return api.post(f"{PROFILE}/password", {"new_password": f"battery {secrets.token_hex(8)}", **proof})


CHANGES: list[Change] = [
    remove_factor,
    disable_totp,
    replace_totp,
    change_address,
    change_address_by_id,
    change_password,
]
pytestmark = [
    pytest.mark.parametrize("realm", REALMS, ids=realm_name),
]
every_change = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)


def stored(user: Member) -> Any:
    """What the changes change."""
    row = user.row()
    with user.entered():
        factors = sorted(str(secret.pk) for secret in row.totp_secrets.filter(confirmed_at__isnull=False))
        # The new address of a user who has a factor waits to be verified.
        waiting = getattr(row, "email_proof", None)
        address = waiting.email if waiting else ""
    return row.email, address, row.password, row.mfa_methods, factors


@every_change
def test_own_change_without_a_proof_is_rejected(tenant: TestTenant, realm: Realm, change: Change) -> None:
    # What a stolen access token of the last minutes can do.
    user = member(realm, tenant).enrol()
    user.step_up()
    before = stored(user)
    response = change(user, user.api)
    assert (response.status_code, response.json()["details"].keys()) == (400, {"current_password"})
    assert stored(user) == before


@every_change
def test_own_change_needs_the_factor_in_the_session(tenant: TestTenant, realm: Realm, change: Change) -> None:
    user = member(realm, tenant).enrol()
    before = stored(user)
    for proof in ({"current_password": PASSWORD}, {"backup_code": user.backup_codes[0]}):
        response = change(user, user.api, **proof)
        assert (response.status_code, response.json()["code"]) == (401, "insufficient_user_authentication")
        assert 'acr_values="aal2"' in response.headers["WWW-Authenticate"]
    assert stored(user) == before


@every_change
def test_own_change_needs_a_recent_proof_in_the_session(tenant: TestTenant, realm: Realm, change: Change) -> None:
    user = member(realm, tenant).enrol()
    user.step_up()
    user.time_passes(16)
    assert change(user, user.api, backup_code=user.backup_codes[0]).status_code == 401
    assert user.step_up().status_code == 200
    assert change(user, user.api, backup_code=user.backup_codes.pop()).status_code == 200


@every_change
def test_own_change_takes_no_password_of_a_user_with_a_factor(tenant: TestTenant, realm: Realm, change: Change) -> None:
    # A stolen access token and the password would otherwise replace the factor, and get ten backup codes.
    user = member(realm, tenant).enrol()
    user.step_up()
    before = stored(user)
    for password in (PASSWORD, WRONG):
        response = change(user, user.api, current_password=password)
        assert (response.status_code, response.json()["code"]) == (400, "factor_required")
    assert stored(user) == before


@every_change
@pytest.mark.parametrize("kind", ["code", "backup_code", "proof_token"])
def test_own_change_takes_every_proof_once(tenant: TestTenant, realm: Realm, change: Change, kind: str) -> None:
    if change is replace_totp and kind == "code":
        return  # `code` is of the new authenticator
    user = member(realm, tenant).enrol()
    user.step_up()
    proofs: dict[str, Callable[[], str]] = {
        "code": user.code,
        "backup_code": user.backup_codes.pop,
        "proof_token": user.proof_token,
    }
    proof = {kind: proofs[kind]()}
    before = stored(user)
    assert change(user, user.api, **proof).status_code == 200
    assert stored(user) != before
    if change is change_password:
        assert change(user, user.api, **proof).status_code == 400


@pytest.mark.parametrize("kind", ["current_password", "code", "backup_code"])
def test_wrong_proofs_count_and_lock(tenant: TestTenant, realm: Realm, kind: str) -> None:
    user = member(realm, tenant)
    if kind == "current_password":
        token = user.step_up(password=PASSWORD).json()["proof_token"]
        wrong, other = WRONG, {"proof_token": token}
    else:
        user.enrol().step_up()
        wrong = user.wrong_code() if kind == "code" else "0000-0000-0000-0000"
        other = {"backup_code": user.backup_codes[0]} if kind == "code" else {"code": user.code()}
    responses = [change_address(user, user.api, **{kind: wrong}).status_code for _ in range(6)]
    assert responses == [400] * 5 + [429]
    # The lock is that of this factor alone.
    assert change_address(user, user.api, **other).status_code == 200


def test_proof_token_is_of_one_session_user_and_tenant(
    tenant: TestTenant, other_tenant: TestTenant, realm: Realm
) -> None:
    user = member(realm, tenant)
    token = user.step_up(password=PASSWORD).json()["proof_token"]
    others = [member(realm, tenant), member(realm, other_tenant)]
    for who, api in [(user, second_session(user)), *((other, other.api) for other in others)]:
        response = change_address(who, api, proof_token=token)
        assert (response.status_code, "step-up" in response.json()["message"]) == (400, True)
    assert change_address(user, user.api, proof_token=token).status_code == 200


def second_session(user: Member) -> Api:
    """The door of another session of the same user."""
    if user.realm is ADMINS:
        return Api(token=sign_in_admin(user.username)["access_token"])
    return user.tenant.as_user(User(user.row().pk, user.email))


def test_proof_token_ends_after_five_minutes_or_with_session(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    token = user.step_up(password=PASSWORD).json()["proof_token"]
    user.time_passes(5.1)
    assert change_address(user, user.api, proof_token=token).status_code == 400
    token = user.step_up(password=PASSWORD).json()["proof_token"]
    assert user.api.post("/authmgr/logout").status_code < 300
    assert change_address(user, user.api, proof_token=token).status_code == 401


def test_proof_token_works_once(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    token = user.step_up(password=PASSWORD).json()["proof_token"]
    assert change_address(user, user.api, proof_token=token).status_code == 200
    assert change_address(user, user.api, proof_token=token).status_code == 400
    assert change_address(user, user.api, proof_token="nonsense").status_code == 400


def test_proof_token_is_no_other_ticket(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    token = user.step_up(password=PASSWORD).json()["proof_token"]
    headers = {"X-Enrollment-Ticket": token}
    assert Api().post(f"{user.totp}/beginSetup", user.named, headers=headers).status_code == 401
    body = {**user.named, "code": "123456", "mfa_token": token}
    assert Api().post(f"{user.totp}/verifyLogin", body).status_code == 401
    assert Api(token=token).get("/authmgr/validate").status_code == 401


@pytest.mark.parametrize("_", range(1))
def test_proof_token_of_twenty_calls_at_once_counts_once(tenant: TestTenant, realm: Realm, _: int) -> None:
    user = member(realm, tenant)
    token = user.step_up(password=PASSWORD).json()["proof_token"]
    apis = [Api(token=user.api.token) for _ in range(20)]
    responses = run_concurrently([partial(change_address, user, api, proof_token=token) for api in apis])
    assert sorted(response.status_code for response in responses) == [200] + [400] * 19


def test_own_changes_are_not_for_clients(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    client = Api(token=own_token(make_client(tenant, scopes=["endusers:write"])))
    before = stored(user)
    for change in (remove_factor, disable_totp, change_address, change_password):
        assert change(user, client, current_password=PASSWORD).status_code == 403
    assert stored(user) == before


def test_own_changes_reject_other_users(tenant: TestTenant, other_tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    before = stored(user)
    for other in (member(realm, tenant), member(realm, other_tenant)):
        assert disable_totp(user, other.api, current_password=PASSWORD).status_code == 403
        assert remove_factor(user, other.api, current_password=PASSWORD).status_code == 404
    assert stored(user) == before


def test_first_proof_of_several_counts(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    user.step_up()
    proof = {"current_password": WRONG, "backup_code": user.backup_codes[0]}
    assert change_address(user, user.api, **proof).status_code == 400
    assert change_address(user, user.api, backup_code=user.backup_codes[0]).status_code == 200


def test_unchanged_address_needs_no_proof(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    assert user.api.put(PROFILE, {"email": user.email}).status_code == 200


def test_new_backup_codes_need_the_factor_and_its_proof(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    path = f"{user.totp}/regenerateBackupCodes"
    assert user.api.post(path, user.named).status_code == 401
    user.step_up()
    assert user.api.post(path, user.named).status_code == 400
    assert Api(token=tenant.api.token).post(path, user.named).status_code == 403
    assert user.api.post(path, {**user.named, "code": user.code()}).status_code == 200


def test_one_more_factor_needs_the_factor_in_the_session(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant).enrol()
    prefix = "/webauthn/enduser" if realm is END_USERS else "/webauthn/admin"
    assert user.api.post(f"{prefix}/beginRegistration", user.named).status_code == 401
    user.step_up()
    assert user.api.post(f"{prefix}/beginRegistration", user.named).status_code == 200


def test_last_factor_stays_while_the_policy_requires_one(new_tenant: Callable[[], TestTenant], realm: Realm) -> None:
    tenant = new_tenant()
    user = member(realm, tenant).enrol()
    user.step_up()
    path = f"/uflow/admin/tenants/{tenant.id}/settings"
    assert tenant.api.patch(path, {"settings": {"mfa_policy": "required"}}).status_code == 200
    before = stored(user)
    for change in (remove_factor, disable_totp):
        response = change(user, user.api, backup_code=user.backup_codes[0])
        assert (response.status_code, "add another one" in response.json()["message"]) == (409, True)
    assert stored(user) == before
    assert replace_totp(user, user.api, backup_code=user.backup_codes[0]).status_code == 200


@pytest.mark.parametrize("change", [remove_factor, disable_totp], ids=lambda change: change.__name__)
def test_removing_the_last_factor_consumes_no_code(
    new_tenant: Callable[[], TestTenant], realm: Realm, change: Change
) -> None:
    tenant = new_tenant()
    user = member(realm, tenant).enrol()
    user.step_up()
    path = f"/uflow/admin/tenants/{tenant.id}/settings"
    assert tenant.api.patch(path, {"settings": {"mfa_policy": "required"}}).status_code == 200
    for proof in ({"backup_code": user.backup_codes[0]}, {"code": user.code()}):
        assert [change(user, user.api, **proof).status_code for _ in range(2)] == [409, 409]
    assert change_address(user, user.api, backup_code=user.backup_codes[0]).status_code == 200


def test_disabling_totp_that_is_not_enrolled_consumes_no_proof(tenant: TestTenant, realm: Realm) -> None:
    user = member(realm, tenant)
    token = user.step_up(password=PASSWORD).json()["proof_token"]
    assert disable_totp(user, user.api, proof_token=token).status_code == 400
    assert change_address(user, user.api, proof_token=token).status_code == 200


def test_change_over_the_limit_consumes_no_proof(tenant: TestTenant, realm: Realm, settings: Any) -> None:
    settings.LIMITS = {**settings.LIMITS, "email_resend": (1, 3600)}
    user = member(realm, tenant)
    assert change_address(user, user.api, current_password=PASSWORD).status_code == 200
    token = user.step_up(password=PASSWORD).json()["proof_token"]
    assert change_address(user, user.api, proof_token=token).status_code == 429
    assert change_password(user, user.api, proof_token=token).status_code == 200


def test_session_below_the_policy_steps_up(new_tenant: Callable[[], TestTenant], realm: Realm) -> None:
    tenant = new_tenant()
    user = member(realm, tenant).enrol()
    path = f"/uflow/admin/tenants/{tenant.id}/settings"
    assert tenant.api.patch(path, {"settings": {"mfa_policy": "required"}}).status_code == 200
    assert user.api.get(PROFILE).status_code == 401
    assert user.step_up().status_code == 200
    assert user.api.get(PROFILE).status_code == 200
    user.refresh()
    assert user.api.get(PROFILE).status_code == 200


def test_admins_do_not_reset_their_own_factors(tenant: TestTenant, realm: Realm) -> None:
    user = member(ADMINS, tenant).enrol()
    user.step_up()
    body = {"user_id": user.id, "reason": "lost the phone"}
    assert user.api.post("/webauthn/admin/factors/reset", body).status_code == 403
    assert user.row().mfa_methods == ["totp", "backup_code"]
