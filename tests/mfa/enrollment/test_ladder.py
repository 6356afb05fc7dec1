"""The whole matrix: proof x situation x call, with the expected status of each cell.

U stands for the call's status for an unknown user: 404 where the specification has one, else 401.
"""

from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connections
from django.utils.timezone import now

from tenants.entering.context import in_tenant
from tests.mfa.enrollment.calls import CALLS, EnrollmentCall
from tests.mfa.people import TestUser, messages_to, new_user, some_phone
from tests.userflow.sessions.aged import aged, strong
from tests.world import Api, TestTenant
from userflow.accounts.models import EndUser

# The call's response to an unknown user; and 200, but 409 of the call that is for the first factor only.
U, R = -1, -2
SITUATIONS = ("fresh", "old", "enrolled", "inactive", "other tenant", "other address")
TABLE: dict[str, tuple[int, ...]] = {
    #                         fresh  old  enrolled inactive tenant address
    "nothing":               (200,   401, 401,     U,       U,     401),
    "forwarding header":     (401,   401, 401,     U,       U,     401),
    "ticket":                (200,   401, 401,     U,       U,     200),
    "ticket in the body":    (200,   401, 401,     U,       U,     200),
    "two tickets":           (400,   400, 400,     400,     400,   400),
    "unknown ticket":        (401,   401, 401,     U,       U,     401),
    "another user's ticket": (401,  401, 401,     U,       U,     401),
    "own token":             (200,   200, 401,     401,     403,   200),
    "own strong token":      (200,   200, R,       401,     403,   200),
    "own old token":         (401,   401, 401,     401,     403,   401),
    "own token, bad ticket": (401,   401, 401,     401,     403,   401),
    "broken token":          (401,   401, 401,     401,     401,   401),
    "another user's token": (403,   403, 403,     U,       403,   403),
    "admin":                 (403,   403, 403,     U,       403,   403),
    "admin of elsewhere":    (403,   403, 403,     403,     U,     403),
}  # fmt: skip
CELLS = [
    pytest.param(call, proof, situation, expected, id=f"{call}-{proof}-{situation}")
    for call in CALLS
    for proof, row in TABLE.items()
    for situation, expected in zip(SITUATIONS, row, strict=True)
]


_made: dict[UUID, tuple[TestUser, str]] = {}


def bystander(tenant: TestTenant) -> tuple[TestUser, str]:
    """Another user of the tenant, and that user's token."""
    if tenant.id not in _made:
        other = new_user(tenant)
        _made[tenant.id] = (other, other.token())
    return _made[tenant.id]


def headers_of(proof: str, person: TestUser, own: str, elsewhere: TestTenant) -> dict[str, str]:
    other, other_token = bystander(person.tenant)
    bearer: Callable[[str | None], dict[str, str]] = lambda token: {"Authorization": f"Bearer {token}"}  # noqa: E731
    ticket = {"X-Enrollment-Ticket": person.ticket}
    return {
        "forwarding header": {"X-Forwarded-For": person.api.address},
        "ticket": ticket,
        "two tickets": ticket,
        "unknown ticket": {"X-Enrollment-Ticket": "unknown"},
        "another user's ticket": {"X-Enrollment-Ticket": other.ticket},
        "own token": bearer(own),
        "own strong token": bearer(own and strong(own)),
        "own old token": bearer(own and aged(own, 16)),
        "own token, bad ticket": {**bearer(own), "X-Enrollment-Ticket": "unknown"},
        "broken token": {**bearer(other_token[:-4] + "AAAA"), **ticket},
        "another user's token": {**bearer(other_token), **ticket},
        "admin": bearer(person.tenant.api.token),
        "admin of elsewhere": bearer(elsewhere.api.token),
    }.get(proof, {})


def fields_of(proof: str, person: TestUser) -> dict[str, str]:
    if proof == "ticket in the body":
        return {"enrollment_ticket": person.ticket}
    return {"enrollment_ticket": "another"} if proof == "two tickets" else {}


RELATIONS = ("totp_secrets", "backup_codes", "phones", "sms_codes", "sms_messages", "passkeys")


@cache
def statement_of_stored() -> str:
    """One statement, as the matrix runs it a thousand times."""
    relations = [EndUser._meta.get_field(name) for name in RELATIONS]
    rows = [
        f"ARRAY(SELECT {columns} FROM {each.related_model._meta.db_table} WHERE {each.field.column} = u.id ORDER BY 1)"
        for each in relations
        for columns in ["(id, used_at, known_tries)::text" if each.name == "sms_codes" else "id::text"]
    ]
    return f"SELECT mfa_methods, {', '.join(rows)} FROM {EndUser._meta.db_table} u WHERE id = %s"


def stored(person: TestUser) -> Any:
    """All that an enrollment leaves behind."""
    with in_tenant(person.tenant.id), connections["tenant"].cursor() as cursor:
        cursor.execute(statement_of_stored(), [person.id])
        (found,) = cursor.fetchall()
    return found


@pytest.mark.parametrize(("name", "proof", "situation", "expected"), CELLS)
def test_enrollment_proof_matrix(
    tenant: TestTenant, other_tenant: TestTenant, name: str, proof: str, situation: str, expected: int
) -> None:
    call = CALLS[name]
    person = new_user(tenant)
    # A sign-in at another address closes the window, so only where the proof needs one.
    own = person.token() if proof.startswith("own") else ""
    by: dict[str, Any] = {"token": own} if own else {"headers": {"X-Enrollment-Ticket": person.ticket}}
    body = {**(person.named_with_client if call.needs_client else person.name), **fields_of(proof, person)}
    prepared = {} if own else call.prepare(person, **by)
    if situation == "enrolled":
        call.enrol(person, **by)
    body |= call.prepare(person, token=strong(own)) if own else prepared
    api = arrange(situation, person, body, other_tenant, call)
    headers = headers_of(proof, person, own, other_tenant)
    before = stored(person)
    response = api.post(call.path, body, headers=headers)
    if expected == R:
        expected = 409 if call.issues_tokens else 200
    assert response.status_code == (call.unknown if expected == U else expected), response.content
    if response.status_code != 200:
        assert stored(person) == before
        assert call.path != "/webauthn/sms/beginSetup" or not messages_to(body["phone_number"])


def arrange(situation: str, person: TestUser, body: dict[str, Any], elsewhere: TestTenant, call: EnrollmentCall) -> Api:
    """Create the situation; return the API client for the call."""
    if situation == "old":
        with in_tenant(person.tenant.id):
            user = EndUser.objects.get(pk=person.id)
            user.enrollment_windows.update(expires_at=now())
            user.tickets.update(expires_at=now())
    elif situation == "inactive":
        path = f"/uflow/user/enduser/{person.tenant.id}/{person.id}/status"
        assert person.tenant.api.put(path, {"active": False}).status_code == 200
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
def test_listing_limit_hides_known_users(tenant: TestTenant, path: str) -> None:
    ann, api = new_user(tenant).enrol_totp(), Api()
    assertion = {"id": "AAAA", "rawId": "AAAA", "type": "public-key", "response": {}}
    rest = {"phone_number": some_phone(), "code": "123456", "response": assertion, "credential": assertion}
    for _ in range(2):  # once more when the window of the limit ended meanwhile
        for n in range(settings.LIMITS["unknown_user"][0] + 1):
            api.post("/webauthn/totp/beginSetup", {**ann.name, "email": f"unknown-{n}@example.com"})
        known = api.post(f"/webauthn/{path}", {**ann.named_with_client, **rest})
        unknown = api.post(f"/webauthn/{path}", {**ann.named_with_client, **rest, "email": "unknown@example.com"})
        if known.status_code == unknown.status_code == 429:
            break
    assert (known.status_code, known.json()) == (unknown.status_code, unknown.json()) == (429, unknown.json())
