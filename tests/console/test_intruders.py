"""Attacks on the sign-in and sessions of the console."""

import logging
from collections import Counter
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from django.db.models import F
from django.test import Client
from django.utils.timezone import now
from structlog.stdlib import ProcessorFormatter

from tests.console.staff import Staff, new_operator, new_tenant_admin
from tests.console.test_own_sign_in import answered
from tests.mfa.people import wrong_code
from tests.mfa.webauthn.passkeys import new_authenticator
from tests.parallel import run_concurrently
from tests.world import Api, TestTenant, capture_statements, new_client, unique_ip
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION

AT_ONCE = 6


def same_browser(staff: Staff) -> Client:
    """Another tab of the user's browser."""
    tab = new_client(REMOTE_ADDR=unique_ip())
    tab.cookies.load({name: morsel.value for name, morsel in staff.browser.cookies.items()})
    return tab


def test_concurrent_codes_open_one_session() -> None:
    staff = new_operator().enrol_totp()
    staff.send_password()
    codes = [{"backup_code": code} for code in staff.backup_codes[:AT_ONCE]]
    tabs = [same_browser(staff) for _ in codes]
    run_concurrently(
        [lambda t=tab, c=code: t.post("/admin/second-step/", c) for tab, code in zip(tabs, codes, strict=True)]
    )
    assert Counter(tab.get("/admin/").status_code for tab in tabs) == {200: 1, 302: AT_ONCE - 1}
    assert staff.row().sessions.filter(ended_at=None, amr__contains=["otp"]).count() == 1


def test_wrong_codes_end_the_pending_sign_in_only() -> None:
    staff = new_operator().enrol_totp()
    staff.send_password()
    wrong = wrong_code(staff.secret)
    for _ in range(4):
        assert staff.post("/admin/second-step/", {"code": f"{wrong[:3]} {wrong[3:]}"}).status_code == 400
    assert staff.post("/admin/second-step/", {"code": wrong}).headers["Location"] == "/admin/login/?next=%2Fadmin%2F"
    assert staff.get("/admin/second-step/").headers["Location"] == "/admin/login/"
    staff.send_password()
    assert staff.post("/admin/second-step/", {"code": staff.code()}).headers["Location"] == "/admin/"
    assert staff.get("/admin/").status_code == 200


def test_wrong_reauthentication_locks() -> None:
    staff = new_operator().sign_in()
    for _ in range(5):
        assert staff.post("/admin/reauthenticate/", {"password": "wrong wrong"}).status_code == 400
    locked = staff.post("/admin/reauthenticate/", {"password": staff.password})
    assert locked.status_code == 429
    assert int(locked.headers["Retry-After"]) > 0


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example/admin/",
        "/\\evil.example",
        "/admin/\\evil",
        "/docs/",
        "javascript:alert(1)",
    ],
)
def test_next_path_stays_in_the_console(elsewhere: str) -> None:
    staff = new_operator()
    assert staff.send_password(elsewhere).headers["Location"] == "/admin/"
    body = {"password": staff.password, "next": elsewhere}
    assert staff.post("/admin/reauthenticate/", body).headers["Location"] == "/admin/"
    assert staff.get("/admin/login/", next=elsewhere).headers["Location"] == "/admin/"


def test_planted_session_key_is_replaced() -> None:
    staff = new_operator().enrol_totp()
    seen = []
    for step in (
        lambda: staff.send_password(),
        lambda: staff.post("/admin/second-step/", {"code": staff.code()}),
        lambda: staff.post("/admin/reauthenticate/", {"code": staff.code()}),
    ):
        step()
        seen.append(staff.browser.cookies[settings.SESSION_COOKIE_NAME].value)
    assert len(set(seen)) == 3
    for old in seen[:2]:
        thief = new_client(REMOTE_ADDR=unique_ip())
        thief.cookies[settings.SESSION_COOKIE_NAME] = old
        assert thief.get("/admin/").status_code == 302


@pytest.mark.parametrize(
    "said", ["[" * 5000, '{"a":' * 5000, '{"id": NaN}', '{"a": 1, "a": 2}', "7", "\\", '"\\ud800"']
)
def test_passkey_response_must_be_an_object(said: str) -> None:
    response = new_client(REMOTE_ADDR=unique_ip()).post("/admin/login/", {"credential": said})
    assert response.status_code == 400
    assert "was not understood" in response.content.decode()


def test_unknown_wrong_and_inactive_get_same_response() -> None:
    staff, gone, unknown = new_operator(), new_operator(), new_operator()
    gone.row().__class__.objects.filter(pk=gone.id).update(active=False)
    unknown.username = f"no-such-user-{staff.id.hex}"
    responses = [
        staff.send_password(password="wrong wrong"),
        gone.send_password(),
        unknown.send_password(),
    ]
    assert {response.status_code for response in responses} == {400}
    assert all("The username or password is incorrect" in response.content.decode() for response in responses)


def test_ending_the_session_elsewhere_ends_it_here(operator: Api) -> None:
    staff = new_operator().sign_in()
    session = staff.browser.session["console_session"]
    listed = Api(token=staff.api_token()).get("/authmgr/sessions").json()["sessions"]
    assert session in [row["id"] for row in listed]
    assert operator.delete(f"/authmgr/sessions/{session}").status_code == 200
    assert staff.get("/admin/").headers["Location"].startswith("/admin/login/")
    assert "session has ended" in staff.get("/admin/login/").content.decode()


def test_signing_out_everywhere_ends_the_console_too() -> None:
    staff = new_operator().sign_in()
    assert Api(token=staff.api_token()).post("/authmgr/logout", {"all": True}).status_code == 200
    assert staff.get("/admin/").status_code == 302


def test_deactivated_admin_is_signed_out_at_once(operator: Api) -> None:
    staff = new_operator().sign_in()
    assert operator.delete(f"/uflow/admin/users/{staff.id}").status_code == 200
    assert staff.get("/admin/").status_code == 302


def test_resetting_the_factors_ends_the_session(operator: Api) -> None:
    staff = new_operator().enrol_totp().sign_in()
    body = {"user_id": str(staff.id), "reason": "lost phone"}
    assert operator.post("/webauthn/admin/factors/reset", body).status_code == 200
    assert staff.get("/admin/").status_code == 302
    assert not staff.row().sessions.filter(ended_at=None).exclude(amr=["pwd"]).exists()


def test_admins_of_suspended_tenant_are_signed_out(new_tenant: Any) -> None:
    tenant = new_tenant()
    staff = new_tenant_admin(tenant).sign_in()
    call_command("suspend_tenant", tenant.slug)
    assert staff.get("/admin/").status_code == 302
    refused = staff.send_password()
    assert refused.status_code == 400
    assert "suspended" not in refused.content.decode()


def test_idle_sessions_end() -> None:
    staff = new_operator().sign_in()
    row = staff.row().sessions.filter(pk=staff.browser.session["console_session"])
    row.update(last_used_at=F("last_used_at") - timedelta(minutes=59))
    assert staff.get("/admin/").status_code == 200
    row.update(last_used_at=F("last_used_at") - timedelta(minutes=2))
    assert staff.get("/admin/").status_code == 302


def test_console_use_extends_the_idle_limit_only() -> None:
    staff = new_operator().sign_in()
    row = staff.row().sessions.filter(pk=staff.browser.session["console_session"])
    row.update(
        last_used_at=F("last_used_at") - timedelta(minutes=30), created_at=F("created_at") - timedelta(hours=11.5)
    )
    session = staff.browser.session
    session["console_seen"] -= 61
    session.save()
    assert staff.get("/admin/").status_code == 200
    used = row.get()
    assert used.last_used_at > now() - timedelta(minutes=1)
    assert (used.expires_at - used.created_at) == timedelta(hours=12)
    row.update(created_at=F("created_at") - timedelta(minutes=31))
    assert staff.get("/admin/").status_code == 302


def test_console_session_tokens_are_not_stored() -> None:
    staff = new_operator().sign_in()
    row = staff.row().sessions.get(pk=staff.browser.session["console_session"])
    assert row.refresh_tokens.count() == 0


def test_pending_sign_in_opens_no_page(tenant: TestTenant) -> None:
    for staff in (new_operator().enrol_totp(), new_tenant_admin(tenant).enrol_totp()):
        staff.send_password()
        for path in ("/admin/", "/admin/my-sign-in/", "/admin/my-sign-in/app/", "/admin/password_change/"):
            assert staff.get(path).headers["Location"].startswith("/admin/login/")
        assert staff.post("/admin/passkey-options/", {"stage": "reauthenticate"}).status_code == 403


def test_request_reads_user_in_one_statement(tenant: TestTenant) -> None:
    for staff in (new_operator().sign_in(), new_tenant_admin(tenant).sign_in()):
        staff.get("/admin/password_change/")
        with capture_statements() as seen:
            assert staff.get("/admin/password_change/").status_code == 200
        about_people = [sql for sql in seen.default if "userflow_" in sql]
        assert len(about_people) == 1
        # And the session of the cookie; the header shows a tenant admin's tenant.
        assert len(seen.default) == (3 if staff.tenant_id else 2)


def test_session_table_allows_no_takeover() -> None:
    staff = new_operator().enrol_totp()
    staff.send_password()
    waiting = staff.browser.session["console_pending"]["ticket"]
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT session_key, session_data FROM console_browsersession")
        rows = cursor.fetchall()
    name = staff.browser.cookies[settings.SESSION_COOKIE_NAME].value
    assert rows
    for key, data in rows:
        assert name not in key
        assert waiting not in data
        thief = new_client(REMOTE_ADDR=unique_ip())
        thief.cookies[settings.SESSION_COOKIE_NAME] = key
        assert thief.get("/admin/second-step/").headers["Location"] == "/admin/login/"


def test_expired_browser_sessions_are_deleted() -> None:
    from console.signin.models import BrowserSession
    from console.signin.store import _hashed

    staff = new_operator().sign_in()
    rows = BrowserSession.objects.filter(session_key=_hashed(staff.browser.cookies[settings.SESSION_COOKIE_NAME].value))
    assert rows.update(expire_date="2020-01-01T00:00Z") == 1
    with pytest.raises(SystemExit, match=r"^0$"):
        call_command("purge_expired", "platform", stdout=StringIO())
    assert not rows.exists()


def test_logs_contain_no_search_words(caplog: pytest.LogCaptureFixture) -> None:
    operator = new_operator(*EVERY_PERMISSION).sign_in()
    (handler,) = [one for one in logging.getLogger().handlers if isinstance(one.formatter, ProcessorFormatter)]
    refused = operator.get("/admin/userflow/adminuser/", q="ann@example.com", x__y="ann@example.com")
    assert refused.status_code in (302, 400)
    forged = Client(enforce_csrf_checks=True).post("/admin/login/?next=/admin/ann@example.com/", {})
    assert forged.status_code == 403
    lines = [handler.format(record) for record in caplog.records]
    assert len(lines) >= 2
    assert not [line for line in lines if "ann@" in line or "ann%40" in line]


@pytest.mark.parametrize("required", [True, False])
def test_password_sign_in_of_an_operator_opens_no_window(settings: Any, required: bool) -> None:
    settings.EMBEDDED, settings.OPERATORS_REQUIRE_FACTOR = False, required
    operator = new_operator()
    assert operator.send_password().status_code == 302
    neighbor = Api(address=operator.browser.defaults["REMOTE_ADDR"])
    for path in ("totp/beginSetup", "beginRegistration"):
        begun = neighbor.post(f"/webauthn/admin/{path}", {"email": operator.email})
        assert begun.status_code == 401, begun.content
    assert operator.row().mfa_methods == []
    assert operator.row().enrollment_windows.count() == 0


def test_passkey_of_a_window_does_not_open_the_console(settings: Any) -> None:
    settings.EMBEDDED = True
    operator = new_operator().sign_in()
    neighbor, key = Api(address=operator.browser.defaults["REMOTE_ADDR"]), new_authenticator()
    whom = {"email": operator.email}
    options = neighbor.post("/webauthn/admin/beginRegistration", whom)
    assert options.status_code == 200, options.content
    body = {**whom, "credential": key.create(options.json())}
    assert neighbor.post("/webauthn/admin/finishRegistration", body).status_code == 200
    thief = Staff(operator.username, operator.email, operator.id, None)
    assert thief.post("/admin/login/", answered(thief, key, "sign_in")).status_code == 400
    assert thief.get("/admin/").status_code == 302
