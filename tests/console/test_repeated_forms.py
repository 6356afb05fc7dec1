"""A form of the console that the same browser sends twice: processed once, with the same response for both."""

import copy
import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connections
from django.test import Client as Browser

from mfa.totp.models import AdminBackupCode
from tests.console.people.browsing import USERS, operator_in
from tests.console.platform.test_admins import form as admin_form
from tests.console.platform.test_clients import at, token_status
from tests.console.staff import LOGIN, Staff, new_operator, new_tenant_admin
from tests.console.test_own_sign_in import MINE, confirm_identity
from tests.mfa.people import wrong_code
from tests.userflow.mailbox import mails_to
from tests.world import TestTenant, new_client, unique_ip
from userflow.accounts.models import AdminUser, Client

ADD_CLIENT = "/admin/userflow/client/add/web/"
INVITE = "/admin/inside/invitations/new/"
IMPORT = "/admin/inside/people/import/"
SECOND_STEP = "/admin/second-step/"

both_orders = pytest.mark.parametrize("at_once", [False, True], ids=["one-after-the-other", "at-once"])


@pytest.fixture
def head(tenant: TestTenant) -> Staff:
    return new_tenant_admin(tenant).sign_in()


def hidden_fields(page: Any) -> dict[str, str]:
    """The hidden fields of a page, the token of its forms among them."""
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page.text))
    assert "csrfmiddlewaretoken" in fields
    return fields


def client_form(head: Staff, name: str = "") -> dict[str, str]:
    return {
        **hidden_fields(head.get(ADD_CLIENT)),
        "name": name or f"Client {secrets.token_hex(5)}",
        "scopes": "services:read",
    }


def browser_with_cookies_of(staff: Staff) -> Browser:
    browser = new_client(REMOTE_ADDR=unique_ip())
    browser.cookies = copy.deepcopy(staff.browser.cookies)
    return browser


def post_twice(staff: Staff, path: str, body: dict[str, str], *, at_once: bool) -> list[Any]:
    """Send a form twice with the cookies of now, as a double click does; return both responses."""

    def send(browser: Browser) -> Any:
        try:
            return browser.post(path, body)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2 if at_once else 1) as threads:
        responses = list(threads.map(send, [staff.browser, browser_with_cookies_of(staff)]))
    first, second = ((page.status_code, page.content, dict(page.items()), str(page.cookies)) for page in responses)
    # Set by the outermost middleware for each request.
    assert first[2].pop("X-Request-ID") != second[2].pop("X-Request-ID")
    assert first == second
    return responses


@both_orders
def test_second_step_signs_in_with_both_clicks(at_once: bool) -> None:
    operator = new_operator().enrol_totp()
    operator.send_password()
    body = {**hidden_fields(operator.get(SECOND_STEP)), "code": operator.code()}
    responses = post_twice(operator, SECOND_STEP, body, at_once=at_once)
    assert [page.headers["Location"] for page in responses] == ["/admin/"] * 2
    operator.browser.cookies = responses[1].cookies
    assert operator.get("/admin/").status_code == 200


@both_orders
def test_set_up_app_shows_backup_codes_to_both_clicks(at_once: bool) -> None:
    operator = new_operator().sign_in()
    confirm_identity(operator)
    body = hidden_fields(operator.post(f"{MINE}app/"))
    operator.secret = body["secret"]
    page = post_twice(operator, f"{MINE}app/", {**body, "code": operator.code()}, at_once=at_once)[1]
    assert len(set(re.findall(r"<code>([0-9A-Z-]{19})</code>", page.text))) == 10


@both_orders
def test_new_backup_codes_are_those_of_both_clicks(at_once: bool) -> None:
    operator = new_operator().enrol_totp().sign_in()
    operator.time_passes(1)
    confirm_identity(operator)
    path, body = f"{MINE}backup-codes/", hidden_fields(operator.get(MINE))
    page = post_twice(operator, path, body, at_once=at_once)[1]
    operator.backup_codes = re.findall(r"<code>([0-9A-Z-]{19})</code>", page.text)
    assert AdminBackupCode.objects.filter(user_id=operator.id, used_at=None).count() == 10
    operator.send_password()
    response = operator.post(SECOND_STEP, {"backup_code": operator.backup_codes[0]})
    assert response.headers["Location"] == "/admin/"


@both_orders
def test_rotated_secret_is_shown_to_both_clicks(head: Staff, at_once: bool) -> None:
    body = client_form(head)
    head.post(ADD_CLIENT, body)
    client = Client.objects.get(name=body["name"])
    body = {**hidden_fields(head.get(at(client, "rotate"))), "overlap_hours": "24"}
    page = post_twice(head, at(client, "rotate"), body, at_once=at_once)[0]
    assert token_status(client, page.context["secret"]) == 200


@both_orders
def test_add_client_makes_one_client(head: Staff, at_once: bool) -> None:
    body = client_form(head)
    page = post_twice(head, ADD_CLIENT, body, at_once=at_once)[0]
    assert token_status(Client.objects.get(name=body["name"]), page.context["secret"]) == 200


@both_orders
def test_invite_and_add_admin_report_success_twice(tenant: TestTenant, at_once: bool) -> None:
    operator = operator_in(tenant)
    email = f"guest-{secrets.token_hex(5)}@example.com"
    body = {**hidden_fields(operator.get(INVITE)), "email": email, "client_id": str(tenant.client_id)}
    assert post_twice(operator, INVITE, body, at_once=at_once)[1].status_code == 302
    assert len(mails_to(email)) == 1
    path = "/admin/userflow/adminuser/add/"
    body = {**hidden_fields(operator.get(path)), **admin_form()}
    assert post_twice(operator, path, body, at_once=at_once)[1].status_code == 302
    assert AdminUser.objects.filter(username=body["username"]).count() == 1


def test_freshly_loaded_form_is_a_new_action(head: Staff) -> None:
    name = f"Client {secrets.token_hex(5)}"
    for _ in range(2):
        assert head.post(ADD_CLIENT, client_form(head, name)).status_code == 200
    assert Client.objects.filter(name=name).count() == 2


def test_same_form_of_another_browser_is_processed(tenant: TestTenant, head: Staff) -> None:
    """Neither another admin nor the same one without the session gets the response, even with the token of the form."""
    body = client_form(head)
    secret = head.post(ADD_CLIENT, body).context["secret"]
    other = new_tenant_admin(tenant).sign_in()
    other.get(ADD_CLIENT)
    assert other.post(ADD_CLIENT, body).context["secret"] != secret
    assert Client.objects.filter(name=body["name"]).count() == 2
    head.post("/admin/logout/")
    late = head.post(ADD_CLIENT, body)
    assert (late.status_code, late.headers["Location"].startswith(LOGIN)) == (302, True)


def test_form_with_other_entries_is_processed(head: Staff) -> None:
    body = client_form(head, " ")
    assert head.post(ADD_CLIENT, body).status_code == 400
    body["name"] = f"Client {secrets.token_hex(5)}"
    assert head.post(ADD_CLIENT, body).status_code == 200
    assert Client.objects.filter(name=body["name"]).count() == 1


def test_corrected_code_is_processed_after_a_double_click() -> None:
    operator = new_operator().enrol_totp()
    operator.send_password()
    body = {**hidden_fields(operator.get(SECOND_STEP)), "code": wrong_code(operator.secret)}
    page = post_twice(operator, SECOND_STEP, body, at_once=False)[1]
    assert page.status_code == 400
    response = operator.post(SECOND_STEP, {**hidden_fields(page), "code": operator.code()})
    assert response.headers["Location"] == "/admin/"


def test_imported_files_are_told_apart_by_their_content(tenant: TestTenant) -> None:
    operator = operator_in(tenant)
    body = {**hidden_fields(operator.get(IMPORT)), "format": "csv", "on_conflict": "fail"}
    addresses = [f"{secrets.token_hex(5)}@example.com" for _ in range(2)]

    def import_user(address: str) -> str:
        file = SimpleUploadedFile("users.csv", f"email\n{address}\n".encode())
        return str(operator.browser.post(IMPORT, {**body, "file": file}).text)

    first, again, _other = (import_user(address) for address in (addresses[0], *addresses))
    assert first == again
    listed = operator.get(USERS).text
    assert [address in listed for address in addresses] == [True, True]


def test_searches_options_and_choices_are_processed_each_time(tenant: TestTenant, other_tenant: TestTenant) -> None:
    operator = new_operator().sign_in()
    body = hidden_fields(operator.get("/admin/inside/"))
    for chosen in (tenant, other_tenant, tenant):
        operator.post("/admin/inside/", {**body, "tenant": str(chosen.id)})
        assert operator.browser.session["console_tenant"] == str(chosen.id)
    options = [operator.post("/admin/passkey-options/", {**body, "stage": "sign_in"}).json() for _ in range(2)]
    assert options[0]["challenge"] != options[1]["challenge"]
