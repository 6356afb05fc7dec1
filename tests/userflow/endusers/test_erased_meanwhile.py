"""Erasing a user during a call about this user: the call gets an error and the user stays erased."""

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from tenants.entering.context import in_tenant
from tests.mfa.people import TestUser, new_user, some_phone
from tests.mfa.webauthn.passkeys import user_with_passkey
from tests.userflow.signin.test_first_step_races import signed_in_during
from tests.world import Api, TestTenant
from userflow.accounts.models import EndUser
from userflow.accounts.realms import END_USERS
from userflow.accounts.session_models import EndUserRefreshToken


def begun_during_erasure(tenant: TestTenant, user_id: Any, begin: Callable[[], Any]) -> int:
    with in_tenant(tenant.id):
        response = signed_in_during(END_USERS, lambda: EndUser.objects.get(pk=user_id).delete(), begin)
    return int(response.status_code)


def begin_phone(ann: TestUser) -> Any:
    return ann.api.post("/webauthn/sms/beginSetup", {**ann.named_with_client, "phone_number": some_phone()})


BEGINNINGS: dict[str, tuple[Callable[[TestUser], Any], int]] = {
    "authenticator": (lambda ann: ann.api.post("/webauthn/totp/beginSetup", ann.name), 404),
    "passkey": (lambda ann: ann.api.post("/webauthn/enduser/beginRegistration", ann.name), 404),
    "phone": (begin_phone, 401),
}


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_erased_user_cannot_enroll(tenant: TestTenant, kind: str) -> None:
    ann = new_user(tenant)
    begin, status = BEGINNINGS[kind]
    assert begun_during_erasure(tenant, ann.id, lambda: begin(ann)) == status


def test_erased_user_cannot_begin_passkey_login(tenant: TestTenant) -> None:
    person, _ = user_with_passkey(tenant)
    body = {"email": person.email, "tenant_id": str(tenant.id)}
    begin = "/webauthn/enduser/beginAuthentication"
    assert begun_during_erasure(tenant, person.id, lambda: Api().post(begin, body)) == 404


def test_concurrent_refresh_does_not_block_erasure(tenant: TestTenant) -> None:
    tenant.register()
    ann = new_user(tenant)
    ann.sign_in()

    def refresh() -> None:
        row = EndUserRefreshToken.objects.select_for_update().get(session__user_id=ann.id)
        EndUserRefreshToken.objects.create(digest=secrets.token_bytes(32), session=row.session)

    body = {"tenant_id": str(tenant.id), "user_id": str(ann.id)}
    with in_tenant(tenant.id):
        erased = signed_in_during(END_USERS, refresh, lambda: tenant.api.post("/uflow/user/enduser/delete_all", body))
    assert (erased.status_code, erased.json()["deleted"]["refresh_tokens"]) == (200, 2)
