"""sdk/typescript in Express, and its package; the programs are examples of the README."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx2
import pytest

from tests.machine.conftest import free_port, within
from tests.mfa.people import new_user
from tests.sdk.conftest import Case, expected
from tests.sdk.readme import example
from tests.sdk.test_python_servers import outcomes, responses
from tests.sdk.workspace import NAME, SOURCE, Workspace
from tests.userflow.sessions.clients import make_client
from tests.userflow.webhooks.conftest import consumer as consumer
from tests.userflow.webhooks.conftest import deliver, listen
from tests.userflow.webhooks.consumer import Consumer
from tests.world import TestTenant, User

pytestmark = pytest.mark.needs("node")
Start = Callable[..., AbstractContextManager[str]]


@pytest.fixture
def start(workspace: Workspace) -> Start:
    """`with start(heading, **values) as url` runs the server of an example."""

    @contextmanager
    def start(heading: str, **values: str) -> Iterator[str]:
        port = free_port()
        name = f"server-{port}.ts"
        workspace.write(name, example("typescript", heading, **values, **{"3000": str(port)}))
        url = f"http://127.0.0.1:{port}"
        with workspace.start(name) as process:
            try:
                assert within(60, lambda: answers(url))
                yield url
            finally:
                process.terminate()

    return start


def answers(url: str) -> bool:
    try:
        return httpx2.get(url).status_code == 404
    except httpx2.ConnectError:
        return False


def test_express_verifies_tokens(
    start: Start, issuer: str, tenant: TestTenant, holder: User, cases: dict[str, Case]
) -> None:
    with start("Express", issuer=issuer, audience="identity-api") as url, httpx2.Client(base_url=url) as client:
        found = responses(client, "/invoices", cases)
        assert outcomes(found) == expected(cases)
        assert found["valid"].json() == {"user": str(holder.id), "kind": "end_user", "tenant": str(tenant.id)}
        assert found["expired"].json() == {
            "error": "Unauthorized",
            "code": "invalid_token",
            "message": "The access token is invalid or has expired.",
        }


def test_express_without_keys_returns_503(start: Start, cases: dict[str, Case]) -> None:
    headers = {"Authorization": f"Bearer {cases['valid'].token}"}
    with start("Express", issuer="http://127.0.0.1:9/t/x", audience="identity-api") as url:
        response = httpx2.get(f"{url}/invoices", headers=headers)
    assert (response.status_code, response.json()["code"]) == (503, "keys_unavailable")
    assert ("WWW-Authenticate" in response.headers, response.headers["Retry-After"]) == (False, "5")


def test_delivered_webhook_is_verified(
    start: Start, new_tenant: Callable[[], TestTenant], consumer: Consumer, settings: Any
) -> None:
    settings.WEBHOOK_ALLOWED_NETWORKS, settings.WEBHOOK_PLAIN_HTTP = ["127.0.0.0/8"], True
    listening = listen(new_tenant(), consumer)
    listening.home.register()
    deliver()
    (seen,) = consumer.seen
    with start("Receive webhooks", WEBHOOK_SECRET=listening.secret) as url:
        # As delivered; the names of headers are not case-sensitive.
        kept = {name: value for name, value in seen.headers.items() if name.startswith(("webhook-", "content-type"))}

        def sent(body: bytes = seen.body, **changed: str) -> int:
            headers = {**kept, **{name.replace("_", "-"): value for name, value in changed.items()}}
            return httpx2.post(f"{url}/hooks", content=body, headers=headers).status_code

        assert sent() == 204
        assert [sent(seen.body + b" "), sent(webhook_signature="v1,AAAA"), sent(webhook_signature="?")] == [400] * 3
        assert [sent(webhook_timestamp=str(int(time.time()) - 600)), sent(webhook_id="")] == [400] * 2


def test_readme_signs_in(workspace: Workspace, base: str, tenant: TestTenant) -> None:
    person = new_user(tenant).enrol_totp()
    values = {"TENANT_ID": str(tenant.id), "CLIENT_ID": str(tenant.client_id), "BACKUP_CODE": person.backup_codes[0]}
    values["ann@example.com"] = person.email
    workspace.write("sign-in.ts", example("typescript", "Anywhere", base_url=base, **values))
    assert workspace.run("sign-in.ts").splitlines() == ["[ 'totp', 'backup_code' ]", person.email]


def test_readme_reads_a_credential(workspace: Workspace, base: str, tenant: TestTenant, service: str) -> None:
    client = make_client(tenant)
    values = {"CLIENT_ID": client["client_id"], "CLIENT_SECRET": client["client_secret"], "Payments": service}
    workspace.write("back-end.ts", example("typescript", "Call from a back end", base_url=base, **values))
    assert workspace.run("back-end.ts").splitlines() == ["200", "https://pay.example.com Live key"]


def test_package_and_examples_satisfy_the_strictest_settings(workspace: Workspace) -> None:
    for heading in ("Express", "Anywhere", "Call from a back end", "Receive webhooks"):
        workspace.write(f"{heading.lower().replace(' ', '-')}.ts", example("typescript", heading))
    workspace.compile()


def test_package_holds_what_it_exports(workspace: Workspace) -> None:
    modules = {path.stem for path in (SOURCE / "src").glob("*.ts")}
    built = {f"dist/{module}.{kind}" for module in modules for kind in ("js", "d.ts")}
    assert workspace.files == built | {"package.json", "README.md", "LICENSE"}
    imports = "".join(f'import "{NAME}{part}";\n' for part in ("", "/browser", "/express", "/server", "/webhooks"))
    workspace.write("imports.ts", f"{imports}console.log('imported');\n")
    assert workspace.run("imports.ts") == "imported\n"
