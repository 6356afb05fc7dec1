"""A software authenticator from the package index, with its own reading of the standard."""

from typing import Any

import pytest
from soft_fido2.authenticator import Fido2Authenticator
from soft_fido2.key_pair import KeyPair

from tests.mfa.webauthn.passkeys import ADMIN_USERS, ORIGIN, Home
from tests.world import Api, TestTenant

KEYS = {"ES256": KeyPair.generate_ecdsa, "RS256": KeyPair.generate_rsa}


def _at_our_page(options: dict[str, Any]) -> dict[str, Any]:
    # It plays the browser too, and takes the page's origin from the options.
    return {**options, "origin": ORIGIN}


@pytest.mark.parametrize("attestation", ["none", "packed-self"])
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_other_client_enrolls_and_signs_in(home: Home, tenant: TestTenant, key: Any, attestation: str) -> None:
    person = tenant.register()
    api, soft = tenant.as_user(person), Fido2Authenticator(keyPair=key())
    created = soft.credential_create(_at_our_page(home.begin_registration(api, person).json()), attestation)
    assert home.finish_registration(api, person, created).status_code == 200
    ticket = tenant.sign_in(person)["mfa_token"]
    used = soft.credential_request(_at_our_page(home.options(person)))
    response = home.finish_authentication(person, used, mfa_token=ticket)
    assert response.status_code == 200, response.content
    assert Api(token=response.json()["access_token"]).get("/webauthn/factors").json()["methods"] == ["webauthn"]


def test_other_client_signs_admin_in(new_tenant: Any) -> None:
    tenant = new_tenant()
    soft = Fido2Authenticator()
    created = soft.credential_create(_at_our_page(ADMIN_USERS.begin_registration(tenant.api, tenant.admin).json()))
    assert ADMIN_USERS.finish_registration(tenant.api, tenant.admin, created).status_code == 200
    used = soft.credential_request(_at_our_page(ADMIN_USERS.options(tenant.admin)))
    assert ADMIN_USERS.finish_authentication(tenant.admin, used).json()["success"] is True
