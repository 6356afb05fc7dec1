"""sdk/typescript on Node.js signs users in and out, keeps their tokens, and reads errors."""

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import pytest

from tests.mfa.people import code_to, new_user, wrong_code
from tests.sdk.test_python_client import CALLS, FORMATS
from tests.sdk.workspace import Workspace
from tests.userflow.mailbox import mails_to, token_in
from tests.userflow.sessions.clients import make_client
from tests.userflow.sessions.test_suspended_tenants import set_state
from tests.world import PASSWORD, Api, TestTenant

pytestmark = pytest.mark.needs("node")
Run = Callable[..., Any]


@pytest.fixture
def run(workspace: Workspace, base: str, tenant: TestTenant) -> Run:
    """`run(flow, email, answer, **more)` returns the result of a flow."""
    named = {"base": base, "tenant_id": str(tenant.id), "client_id": str(tenant.client_id), "password": PASSWORD}

    def run(flow: str, email: str = "", answer: Callable[[str], str] = str, **more: str) -> Any:
        return workspace.run_flow({"flow": flow, "email": email, **named, **more}, answer)

    return run


def test_every_code_is_a_second_step(run: Run, tenant: TestTenant) -> None:
    person = new_user(tenant).enrol_totp()
    session = person.sign_in(person.api).json()["mfa_token"]
    body = {**person.name, "backup_code": person.backup_codes.pop(), "mfa_token": session}
    token = person.api.post("/webauthn/totp/verifyLogin", body).json()["access_token"]
    person.enrol_phone(token=token)

    answers = {
        "wrong code": lambda: wrong_code(person.secret),
        "code": lambda: person.code(1),
        "backup code": person.backup_codes.pop,
        "sent code": lambda: code_to(person.phone),
    }
    result = run("secondSteps", person.email, lambda question: answers[question]())
    assert set(result["methods"]) == {"totp", "sms", "backup_code"}
    assert result["error"] == {
        "name": "ApiError",
        "status": 400,
        "message": "Invalid verification code",
        "has_id": True,
    }
    assert (result["emails"], result["afterwards"]) == ([person.email] * 3, "SignedOut")


@pytest.mark.parametrize("cause", ["expired", "rejected"])
def test_parallel_calls_refresh_once(run: Run, tenant: TestTenant, cause: str) -> None:
    person = tenant.register()
    # Saved by the sign-in and the refresh.
    expected = {"emails": [person.email], "calls": CALLS, "refreshes": 1, "saved": 2}
    assert run("refreshRace", person.email, cause=cause) == expected


def test_failed_refresh_signs_out(run: Run, tenant: TestTenant) -> None:
    person = tenant.register()

    def end_sessions(question: str) -> str:
        assert tenant.api.delete(f"/authmgr/sessions?user_id={person.id}").status_code == 200
        return ""

    result = run("failedRefresh", person.email, end_sessions)
    assert result == {"names": ["SignedOut"], "refreshes": 1, "signedOut": 1, "is_signed_in": False}


def test_unavailable_platform_signs_no_user_out(run: Run) -> None:
    errors = ["ApiError 503 service_unavailable 7"]
    assert run("unavailable") == {"asked": ["/authmgr/token"], "errors": errors, "is_signed_in": True}


def test_suspended_tenant_signs_no_user_out(run: Run, new_tenant: Callable[[], TestTenant]) -> None:
    tenant = new_tenant()
    person, named = tenant.register(), {"tenant_id": str(tenant.id), "client_id": str(tenant.client_id)}

    def change(state: str) -> str:
        set_state(tenant, state)
        return ""

    error = {"name": "ApiError", "status": 400, "code": "tenant_suspended"}
    result = run("suspendedTenant", person.email, change, **named)
    assert result == {"error": error, "signedOut": 0, "email": person.email}


def test_refresh_does_not_undo_a_sign_out(run: Run) -> None:
    assert run("signOutDuringRefresh") == {"token": "b", "is_signed_in": False}


def test_step_up_raises_the_session(run: Run, tenant: TestTenant) -> None:
    person = new_user(tenant)

    def enroll(question: str) -> str:
        return " ".join(person.enrol_totp(token=question.removeprefix("enroll with ")).backup_codes[:2])

    error = {"name": "StepUpRequired", "maxAge": 900, "acrValues": "aal2"}
    expected = {"error": error, "untouched": 0, "codes": 10, "email": person.email}
    assert run("stepUp", person.email, enroll) == expected


def test_forgotten_password_is_reset(run: Run, tenant: TestTenant) -> None:
    person = tenant.register()
    result = run("forgottenPassword", person.email, lambda _: token_in(mails_to(person.email, "new password")[-1]))
    assert result == {"error": {"name": "ApiError", "status": 401}, "step": None}


def test_every_format_of_errors(run: Run) -> None:
    responses = [
        {
            "status": status,
            "phrase": HTTPStatus(status).phrase,
            "body": body if isinstance(body, str) else json.dumps(body),
        }
        for status, body, *_ in FORMATS
    ]
    fields = {"requestId": "r1", "retryAfter": None}
    expected = [
        {"code": code, "message": message, "details": details, **fields} for *_, code, message, details in FORMATS
    ]
    assert run("errors", responses=json.dumps(responses)) == expected


def test_secrets_and_sessions_are_safe(workspace: Workspace) -> None:
    results = json.loads(workspace.run("safety.ts"))
    assert len(results) == 15
    assert {name: error for name, error in results.items() if error} == {}


def test_back_end_gets_tokens_and_reads_credentials(run: Run, tenant: TestTenant, service: str) -> None:
    client = make_client(tenant)

    def revoke(question: str) -> str:
        assert Api(token=question.removeprefix("revoke ")).post("/authmgr/logout", {}).status_code == 200
        return ""

    result = run(
        "backEnd", "", revoke, confidential=client["client_id"], secret=client["client_secret"], service=service
    )
    assert (result["statuses"], result["once"], result["twice"]) == ([200] * 4, 1, 2)
    assert (result["value"], result["baseUrl"]) == ({"key": "sk-0815"}, "https://pay.example.com")
    assert (result["metadata"], result["missing"]) == ({"region": "eu"}, ["IdentityError"] * 2)
    assert result["errors"] == [[401, "invalid_client"], [400, "invalid_scope"], [403, "FORBIDDEN"]]
