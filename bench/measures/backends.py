"""Targets 16 to 18: what back ends call all day, against the read of target 1, by CPU of server and PostgreSQL."""

from __future__ import annotations

import base64
import json
import statistics
from dataclasses import dataclass
from uuid import uuid4

from django.utils.timezone import now

from bench import servers, world
from bench.measures.openid import Line
from bench.rounds import Subject
from bench.run import Row, Run
from registry.actions import create_credential, create_service
from tenants.entering.context import in_tenant
from userflow.accounts.models import EndUser
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION
from userflow.accounts.principals import OPERATOR, Principal
from userflow.accounts.realms import END_USERS
from userflow.clients.actions import create_client
from userflow.signin.delivery import ApplicationTokens
from userflow.signin.pipeline import completion_of
from userflow.signin.proofs import PASSWORD_AMR

REQUESTS = 200


@dataclass
class BackEnd:
    """A confidential client of the tenant with a token of its own, a service with one credential, and a user's session."""

    tenant: world.BenchTenant
    basic: str
    credential: str
    refresh_token: str
    token: str = ""


def measure(run: Run) -> list[Row]:
    """Measure in turns: read, refresh, credential read, client_credentials, introspection."""
    [tenant] = world.tenants_with_users(1, run.sizes.users, run.say)
    requests = REQUESTS if run.seconds > 1 else 20
    back_end = _back_end(tenant)
    acts = {
        "read": _read,
        "refresh": _refresh,
        "credential": _credential,
        "client_credentials": _client_credentials,
        "introspection": _introspection,
    }
    taken: dict[str, list[float]] = {name: [] for name in acts}
    with servers.platform(run.home) as platform:
        line = Line(run, platform)
        _client_credentials(line, back_end)
        # For the table of requests beside each other; the target's ratio is that of single requests.
        run.compare("credential", [Subject("platform", platform, [world.get(back_end.credential, back_end.token)])])
        for _ in range(20):  # statements are prepared at their sixth use
            for act in acts.values():
                act(line, back_end)
        for round_ in range(run.rounds):
            run.say(f"backends: round {round_ + 1} of {run.rounds}")
            for name, act in acts.items():
                before = line.cpu()
                for _ in range(requests):
                    act(line, back_end)
                taken[name].append((line.cpu() - before) / requests * 1e6)
    run.raw["backends"] = taken
    middle = {name: statistics.median(samples) for name, samples in taken.items()}
    return [
        _row("16", "refresh", middle, "refresh", most=2.0),
        _row("17", "registry: read of one credential, audited", middle, "credential", most=2.0),
        _row("18", "client_credentials", middle, "client_credentials", most=1.5),
        _row("18", "introspection", middle, "introspection", most=1.3),
    ]


def _row(target: str, what: str, middle: dict[str, float], name: str, *, most: float) -> Row:
    found = middle[name] / (middle["read"] or 1.0)
    return Row(
        target,
        what,
        ours=f"{middle[name]:.0f} µs with PostgreSQL",
        against=f"read of target 1: {middle['read']:.0f} µs",
        ratio=found,
        wanted=f"≤ {most}",
        met=found <= most,
    )


def _back_end(tenant: world.BenchTenant) -> BackEnd:
    operator = Principal(OPERATOR, uuid4(), None, None, None, (), frozenset(EVERY_PERMISSION), auth_time=now())
    scopes = ["services:credentials", "services:read"]
    client, secret = create_client(
        tenant_id=tenant.tenant_id, by=operator, name="Back end", type="confidential", scopes=scopes
    )
    name = f"Service {uuid4().hex[:8]}"
    service = create_service(tenant_id=tenant.tenant_id, name=name, type="payment", base_url="https://a.example.com")
    credential = create_credential(tenant_id=tenant.tenant_id, service_id=service.pk, name="live", secret="s" * 32)
    with in_tenant(tenant.tenant_id), END_USERS.atomic():
        user = EndUser.objects.get(pk=tenant.users[0])
        delivery = ApplicationTokens()
        completion = completion_of(user, amr=PASSWORD_AMR, delivery=delivery, client_id=tenant.client_id)
        tokens = completion.open(END_USERS, user).tokens
        assert tokens is not None  # delivered to an application
    return BackEnd(
        tenant,
        f"Basic {base64.b64encode(f'{client.pk}:{secret}'.encode()).decode()}",
        f"/exsvc/api/v1/services/{service.pk}/credentials/{credential.pk}",
        tokens.refresh_token,
    )


def _read(line: Line, back_end: BackEnd) -> None:
    path = f"/uflow/user/enduser/{back_end.tenant.tenant_id}/{back_end.tenant.users[0]}"
    line.call("GET", path, Authorization=f"Bearer {back_end.tenant.token}")


def _refresh(line: Line, back_end: BackEnd) -> None:
    line.call("POST", "/authmgr/token", {"grant_type": "refresh_token", "refresh_token": back_end.refresh_token})
    back_end.refresh_token = json.loads(line.body)["refresh_token"]


def _credential(line: Line, back_end: BackEnd) -> None:
    line.call("GET", back_end.credential, Authorization=f"Bearer {back_end.token}")


def _client_credentials(line: Line, back_end: BackEnd) -> None:
    line.call("POST", "/authmgr/token", {"grant_type": "client_credentials"}, Authorization=back_end.basic)
    back_end.token = json.loads(line.body)["access_token"]


def _introspection(line: Line, back_end: BackEnd) -> None:
    line.call("POST", "/authmgr/token/introspect", {"token": back_end.token}, Authorization=back_end.basic)
    assert json.loads(line.body)["active"]
