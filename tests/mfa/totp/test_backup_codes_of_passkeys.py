"""Backup codes of users whose only factors are passkeys."""

from typing import Any

from tests.mfa.webauthn.authenticator import Authenticator
from tests.mfa.webauthn.passkeys import end_users_of, user_with_passkey
from tests.openid.pages.visitor import Visitor
from tests.userflow.sessions.aged import proof_token, strong
from tests.world import Api, TestTenant, User

RENEW = "/webauthn/totp/regenerateBackupCodes"


def strong_api(tenant: TestTenant, person: User, authenticator: Authenticator) -> Api:
    home = end_users_of(tenant)
    login = tenant.sign_in(person)
    response = authenticator.get(home.options(person))
    done = home.finish_authentication(person, response, mfa_token=login["mfa_token"]).json()
    return Api(token=done["access_token"])


def renew(tenant: TestTenant, person: User, authenticator: Authenticator, api: Api) -> Any:
    """Create new backup codes with the passkey as the proof in the request."""
    response = authenticator.get(api.post("/authmgr/step-up/options").json())
    return api.post(RENEW, {"email": person.email, "tenant_id": str(tenant.id), "response": response})


def test_passkey_user_gets_backup_codes(tenant: TestTenant) -> None:
    person, authenticator = user_with_passkey(tenant)
    api = strong_api(tenant, person, authenticator)
    named = {"email": person.email, "tenant_id": str(tenant.id)}
    assert api.post(RENEW, named).status_code == 400
    codes = renew(tenant, person, authenticator, api).json()["backup_codes"]
    assert len(codes) == 10
    login = tenant.sign_in(person)
    assert login["methods"] == ["webauthn", "backup_code"]
    body = {**named, "backup_code": codes[0], "mfa_token": login["mfa_token"]}
    assert Api().post("/webauthn/totp/verifyLogin", body).status_code == 200


def test_backup_codes_go_with_last_passkey(tenant: TestTenant) -> None:
    person, authenticator = user_with_passkey(tenant)
    api = strong_api(tenant, person, authenticator)
    renewed = renew(tenant, person, authenticator, api)
    assert renewed.status_code == 200
    (factor,) = api.get("/webauthn/factors").json()["factors"]
    # The new codes prove nothing in this session.
    body = {"proof_token": proof_token(str(api.token))}
    assert api.delete(f"/webauthn/factors/{factor['id']}", body).status_code == 200
    assert tenant.sign_in(person)["access_token"]


def test_user_without_factor_gets_no_backup_codes(tenant: TestTenant) -> None:
    person = tenant.register()
    api = Api(token=strong(str(tenant.as_user(person).token)))
    assert api.post(RENEW, {"email": person.email, "tenant_id": str(tenant.id)}).status_code == 400


def test_account_page_offers_backup_codes_beside_passkeys(tenant: TestTenant) -> None:
    person, authenticator = user_with_passkey(tenant)
    codes = renew(tenant, person, authenticator, strong_api(tenant, person, authenticator))
    visitor = Visitor(tenant)
    visitor.signs_in(person)
    visitor.opens("signin/verify?method=backup_code")
    visitor.sends(backup_code=codes.json()["backup_codes"][0])
    visitor.opens("account/security")
    assert "9 codes left" in visitor.words
    assert "Create new codes" in visitor.words
