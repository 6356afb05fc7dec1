"""A platform in its own process that requires a factor of operators, and its admin users."""

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.console.browser.visitor import PASSWORD
from tests.machine.conftest import Platform, environment, free_port, prepared_home, within
from tests.mfa.browser.demo import totp

WANTING = {
    "OPERATORS_REQUIRE_FACTOR": "true",
    "WEB_WORKERS": "1",
    "LOG_LEVEL": "WARNING",
    "LIMIT_SMS_PER_USER_MINUTE": "3",
}


CREATE_OPERATORS = """
from userflow.admins.actions import create_admin_user
for name in {!r}:
    create_admin_user(tenant_id=None, username=name, email=f"{{name}}@example.com", password={!r})
"""


# Commands of manage.py in one process, because each start of Django takes seconds of a core.
COMMANDS = """
import contextlib, io, json, os, sys
import django
django.setup()
from django.core.management import call_command
from django.db import connections
for line in sys.stdin:
    words, variables = json.loads(line)
    os.environ.update(variables)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        call_command(*words)
    connections.close_all()
    for name in variables:
        del os.environ[name]
    print(json.dumps(printed.getvalue()), flush=True)
"""


class RunningPlatform:
    """A running platform and its admin users."""

    def __init__(self, home: Path, running: Platform) -> None:
        self.home, self.running = home, running
        self._operators: list[str] = []
        self._commands: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """Return the origin for browsers: passkeys are created for this name."""
        return f"http://localhost:{self.running.port}"

    def manage(self, *words: str, **more: str) -> str:
        """Run a command of manage.py there, with these variables; return its output."""
        if self._commands is None:
            self._commands = subprocess.Popen(
                [sys.executable, "-P", "-c", COMMANDS],
                env=environment(
                    self.home,
                    PORT=str(self.running.port),
                    DJANGO_SETTINGS_MODULE="identity_platform.settings",
                    **WANTING,
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._commands.stdin is not None
        assert self._commands.stdout is not None
        print(json.dumps([words, more]), file=self._commands.stdin, flush=True)
        printed = self._commands.stdout.readline()
        assert printed, f"{words} failed; its traceback is on standard error"
        return str(json.loads(printed))

    def end(self) -> None:
        """End the platform, and the process of the commands."""
        if self._commands is not None:
            self._commands.communicate()
        self.running.end()

    def new_operator(self, name: str = "") -> str:
        """Return an operator with the password PASSWORD. Those without a name of their own are created many at a time."""
        if not (name or self._operators):
            self._operators = [f"op-{secrets.token_hex(4)}" for _ in range(6)]
            self.manage("shell", "--no-imports", "-c", CREATE_OPERATORS.format(self._operators, PASSWORD))
        if not name:
            return self._operators.pop()
        self.manage("shell", "--no-imports", "-c", CREATE_OPERATORS.format([name], PASSWORD))
        return name

    def new_tenant(self, name: str, *, slug: str = "") -> dict[str, Any]:
        """Create a tenant with an admin, whose password is PASSWORD; return the output of `create_tenant --json`."""
        mark = secrets.token_hex(4)
        words = ["create_tenant", name, "--slug", slug or f"t-{mark}", "--admin-username", f"admin-{mark}"]
        said = self.manage(
            *words, "--admin-email", f"admin-{mark}@example.com", "--json", TENANT_ADMIN_PASSWORD=PASSWORD
        )
        return dict(json.loads(said))

    def new_tenant_staff(self, tenant: dict[str, Any], *, role: str) -> str:
        """Create an admin user of the tenant with this role and the password PASSWORD; return the username."""
        name = f"{role}-{secrets.token_hex(4)}"
        admin = {"username": tenant["admin"]["username"], "password": PASSWORD}
        token = self.call("POST", "/uflow/admin/auth/login", admin)["access_token"]
        body = {"username": name, "email": f"{name}@example.com", "password": PASSWORD, "roles": [role]}
        body |= {"first_name": "Cleo", "last_name": "Checker"}
        self.call("POST", "/uflow/admin/users", {**body, "tenant_id": tenant["tenant_id"]}, token=token)
        return name

    def call(self, method: str, path: str, body: Any = None, *, token: str = "") -> Any:
        """Call the API; return the response."""
        sent = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        request = Request(self.url + path, data=sent, headers=headers, method=method)
        with urlopen(request, timeout=30) as response:
            return json.load(response)

    def add_app(self, token: str, user: dict[str, str], *, path: str = "/webauthn/totp") -> tuple[str, list[str]]:
        """Enroll an authenticator app for this user, with the code of now; return its secret and the backup codes."""
        secret = self.call("POST", f"{path}/beginSetup", user, token=token)["secret"]
        confirmed = {**user, "secret": secret, "code": totp(secret, time.time()), "current_password": PASSWORD}
        return secret, self.call("POST", f"{path}/confirmSetup", confirmed, token=token)["backup_codes"]

    def add_rows(self, tenant: dict[str, Any]) -> dict[str, Any]:
        """Fill a tenant: users, one of them with an authenticator app, and a service with a key."""
        named = {"tenant_id": tenant["tenant_id"], "client_id": tenant["client_id"]}
        admin = {"username": tenant["admin"]["username"], "password": PASSWORD}
        token = self.call("POST", "/uflow/admin/auth/login", admin)["access_token"]
        for who in ("Vera Visitor", "Gil Gardener", "Mara Miller", "Olu Okafor"):
            body = {"email": address_of(who), "password": PASSWORD, "name": who, **named}
            self.call("POST", "/uflow/user/clients/register", body)
        vera = {"email": address_of("Vera Visitor")}
        own = self.call(
            "POST", "/uflow/auth/enduser/login", {**vera, "password": PASSWORD, "client_id": named["client_id"]}
        )
        self.add_app(own["access_token"], {**vera, **named})
        service = {"name": "Card payments", "type": "payment", "base_url": "https://pay.example.com"}
        made = self.call("POST", "/exsvc/api/v1/services", service, token=token)
        key = {"name": "Live key", "type": "api_key", "secret": "sk-0815"}
        self.call("POST", f"/exsvc/api/v1/services/{made['id']}/credentials", key, token=token)
        return tenant


def address_of(name: str) -> str:
    """Return the address of a user of the tenant."""
    return f"{name.split()[0].lower()}@example.com"


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlatform]:
    """Start a platform as bin/serve does, with its own state folder."""
    with prepared_home() as home, (tmp_path_factory.mktemp("console") / "log").open("w") as log:
        running = Platform(home, free_port(), log, **WANTING)
        assert within(150, running.is_up)
        place = RunningPlatform(home, running)
        yield place
        place.end()
