"""The whole matrix: proof x situation x call, with the expected answer of each cell written down.

U stands for the call's answer to an unknown user: 404 where the specification has one, else 401.
"""

import secrets
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.utils.timezone import now

from tenants.context import in_tenant
from tests.mfa.enrollment.calls import CALLS, EnrollmentCall
from tests.mfa.people import Somebody, messages_to, some_phone, somebody
from tests.userflow.tokens.aged import aged
from tests.world import PASSWORD, Api, House, sign_in_admin
from userflow.admins.actions import create_admin_user
from userflow.endusers.models import EndUser

U = -1
SITUATIONS = ("fresh", "old", "enrolled", "inactive", "other tenant", "other address")
TABLE: dict[str, tuple[int, ...]] = {
    #                         fresh  old  enrolled inactive tenant address
    "nothing":               (200,   401, 401,     U,       U,     401),
    "ticket":                (200,   401, 401,     U,       U,     200),
    "somebody else's ticket": (401,  401, 401,     U,       U,     401),
    "own token":             (200,   200, 200,     401,     403,   200),
    "own old token":         (401,   401, 401,     401,     403,   401),
    "broken token":          (401,   401, 401,     401,     401,   401),
    "somebody else's token": (403,   403, 403,     U,       403,   403),
    "admin":                 (200,   200, 200,     U,       403,   200),
    "admin without right":   (403,   403, 403,     U,       403,   403),
    "admin of elsewhere":    (403,   403, 403,     403,     U,     403),
}  # fmt: skip
CELLS = [
    pytest.param(call, proof, situation, expected, id=f"{call}-{proof}-{situation}")
    for call in CALLS
    for proof, row in TABLE.items()
    for situation, expected in zip(SITUATIONS, row, strict=True)
]


_made: dict[UUID, tuple[Somebody, str, str]] = {}


def bystanders(house: House) -> tuple[Somebody, str, str]:
    """Somebody else of the tenant, their token, and the token of an admin who may only read."""
    if house.id not in _made:
        other = somebody(house)
        name = f"auditor-{secrets.token_hex(4)}"
        create_admin_user(
            tenant_id=house.id, username=name, email=f"{name}@example.com", password=PASSWORD, roles=["auditor"]
        )
        _made[house.id] = (other, other.token(), sign_in_admin(name)["access_token"])
    return _made[house.id]


def headers_of(proof: str, person: Somebody, own_token: str, elsewhere: House) -> dict[str, str]:
    other, other_token, auditor = bystanders(person.house)
    bearer: Callable[[str | None], dict[str, str]] = lambda token: {"Authorization": f"Bearer {token}"}  # noqa: E731
    return {
        "nothing": {},
        "ticket": {"X-Enrollment-Ticket": person.ticket},
        "somebody else's ticket": {"X-Enrollment-Ticket": other.ticket},
        "own token": bearer(own_token),
        "own old token": bearer(aged(own_token, 16)),
        "broken token": {**bearer(own_token[:-4] + "AAAA"), "X-Enrollment-Ticket": person.ticket},
        "somebody else's token": {**bearer(other_token), "X-Enrollment-Ticket": person.ticket},
        "admin": bearer(person.house.api.token),
        "admin without right": bearer(auditor),
        "admin of elsewhere": bearer(elsewhere.api.token),
    }[proof]


def stored(person: Somebody) -> Any:
    """All that an enrollment leaves behind."""
    with in_tenant(person.house.id):
        user = EndUser.objects.get(pk=person.id)
        relations = ("totp_secrets", "backup_codes", "phones", "sms_codes", "sms_messages", "passkeys")
        rows = {name: sorted(str(row.pk) for row in getattr(user, name).all()) for name in relations}
        return user.mfa_methods, rows, list(user.sms_codes.values_list("used_at", "known_tries"))


@pytest.mark.parametrize(("name", "proof", "situation", "expected"), CELLS)
def test_every_cell(house: House, other_house: House, name: str, proof: str, situation: str, expected: int) -> None:
    call = CALLS[name]
    person = somebody(house)
    own_token = person.token()
    if situation == "enrolled":
        call.enrol(person, token=own_token)
    body = {**(person.named_with_client if call.needs_client else person.name), **call.prepare(person)}
    api = arrange(situation, person, body, other_house, call)
    headers = headers_of(proof, person, own_token, other_house)
    before = stored(person)
    answer = api.post(call.path, body, headers=headers)
    assert answer.status_code == (call.unknown if expected == U else expected), answer.content
    if answer.status_code != 200:
        assert stored(person) == before
        assert call.path != "/webauthn/sms/beginSetup" or not messages_to(body["phone_number"])


def arrange(situation: str, person: Somebody, body: dict[str, Any], elsewhere: House, call: EnrollmentCall) -> Api:
    """Bring the situation about; gives the door that the call goes through."""
    if situation == "old":
        with in_tenant(person.house.id):
            user = EndUser.objects.get(pk=person.id)
            user.enrollment_windows.update(expires_at=now())
            user.tickets.update(expires_at=now())
    elif situation == "inactive":
        path = f"/uflow/user/enduser/{person.house.id}/{person.id}/status"
        assert person.house.api.put(path, {"active": False}).status_code == 200
    elif situation == "other tenant":
        body["tenant_id"] = str(elsewhere.id)
        if call.needs_client:
            body["client_id"] = str(elsewhere.client_id)
    return Api() if situation == "other address" else person.api


@pytest.mark.parametrize(
    "path",
    [
        "totp/beginSetup",
        "totp/verify",
        "sms/beginSetup",
        "sms/verify",
        "enduser/beginRegistration",
        "enduser/finishAuthentication",
        "finishRegistration",
    ],
)
def test_whoever_has_asked_for_too_many_strangers_learns_nothing_more(house: House, path: str) -> None:
    ann, door = somebody(house).enrol_totp(), Api()
    assertion = {"id": "AAAA", "rawId": "AAAA", "type": "public-key", "response": {}}
    rest = {"phone_number": some_phone(), "code": "123456", "response": assertion, "credential": assertion}
    for _ in range(2):  # once more when the window of the limit ended meanwhile
        for n in range(settings.LIMITS["unknown_user"][0] + 1):
            door.post("/webauthn/totp/beginSetup", {**ann.name, "email": f"nobody-{n}@example.com"})
        known = door.post(f"/webauthn/{path}", {**ann.named_with_client, **rest})
        unknown = door.post(f"/webauthn/{path}", {**ann.named_with_client, **rest, "email": "nobody@example.com"})
        if known.status_code == unknown.status_code == 429:
            break
    assert (known.status_code, known.json()) == (unknown.status_code, unknown.json()) == (429, unknown.json())
