"""Read-only and maintenance mode: what each entry point serves, and that it costs a request no statement."""

import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils.timezone import now

from identity_platform.audit.models import PlatformEvent
from identity_platform.postgresql.forbidden_writes import changes
from tenants import operating_modes
from tenants.entering.context import in_tenant
from tenants.errors import MaintenanceMode, NoRoom, ReadOnlyMode
from tenants.lifecycle import provisioning
from tenants.models import DatabaseServer, OperatingMode
from tenants.states import Mode, Purpose
from tests.console.staff import new_operator, new_tenant_admin
from tests.tenants.conftest import run_command
from tests.world import Api, TestTenant, capture_statements
from userflow.accounts.models import EndUser

HTML = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"


@pytest.fixture(autouse=True)
def ended_modes() -> Iterator[None]:
    yield
    OperatingMode.objects.all().delete()
    operating_modes.forget()


def start(mode: Mode, server: str | None = None, minutes: int | None = None) -> None:
    until = now() + timedelta(minutes=minutes) if minutes else None
    operating_modes.start_mode(mode=mode, server=server, until=until)


def read(tenant: TestTenant) -> Any:
    return Api(token=tenant.api.token).get("/uflow/user/enduser/list", {"tenant_id": str(tenant.id)})


def write(tenant: TestTenant) -> Any:
    return Api(token=tenant.api.token).post(
        "/authmgr/groups", {"tenant_id": str(tenant.id), "name": f"Group {secrets.token_hex(4)}"}
    )


def write_globally(tenant: TestTenant) -> Any:
    body = {"name": f"Service {secrets.token_hex(4)}", "type": "other", "base_url": "https://example.com"}
    return Api(token=tenant.api.token).post("/exsvc/api/v1/services", body)


def test_read_only_serves_reads_and_rejects_writes(tenant: TestTenant) -> None:
    start(Mode.READ_ONLY, minutes=30)
    assert read(tenant).status_code == 200
    response = write(tenant)
    assert (response.status_code, response.json()["code"]) == (503, "read_only")
    assert 1700 < int(response.headers["Retry-After"]) <= 1800
    assert "until about" in response.json()["message"]


def test_read_only_rejects_writes_to_the_global_database(tenant: TestTenant) -> None:
    start(Mode.READ_ONLY)
    response = write_globally(tenant)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "UNAVAILABLE")
    assert response.headers["Retry-After"] == "60"
    operating_modes.end_mode()
    assert write_globally(tenant).status_code == 201


def test_read_only_rejects_sign_in_and_keeps_tokens(tenant: TestTenant) -> None:
    person = tenant.register()
    body = {"client_id": str(tenant.client_id), "email": person.email, "password": person.password}
    signed_in = Api().post("/uflow/auth/enduser/login", body).json()
    start(Mode.READ_ONLY)
    assert Api(token=signed_in["access_token"]).get("/exsvc/debug/auth").status_code == 200
    response = Api().post("/uflow/auth/enduser/login", body)
    assert (response.status_code, response.json()["code"]) == (503, "read_only")
    form = {"grant_type": "refresh_token", "client_id": str(tenant.client_id)}
    oauth = Api().post("/authmgr/token", {**form, "refresh_token": signed_in["refresh_token"]})
    assert (oauth.status_code, oauth.json()["error"]) == (503, "temporarily_unavailable")


def test_maintenance_closes_all_but_probes_and_documents(tenant: TestTenant) -> None:
    start(Mode.MAINTENANCE)
    assert (read(tenant).status_code, read(tenant).json()["code"]) == (503, "maintenance")
    for path in ("/uflow/live", "/uflow/ready", "/uflow/health", "/schema/"):
        assert Api().get(path).status_code == 200
    assert Api().get("/.well-known/jwks.json").status_code == 503


def test_maintenance_of_oauth_endpoints_has_their_form(tenant: TestTenant) -> None:
    start(Mode.MAINTENANCE)
    response = Client().post(f"/t/{tenant.slug}/token", {"grant_type": "client_credentials"})
    assert (response.status_code, response.json()["error"]) == (503, "temporarily_unavailable")
    assert response.headers["Retry-After"] == "60"


@pytest.mark.parametrize(
    ("language", "text"), [("en", "closed for maintenance until about"), ("de", "wegen Wartung geschlossen")]
)
def test_hosted_page_says_until_when(tenant: TestTenant, language: str, text: str) -> None:
    start(Mode.MAINTENANCE, minutes=30)
    page = Client().get(f"/t/{tenant.slug}/signin", headers={"Accept": HTML, "Accept-Language": language})
    assert (page.status_code, page.headers["Content-Type"]) == (503, "text/html; charset=utf-8")
    assert text in page.content.decode()
    assert 1700 < int(page.headers["Retry-After"]) <= 1800


def test_pages_of_links_in_mails_are_closed_too() -> None:
    start(Mode.MAINTENANCE)
    page = Client().get("/password/reset", headers={"Accept": HTML})
    assert (page.status_code, page.headers["Retry-After"]) == (503, "60")
    assert "closed for maintenance" in page.content.decode()


def test_hosted_account_page_is_shown_in_read_only_mode(tenant: TestTenant) -> None:
    start(Mode.READ_ONLY)
    assert Client().get(f"/t/{tenant.slug}/forgot").status_code == 200


def test_forms_of_hosted_pages_are_rejected_in_read_only_mode(tenant: TestTenant) -> None:
    browser = Client()
    page = browser.get(f"/t/{tenant.slug}/register").content.decode()
    token = page.partition('name="form_token" value="')[2].partition('"')[0]
    start(Mode.READ_ONLY)
    form = {"form_token": token, "email": "reader@example.com", "password": "a long passphrase", "name": "R"}
    sent = browser.post(f"/t/{tenant.slug}/register", form)
    assert sent.status_code == 503
    assert "paused for maintenance" in sent.content.decode()
    with in_tenant(tenant.id, Purpose.READ):
        assert not EndUser.objects.filter(email_key="reader@example.com").exists()


def test_forgot_is_rejected_rather_than_forgotten(tenant: TestTenant) -> None:
    person = tenant.register()
    start(Mode.READ_ONLY)
    body = {"email": person.email, "client_id": str(tenant.client_id)}
    assert Api().post("/uflow/auth/enduser/password/forgot", body).status_code == 503


def test_mode_of_a_server_is_for_its_tenants_only(tenant: TestTenant) -> None:
    other = DatabaseServer.objects.create(name="modes-other", host="db9.example.com", accepts_tenants=False)
    try:
        start(Mode.READ_ONLY, server="modes-other")
        assert write(tenant).status_code == 201
        own = DatabaseServer.objects.get(databases__tenant_id=tenant.id).name
        start(Mode.READ_ONLY, server=own)
        assert (read(tenant).status_code, write(tenant).json()["code"]) == (200, "read_only")
        start(Mode.MAINTENANCE, server=own)
        assert read(tenant).json()["code"] == "maintenance"
        # The registry is in the global database.
        assert write_globally(tenant).status_code == 201
    finally:
        OperatingMode.objects.all().delete()
        other.delete()


def test_new_tenants_go_to_other_servers(tenant: TestTenant) -> None:
    own = DatabaseServer.objects.get(databases__tenant_id=tenant.id).name
    start(Mode.MAINTENANCE, server=own)
    with pytest.raises(NoRoom):
        provisioning.create_tenant(name="No room")
    with pytest.raises(MaintenanceMode):
        provisioning.create_tenant(name="Closed", server=own)


def test_commands_and_jobs_obey_the_mode_of_a_tenant(tenant: TestTenant) -> None:
    start(Mode.READ_ONLY)
    with pytest.raises(ReadOnlyMode), in_tenant(tenant.id, Purpose.WRITE):
        raise AssertionError("A tenant was entered for writing.")
    with in_tenant(tenant.id, Purpose.INSPECT), pytest.raises(ReadOnlyMode):
        EndUser.objects.update(active=False)
    start(Mode.MAINTENANCE)
    with pytest.raises(MaintenanceMode), in_tenant(tenant.id, Purpose.READ):
        raise AssertionError("A tenant was entered during maintenance.")
    assert operating_modes.is_background_paused()


def test_mode_costs_a_request_no_statement(tenant: TestTenant) -> None:
    read(tenant)
    with capture_statements() as before:
        read(tenant)
    operating_modes.forget()
    with capture_statements() as after:
        read(tenant)
    assert (len(before.default), len(before.tenant)) == (len(after.default), len(after.tenant))


def test_other_processes_apply_a_mode_within_two_seconds(tenant: TestTenant) -> None:
    """A process that has just read the modes reads them again a second later."""
    operating_modes.forget()
    assert operating_modes.current().platform is None
    OperatingMode.objects.create(mode=Mode.READ_ONLY)
    assert operating_modes.current().platform is None
    operating_modes._read_again_at -= operating_modes._READ_EVERY_SECONDS
    assert operating_modes.current().platform == operating_modes.ActiveMode(Mode.READ_ONLY)


def test_command_starts_shows_and_ends_a_mode() -> None:
    said = run_command("maintenance", "start", "--read-only", "--until", "90", "--reason", "failover")
    assert "The platform is read-only." in said
    assert "failover" in run_command("maintenance", "status")
    event = PlatformEvent.objects.filter(action="operating_mode.started").latest("id")
    assert (event.details["mode"], event.details["reason"]) == ("read_only", "failover")
    assert run_command("maintenance", "stop") == "The platform is open again.\n"
    assert run_command("maintenance", "stop") == "The platform was not limited.\n"
    assert PlatformEvent.objects.filter(action="operating_mode.ended").exists()
    assert run_command("maintenance", "status") == "Nothing is limited.\n"


@pytest.mark.parametrize(
    "options", [["--server", "unknown"], ["--until", "2001-01-01T00:00Z"], ["--until", "soon"], ["--reason", "x" * 201]]
)
def test_command_rejects_invalid_options(options: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("maintenance", "start", *options)
    assert not OperatingMode.objects.exists()


def test_operators_end_a_mode_in_the_console(tenant: TestTenant) -> None:
    operator, admin = new_operator().sign_in(), new_tenant_admin(tenant).sign_in()
    assert operator.post("/admin/platform/modes/start/", {"mode": "maintenance", "minutes": "5"}).status_code == 302
    assert "Closed for maintenance" in operator.get("/admin/platform/modes/").text
    assert admin.get("/admin/").status_code == 503
    assert operator.post("/admin/platform/modes/end/", {"server": ""}).status_code == 302
    assert admin.get("/admin/").status_code == 200


def test_console_is_read_only_but_for_the_mode_itself(tenant: TestTenant) -> None:
    operator = new_operator().sign_in()
    start(Mode.READ_ONLY)
    assert operator.get("/admin/platform/servers/").status_code == 200
    server = DatabaseServer.objects.get(name="main")
    changed = operator.post(f"/admin/platform/servers/{server.pk}/change/", {"capacity": "77"})
    assert "read-only" in changed.text
    server.refresh_from_db()
    assert server.capacity != 77
    late = new_operator().sign_in()
    assert late.post("/admin/platform/modes/end/", {"server": ""}).status_code == 302


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT updated_at FROM t WHERE name = 'UPDATE'", False),
        ("WITH a AS (SELECT 1) SELECT * FROM a", False),
        ("SAVEPOINT s", False),
        ("WITH a AS (UPDATE t SET x = 1 RETURNING x) SELECT x FROM a", True),
        ("SELECT * FROM t FOR NO KEY UPDATE OF t", True),
        ("insert into t values (1)", True),
        ("SELECT userflow_count_users()", True),
    ],
)
def test_statements_that_change_something(statement: str, expected: bool) -> None:
    assert changes(statement) is expected
