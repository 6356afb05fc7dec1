"""Each one-time object under parallel uses: exactly one winner, no 500; and how many parallel guesses are compared."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyotp
import pytest

from identity_platform.audit.models import TenantEvent
from mfa.sms.models import SmsCode
from tenants.entering.context import in_tenant
from tests.mfa.people import TestUser, code_to, new_user, some_phone
from tests.parallel import ROUNDS, run_concurrently
from tests.userflow.sessions.aged import proof_token, strong
from tests.world import Api, TestTenant

AT_ONCE = 8


def statuses_of(calls: Sequence[Callable[[], Any]]) -> list[int]:
    """The statuses of calls that start together."""
    return [int(response.status_code) for response in run_concurrently(calls)]


def one_winner(statuses: list[int]) -> bool:
    return statuses.count(200) == 1 and max(statuses) < 500


def post(path: str, body: dict[str, Any], **how: Any) -> Callable[[], Any]:
    api = how.pop("api", None)
    return lambda: (api or Api()).post(path, body, **how)


@pytest.fixture(scope="module")
def ann(tenant: TestTenant, django_db_blocker: Any) -> TestUser:
    """One user for the rounds, so that they cost no hash each."""
    with django_db_blocker.unblock():
        person = new_user(tenant)
        token = person.token()
        person.enrol_totp(token=token)
        person.ticket = strong(token)
        return person


def fresh_codes(ann: TestUser) -> list[str]:
    body = {**ann.name, "proof_token": proof_token(ann.ticket)}
    response = Api(token=ann.ticket).post("/webauthn/totp/regenerateBackupCodes", body)
    assert response.status_code == 200, response.content
    return list(response.json()["backup_codes"])


def test_backup_code_has_one_winner(ann: TestUser) -> None:
    codes: list[str] = []
    for _ in range(ROUNDS):
        codes = codes or fresh_codes(ann)
        body = {**ann.name, "backup_code": codes.pop()}
        # With a token of the user and without: two budgets of tries, one code.
        half = AT_ONCE // 2
        calls = [post("/webauthn/totp/verify", body)] * half
        calls += [post("/webauthn/totp/verify", body, token=ann.ticket)] * half
        assert one_winner(statuses_of(calls))
        ann.locks_end()


def test_totp_step_has_one_winner(ann: TestUser) -> None:
    for _ in range(ROUNDS):
        ann.minutes_pass(5)
        calls = [post("/webauthn/totp/verify", {**ann.name, "code": ann.code()})] * AT_ONCE
        assert one_winner(statuses_of(calls))
        ann.locks_end()


def test_login_ticket_has_one_winner(ann: TestUser) -> None:
    from userflow.accounts.realms import END_USERS
    from userflow.credentials import tickets

    codes: list[str] = []
    for _ in range(ROUNDS):
        if len(codes) < AT_ONCE:
            codes = fresh_codes(ann)
        with in_tenant(ann.tenant.id):
            token = tickets.issue_ticket(
                END_USERS, ann.row(), tickets.SECOND_STEP, client_id=ann.tenant.client_id, amr=("pwd",)
            )
        # Each with a code of its own that is right: only the ticket decides.
        calls = [
            post("/webauthn/totp/verifyLogin", {**ann.name, "mfa_token": token, "backup_code": codes.pop()})
            for _ in range(5)
        ]
        assert one_winner(statuses_of(calls))
        ann.locks_end()


def test_sms_code_has_one_winner(settings: Any, tenant: TestTenant) -> None:
    settings.SMS_LIMITS = {**settings.SMS_LIMITS, "number_hour": (1000, 3600), "number_day": (1000, 86400)}
    ann = new_user(tenant).enrol_phone()
    for _ in range(ROUNDS):
        Api().post("/webauthn/sms/requestCode", ann.named_with_client)
        body = {**ann.named_with_client, "code": code_to(ann.phone)}
        assert one_winner(statuses_of([post("/webauthn/sms/verify", body)] * AT_ONCE))
        ann.minutes_pass(200)
        ann.locks_end()


@pytest.mark.parametrize("proof", ["window", "ticket"])
def test_window_and_ticket_enroll_one_factor_of_a_kind(tenant: TestTenant, proof: str) -> None:
    for _ in range(ROUNDS):
        ann = new_user(tenant)
        headers = {"X-Enrollment-Ticket": ann.ticket} if proof == "ticket" else {}
        secrets = [ann.api.post("/webauthn/totp/beginSetup", ann.name).json()["secret"] for _ in range(3)]
        calls = [
            post(
                "/webauthn/totp/confirmSetup",
                {**ann.name, "secret": secret, "code": pyotp.TOTP(secret).now()},
                headers=headers,
                api=ann.api if proof == "window" else Api(),
            )
            for secret in secrets * 3
        ]
        assert one_winner(statuses_of(calls))
        assert ann.row().mfa_methods == ["totp", "backup_code"]


def test_phone_is_confirmed_by_one_of_two_users(tenant: TestTenant) -> None:
    for _ in range(5):
        phone, people = some_phone(), [new_user(tenant), new_user(tenant)]
        calls = []
        for person in people:
            body = {**person.named_with_client, "phone_number": phone}
            assert person.api.post("/webauthn/sms/beginSetup", body).status_code == 200
            calls.append(post("/webauthn/sms/confirmSetup", {**body, "code": code_to(phone)}, api=person.api))
        assert sorted(statuses_of(calls)) == [200, 400]


def test_parallel_begins_leave_three_pending_secrets(tenant: TestTenant) -> None:
    ann = new_user(tenant)
    statuses = Counter(statuses_of([post("/webauthn/totp/beginSetup", ann.name, api=ann.api)] * 12))
    assert statuses == {200: 3, 429: 9}


def test_parallel_requests_send_one_message(tenant: TestTenant) -> None:
    ann = new_user(tenant).enrol_phone()
    statuses = Counter(statuses_of([post("/webauthn/sms/requestCode", ann.named_with_client)] * 12))
    assert statuses == {200: 1, 429: 11}


def looked_at(person: TestUser) -> int:
    """Wrong codes that were compared: each of them left a row in the trail."""
    with in_tenant(person.tenant.id):
        return TenantEvent.objects.filter(target_id=str(person.id), action="factor.refused").count()


def test_five_of_sixty_parallel_guesses_are_compared(tenant: TestTenant) -> None:
    ann = new_user(tenant).enrol_totp()
    near = {ann.code(steps) for steps in range(-3, 8)}
    guesses = [guess for guess in (f"{number:06d}" for number in range(100)) if guess not in near][:60]
    calls = [post("/webauthn/totp/verify", {**ann.name, "code": guess}) for guess in guesses]
    statuses = Counter(status for start in range(0, 60, 20) for status in statuses_of(calls[start : start + 20]))
    assert statuses == {400: 5, 429: 55}
    assert looked_at(ann) == 5


def test_five_of_sixty_parallel_sms_guesses_are_compared(tenant: TestTenant) -> None:
    ann = new_user(tenant).enrol_phone()
    Api().post("/webauthn/sms/requestCode", ann.named_with_client)
    right = int(code_to(ann.phone))
    calls = [
        post("/webauthn/sms/verify", {**ann.named_with_client, "code": f"{(right + number) % 1_000_000:06d}"})
        for number in range(1, 61)
    ]
    statuses = Counter(status for start in range(0, 60, 20) for status in statuses_of(calls[start : start + 20]))
    assert max(statuses) < 500
    assert statuses[200] == 0
    with in_tenant(tenant.id):
        assert SmsCode.objects.get(user_id=ann.id, purpose="verification").stranger_tries == 5
