"""Run an example on this machine: the platform unless it runs already, what the example needs there, and its programs."""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from identity_platform.serving.workers import exit_with_parent

ROOT = Path(__file__).resolve().parent.parent
SERVER = [sys.executable, "-P", "-m", "identity_platform.serving.server"]
KEPT = ("PATH", "LANG", "HOME", "RECHECK_SECONDS")
START_SECONDS = 180


class CannotRun(Exception):
    """The example cannot be started; the message says why."""


@dataclass(frozen=True)
class Program:
    """A program of an example, with the variables that only it gets."""

    file: str
    port: int
    variables: dict[str, str]


class Demo:
    """The demo tenant of the running platform, as its admin sees it."""

    def __init__(self) -> None:
        import django

        django.setup()
        from django.conf import settings

        from userflow.management import demo_exports

        if not settings.EMBEDDED:
            raise CannotRun("Examples need the embedded servers: unset DATABASE_URL and REDIS_URL.")
        exports = dict(re.findall(r"^export (\w+)=(\S+)$", "\n".join(demo_exports.lines()), re.MULTILINE))
        self.state: Path = settings.VAR / "examples"
        self.state.mkdir(mode=0o700, exist_ok=True)
        self.url, self.slug, self.tenant_id = exports["BASE_URL"], demo_exports.SLUG, exports.get("TENANT_ID", "")
        self._admin = {name: exports.get(f"ADMIN_{name.upper()}", "") for name in ("username", "password")}
        self._http = httpx2.Client(base_url=self.url, timeout=60)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the API as the admin of the demo tenant."""
        if "Authorization" not in self._http.headers:
            said = self._http.post("/uflow/admin/auth/login", json=self._admin)
            if said.status_code != 200:
                raise CannotRun("The admin of the demo tenant cannot sign in. `bin/manage demo` says why.")
            self._http.headers["Authorization"] = f"Bearer {said.json()['access_token']}"
        response = self._http.request(method, path, json=body)
        if not response.is_success:
            raise CannotRun(f"{method} {path}: {response.status_code} {response.text}")
        return response.json()

    def new_client(self, name: str, **fields: Any) -> dict[str, str]:
        """Return a confidential client with a new secret, in place of the one of the last start."""
        path = f"/clientms/tenants/{self.tenant_id}/clients"
        for client in self.call("GET", f"{path}?name={name.replace(' ', '+')}")["clients"]:
            if client["name"] == name:
                self.call("DELETE", f"{path}/{client['client_id']}")
        return dict(self.call("POST", path, {"name": name, "type": "confidential", **fields}))

    def write(self, name: str, text: str) -> Path:
        """Write a file that only this system user can read."""
        path = self.state / name
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        return path


def b2b_saas(demo: Demo, port: int) -> list[Program]:
    """An operator who can open tenants, and holds what the admins of a tenant hold: the application signs their users in."""
    from userflow.accounts.models import AdminRole, AdminUser
    from userflow.accounts.permissions_catalogue import BUILT_IN_ROLES, TENANT_ADMIN
    from userflow.admins.actions import create_admin_user
    from userflow.passwords.actions import set_admin_password
    from userflow.tenants.actions import generated_password

    name, password = "company-sign-up", generated_password()
    permissions = ["tenants:write", *BUILT_IN_ROLES[TENANT_ADMIN]]
    AdminRole.objects.update_or_create(name=name, defaults={"permissions": permissions})
    if AdminUser.objects.filter(username=name).exists():
        set_admin_password(username=name, password=password)
    else:
        email = f"{name}@example.com"
        create_admin_user(tenant_id=None, username=name, email=email, password=password, roles=[name])
    print(f"Mails are files in {demo.state.parent / 'outbox' / 'mail'}.")
    variables = {"IDENTITY_URL": demo.url, "OPERATOR_USERNAME": name, "OPERATOR_PASSWORD": password}
    return [Program("app.py", port, {**variables, "DATABASE": str(demo.state / "b2b-saas.sqlite3")})]


def protected_api(demo: Demo, port: int) -> list[Program]:
    """A permission of the tenant, and two clients that call the API: one has it."""
    audience, permission = "https://orders.example.com", "orders:read"
    roles = demo.call("GET", "/authmgr/roles?name=Orders")["roles"]
    if not roles:
        demo.call("POST", "/authmgr/roles", {"name": "Orders", "permissions": [permission, "orders:write"]})
    issuer = f"{demo.url}/t/{demo.slug}"
    # Without comments, which an interactive zsh takes for arguments.
    print(f"Without a token the response is 401:\n  curl http://127.0.0.1:{port}/orders")
    for scope, status in (("orders:write", 403), (permission, 200)):
        client = demo.new_client(f"Example {scope}", scopes=[scope], audiences=[audience])
        pair = (client["client_id"], client["client_secret"])
        body = {"grant_type": "client_credentials"}
        token = httpx2.post(f"{issuer}/token", data=body, auth=pair, timeout=60).raise_for_status().json()
        file = demo.write(f"{scope.replace(':', '-')}.token", token["access_token"])
        print(f"With {scope} it is {status}:")
        print(f'  curl http://127.0.0.1:{port}/orders -H "Authorization: Bearer $(cat {file})"')
    print("The tokens expire; start again for new ones.")
    return [Program("app.py", port, {"OIDC_ISSUER": issuer, "API_AUDIENCE": audience})]


def registry_client(demo: Demo, port: int) -> list[Program]:
    """A service with a credential, and a client that can read and rotate it."""
    name, key, base_url = "Payments", f"pay_{secrets.token_urlsafe(24)}", f"http://127.0.0.1:{port + 1}"
    path = "/exsvc/api/v1/services"
    services = demo.call("GET", f"{path}?name={name}")["services"]
    service = {"name": name, "type": "payment", "base_url": base_url}
    if services:
        demo.call("PUT", f"{path}/{services[0]['id']}", service)
    else:
        services = [demo.call("POST", path, service)]
    credentials = f"{path}/{services[0]['id']}/credentials"
    stored = demo.call("GET", credentials)["credentials"]
    if stored:
        demo.call("PUT", f"{credentials}/{stored[0]['id']}", {"secret": key})
    else:
        demo.call("POST", credentials, {"name": "Live key", "secret": key})
    scopes = ["services:read", "services:write", "services:credentials"]
    client = demo.new_client("Example payments back end", scopes=scopes)
    own = {"CLIENT_ID": client["client_id"], "CLIENT_SECRET": client["client_secret"]}
    payments = Program("payments.py", port + 1, {"FIRST_KEY": key})
    return [payments, Program("app.py", port, {"IDENTITY_URL": demo.url, **own})]


# What each needs, its first port, and how many programs it has.
EXAMPLES: dict[str, tuple[Callable[[Demo, int], list[Program]], int, int]] = {
    "b2b-saas": (b2b_saas, 8002, 1),
    "protected-api": (protected_api, 8003, 1),
    "registry-client": (registry_client, 8004, 2),
}


def main() -> None:
    """Run until a signal ends it, or one of the programs ends."""
    if len(sys.argv) != 2 or sys.argv[1] not in EXAMPLES:
        sys.exit(f"Usage: bin/example {{{','.join(EXAMPLES)}}}")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        with ExitStack() as started:
            run(sys.argv[1], started)
    except (CannotRun, httpx2.HTTPError) as problem:
        sys.exit(f"bin/example: {problem}")


def run(name: str, started: ExitStack) -> None:
    """Start everything. Raises CannotRun."""
    prepare, port, programs = EXAMPLES[name]
    port = int(os.environ.get("EXAMPLE_PORT", port))
    for number in range(port, port + programs):
        check_free(number)
    platform = f"http://127.0.0.1:{os.environ.get('PORT', '8000')}/uflow/live"
    running = []
    if not answers(platform):
        running.append(start(started, SERVER, dict(os.environ)))
        wait(platform, running)
    for program in prepare(Demo(), port):
        folder = ROOT / "examples" / name
        # Nothing else of the platform's environment: it holds keys that an application never has.
        kept = {word: os.environ[word] for word in KEPT if word in os.environ}
        path = {"PYTHONPATH": f"{folder}:{ROOT / 'sdk/python/src'}", "PORT": str(program.port)}
        command = [sys.executable, "-P", str(folder / program.file)]
        running.append(start(started, command, {**kept, **path, **program.variables}))
        wait(f"http://127.0.0.1:{program.port}/", running)
    print(f"The example {name} is at http://127.0.0.1:{port}/ (Ctrl-C stops it)", flush=True)
    while all(process.poll() is None for process in running):
        time.sleep(0.2)
    raise CannotRun("A program has ended.")


def check_free(port: int) -> None:
    """Raise CannotRun if another program has the port."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        raise CannotRun(f"Another program uses 127.0.0.1:{port}. Set EXAMPLE_PORT to a free port.") from None


def start(started: ExitStack, command: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start a program that ends with this one."""
    ends_too = partial(exit_with_parent, os.getpid()) if sys.platform == "linux" else None
    process = subprocess.Popen(command, env=environment, preexec_fn=ends_too)

    def end() -> None:
        process.terminate()
        process.wait(60)

    started.callback(end)
    return process


def wait(url: str, running: "list[subprocess.Popen[bytes]]") -> None:
    """Wait until something answers there. Raises CannotRun."""
    deadline = time.monotonic() + START_SECONDS
    while not answers(url):
        if time.monotonic() > deadline or any(process.poll() is not None for process in running):
            raise CannotRun(f"Nothing answers at {url}.")
        time.sleep(0.1)


def answers(url: str) -> bool:
    try:
        httpx2.get(url, timeout=30)
    except httpx2.HTTPError:
        return False
    return True


if __name__ == "__main__":
    main()
