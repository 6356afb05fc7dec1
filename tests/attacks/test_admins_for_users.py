"""No admin can enroll a factor for a user, with any permission and a recent proof."""

import pytest

from tests.mfa.people import TestUser, new_user, some_phone
from tests.world import Api, TestTenant

CALLS = [
    "/webauthn/totp/beginSetup",
    "/webauthn/enduser/beginRegistration",
    "/webauthn/sms/beginSetup",
]


@pytest.fixture
def ann(tenant: TestTenant) -> TestUser:
    return new_user(tenant)


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize("by", ["tenant admin", "operator"])
def test_admin_enrolls_no_factor_for_an_end_user(
    tenant: TestTenant, operator: Api, ann: TestUser, path: str, by: str
) -> None:
    token = {"tenant admin": tenant.api.token, "operator": operator.token}[by]
    # Also from the user's own address: an invalid proof never falls back to the window.
    for api in (Api(token=token), Api(token=token, address=ann.api.address)):
        response = api.post(path, {**ann.named_with_client, "phone_number": some_phone()})
        assert response.status_code == 403, response.content
    assert ann.row().mfa_methods == []


def test_operator_enrolls_no_factor_for_an_admin(tenant: TestTenant, operator: Api) -> None:
    for path in ("/webauthn/admin/totp/beginSetup", "/webauthn/admin/beginRegistration"):
        assert operator.post(path, {"email": tenant.admin.email}).status_code == 403
