"""The log level of running processes: what changes, for how long, in which processes, and what is never written."""

import json
import logging
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from django.core.management import CommandError, call_command
from django.utils.timezone import now

from identity_platform.api import log_levels as levels_of_process
from identity_platform.api.log_levels import areas
from identity_platform.audit.models import PlatformEvent
from tenants import log_levels
from tenants.models import LogLevel
from tests.console.staff import new_operator
from tests.machine.conftest import within
from tests.registry.processes import Server, environment
from tests.tenants.conftest import run_command
from tests.world import PASSWORD, Api, TestTenant, capture_statements

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def reset_levels() -> Iterator[None]:
    yield
    LogLevel.objects.all().delete()
    log_levels.refresh()


def lines_of(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]


def set_debug(area: str = "") -> None:
    log_levels.set_level(level="debug", area=area)
    log_levels.refresh()


def test_level_of_an_area_changes_its_lines_only(capfd: pytest.CaptureFixture[str]) -> None:
    webhooks, tenants = structlog.get_logger("identity.webhooks"), structlog.get_logger("identity.tenants")
    webhooks.debug("before")
    set_debug("webhooks")
    capfd.readouterr()
    webhooks.debug("shown")
    tenants.debug("hidden")
    log_levels.reset_level(area="webhooks")
    log_levels.refresh()
    webhooks.debug("hidden again")
    assert [line["event"] for line in lines_of(capfd)] == ["shown", "log_level_reset"]


def test_level_of_an_area_has_precedence_over_the_platforms(capfd: pytest.CaptureFixture[str]) -> None:
    log_levels.set_level(level="error", area="webhooks")
    set_debug()
    capfd.readouterr()
    structlog.get_logger("identity.webhooks").warning("hidden")
    structlog.get_logger("identity.mail").debug("shown")
    structlog.get_logger().debug("shown without a name")
    assert [line["event"] for line in lines_of(capfd)] == ["shown", "shown without a name"]


def test_level_ends_by_itself_without_the_database() -> None:
    LogLevel.objects.create(area="", level="debug", until=now() + timedelta(seconds=0.3))
    log_levels.refresh()
    assert levels_of_process.is_enabled("identity.mail", logging.DEBUG)
    time.sleep(0.35)
    assert not levels_of_process.is_enabled("identity.mail", logging.DEBUG)


def test_requests_read_no_levels(tenant: TestTenant) -> None:
    def read() -> tuple[int, int]:
        with capture_statements() as made:
            assert tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(tenant.id)}).status_code == 200
        return made.counts

    read()
    before = read()
    set_debug()
    assert read() == before


def test_every_logger_belongs_to_an_area() -> None:
    apps = ("console", "identity_platform", "mfa", "openid", "registry", "tenants", "userflow")
    sources = [file.read_text() for app in apps for file in (ROOT / app).rglob("*.py")]
    named = {name for text in sources for name in re.findall(r'get_logger\("([^"]*)"\)', text)}
    assert {name.removeprefix("identity.") for name in named} | {"requests"} == set(areas())


# --- the command ------------------------------------------------------------------------------------------------------


def test_command_sets_shows_and_resets() -> None:
    assert run_command("log_level", "show") == "No level is set: LOG_LEVEL applies.\n"
    said = run_command("log_level", "set", "debug", "--area", "mail")
    row = LogLevel.objects.get(area="mail")
    assert said == f"The log level of mail is debug until {row.until:%Y-%m-%d %H:%M:%S} UTC.\n"
    assert timedelta(minutes=14) < row.until - now() <= timedelta(minutes=15)
    assert run_command("log_level", "show").splitlines()[1].startswith("mail\tdebug\t")
    assert run_command("log_level", "reset") == "No level was set for the platform.\n"
    assert run_command("log_level", "reset", "--area", "mail") == "LOG_LEVEL applies to mail again.\n"
    assert not LogLevel.objects.exists()


def test_command_writes_audit_events() -> None:
    run_command("log_level", "set", "debug", minutes=30)
    run_command("log_level", "reset")
    actions = ["log_level.set", "log_level.reset"]
    events = PlatformEvent.objects.filter(action__in=actions).order_by("-id")[:2]
    assert [(event.action, event.details["area"]) for event in events] == [
        ("log_level.reset", "platform"),
        ("log_level.set", "platform"),
    ]
    assert events[1].details["level"] == "debug"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["set"], "Name the level"),
        (["set", "loud"], "invalid choice"),
        (["set", "debug", "--area", "django.db"], "invalid choice"),
        (["set", "debug", "--minutes", "241"], "from 1 to 240"),
        (["set", "debug", "--minutes", "0"], "from 1 to 240"),
        (["reset", "debug"], "belong to set"),
    ],
)
def test_command_rejects_what_it_does_not_know(words: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message) as rejected:
        call_command("log_level", *words)
    assert rejected.value.returncode in (1, 2)
    assert not LogLevel.objects.exists()


# --- what debug lines never contain -----------------------------------------------------------------------------------


def test_debug_lines_contain_no_secrets_statements_or_people(
    tenant: TestTenant, capfd: pytest.CaptureFixture[str]
) -> None:
    set_debug()
    address, secret = f"ada.{secrets.token_hex(4)}@example.com", secrets.token_hex(16)
    person = tenant.register(address, name="Ada Lovelace-Byron")
    api = Api()
    login = {"client_id": str(tenant.client_id), "email": address, "password": PASSWORD}
    signed_in = api.post("/uflow/auth/enduser/login", login).json()
    assert api.post("/uflow/auth/enduser/login", {**login, "password": f"wrong {secret}"}).status_code == 401
    assert api.post("/uflow/auth/enduser/login", {**login, "email": f"{address}@"}).status_code == 400
    form = {"grant_type": "refresh_token", "client_id": str(tenant.client_id)}
    renewed = api.post("/authmgr/token", {**form, "refresh_token": signed_in["refresh_token"]}).json()
    assert api.post("/authmgr/token", {**form, "refresh_token": secret}).status_code == 400
    api.post("/uflow/auth/enduser/password/forgot", {"email": address, "client_id": str(tenant.client_id)})
    mine = Api(token=renewed["access_token"])
    begun = mine.post("/webauthn/totp/beginSetup", {"current_password": PASSWORD}).json()
    assert mine.post("/webauthn/totp/confirmSetup", {"secret": secret, "code": "000000"}).status_code == 400
    service = tenant.api.post(
        "/exsvc/api/v1/services", {"name": secret[:9], "type": "other", "base_url": "https://x.example"}
    )
    path = f"/exsvc/api/v1/services/{service.json()['id']}/credentials"
    assert tenant.api.post(path, {"name": "key", "secret": secret}).status_code == 201
    assert secret in tenant.api.get(path).content.decode()
    assert tenant.api.get("/uflow/user/enduser/list", {"tenant_id": str(tenant.id), "email": "ada."}).status_code == 200

    written = capfd.readouterr().err
    lines = [json.loads(line) for line in written.splitlines() if line.startswith("{")]
    rejected = [line for line in lines if line["event"] == "request_rejected"]
    assert {line["level"] for line in rejected} == {"debug"}
    assert len(rejected) >= 4
    tokens = [value for body in (signed_in, renewed) for name, value in body.items() if name.endswith("_token")]
    planted = [address, "ada.", "Lovelace", PASSWORD, secret, str(begun.get("secret", secret)), *tokens]
    assert [text for text in planted if text in written] == []
    assert re.findall(r"SELECT |INSERT |UPDATE |DELETE |WHERE ", written) == []
    assert str(person.id) not in "".join(line["event"] for line in lines)


def test_libraries_stay_silent(capfd: pytest.CaptureFixture[str]) -> None:
    set_debug()
    capfd.readouterr()
    for name in ("django.db.backends", "urllib3", "procrastinate", "ldap3", "asyncio"):
        logging.getLogger(name).debug("SELECT %s", "ada@example.com")
    assert lines_of(capfd) == []


# --- other processes --------------------------------------------------------------------------------------------------

SHORT = {"DJANGO_SETTINGS_MODULE": "tests.tenants.leasing.short_leases", "LOG_LEVEL": "INFO"}


def events_in(log: Path) -> list[str]:
    return [json.loads(line)["event"] for line in log.read_text().splitlines() if line.startswith("{")]


def test_running_server_takes_the_level_and_gives_it_back(tmp_path: Path, tenant: TestTenant) -> None:
    server = Server(tmp_path / "server.log", 2, **SHORT)
    try:
        server.wait()

        def rejects_with_a_line() -> bool:
            before = events_in(server.log).count("request_rejected")
            for _ in range(8):
                assert server.call("GET", "/authmgr/profile").status_code == 401
            return events_in(server.log).count("request_rejected") == before + 8

        assert not rejects_with_a_line()
        log_levels.set_level(level="debug", area="api")
        assert within(10, rejects_with_a_line)
        log_levels.reset_level(area="api")
        assert within(10, lambda: not rejects_with_a_line())
    finally:
        server.end()


QUIET = ["--seal-every", "0", "--figures-every", "0", "--domains-every", "0", "--index-every", "0"]


@pytest.mark.parametrize("command", [["deliver_events"], ["tenant_worker", *QUIET]])
def test_running_background_process_takes_the_level(command: list[str], tmp_path: Path, tenant: TestTenant) -> None:
    log = tmp_path / "process.log"
    with log.open("w") as lines:
        process = subprocess.Popen(
            [sys.executable, "manage.py", *command], env=environment(**SHORT), cwd=ROOT, stdout=lines, stderr=lines
        )
    try:
        assert within(60, lambda: "Ready." in log.read_text())
        assert "log_levels_changed" not in events_in(log)
        log_levels.set_level(level="debug")
        assert within(20, lambda: "log_levels_changed" in events_in(log))
    finally:
        process.terminate()
        process.wait(20)


# --- the console ------------------------------------------------------------------------------------------------------


def test_console_sets_and_resets(tenant: TestTenant) -> None:
    operator = new_operator().sign_in()
    assert "No level is set" in operator.get("/admin/platform/log-levels/").text
    body = {"area": "mail", "level": "debug", "minutes": "5"}
    assert operator.post("/admin/platform/log-levels/set/", body).status_code == 302
    row = LogLevel.objects.get()
    assert (row.area, row.level) == ("mail", "debug")
    assert "debug" in operator.get("/admin/platform/log-levels/").text
    assert operator.post("/admin/platform/log-levels/reset/", {"area": "mail"}).status_code == 302
    assert not LogLevel.objects.exists()


def test_console_rejects_a_level_for_days(tenant: TestTenant) -> None:
    page = (
        new_operator()
        .sign_in()
        .post("/admin/platform/log-levels/set/", {"area": "", "level": "debug", "minutes": "1440"})
    )
    assert "less than or equal to 240" in page.text
    assert not LogLevel.objects.exists()
