"""No admin enrolls a factor for a user, with whatever permission and however fresh the session is."""

import pytest

from tests.mfa.people import Somebody, some_phone, somebody
from tests.world import Api, House

CALLS = [
    "/webauthn/totp/beginSetup",
    "/webauthn/enduser/beginRegistration",
    "/webauthn/sms/beginSetup",
]


@pytest.fixture
def ann(house: House) -> Somebody:
    return somebody(house)


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize("by", ["tenant admin", "operator"])
def test_admin_enrolls_no_factor_for_an_end_user(
    house: House, operator: Api, ann: Somebody, path: str, by: str
) -> None:
    token = {"tenant admin": house.api.token, "operator": operator.token}[by]
    # From the user's own address, too: a proof that is sent never falls through to the window.
    for door in (Api(token=token), Api(token=token, address=ann.api.address)):
        answer = door.post(path, {**ann.named_with_client, "phone_number": some_phone()})
        assert answer.status_code == 403, answer.content
    assert ann.row().mfa_methods == []


def test_operator_enrolls_no_factor_for_an_admin(house: House, operator: Api) -> None:
    for path in ("/webauthn/admin/totp/beginSetup", "/webauthn/admin/beginRegistration"):
        assert operator.post(path, {"email": house.admin.email}).status_code == 403
