"""Targets 25 to 32: what a tenant's users, applications and administration do, beside Keycloak with realms.

Both are on the run's PostgreSQL, with the same users in as many realms as tenants, visited at random, and the same argon2id
hashes. Keycloak runs on its defaults in production mode. Not in a run of everything: it needs Java and Maven.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any, Final
from uuid import uuid4

from django.utils.timezone import now

from bench import java, journey, world
from bench.issuers import CALLBACK, Issuer, json_post
from bench.measures import growth
from bench.measures.fleet import NotThere
from bench.measures.reads import cost, ratio_of_all_cpu
from bench.peers.keycloak import distribution
from bench.peers.keycloak.realms import Realms
from bench.rounds import CONNECTIONS, Sample, Subject, middle
from bench.run import Row, Run
from bench.servers import Server
from tenants.entering import lookup
from userflow.accounts.permissions_catalogue import EVERY_PERMISSION
from userflow.accounts.principals import OPERATOR, Principal
from userflow.clients.actions import create_client

# Of each round and program; they stay.
NEW_USERS_PER_SECOND = 40


@dataclass(frozen=True)
class Program:
    """A running server with its tenants or realms, and the tokens of one user of each."""

    name: str
    server: Server
    issuers: Sequence[Issuer]
    tokens: Sequence[str]


@dataclass(frozen=True)
class Operation:
    """A request that both have: the name of its samples, its load, and by CPU how many times as cheap it must be."""

    name: str
    what: str
    target: str
    least: float
    subject: Callable[[Program, Run], Subject]


def measure(run: Run) -> list[Row]:
    """Measure a start with one tenant, every operation, the memory after them, and growth. Raises NotThere."""
    run.say("Keycloak")
    try:
        keycloak = distribution.install(run.home.folder.parent)
    except java.JavaMissing as missing:
        raise NotThere(f"left out, it {missing}") from missing
    distribution.create_database(run.home)
    steps = run.sizes.realms
    grown = growth.measure(run, keycloak, [step for step in steps if step <= run.sizes.issuers])
    with ExitStack() as running:
        platform = running.enter_context(growth.platform(run.home))
        peer = running.enter_context(distribution.serving(run.home, keycloak))
        tenants = world.tenants_with_users(run.sizes.issuers, run.sizes.users_of_issuer, run.say)
        run.say("users of the realms")
        realms = Realms(peer, keycloak)
        programs = [
            _program("platform", platform, [_issuer(tenant) for tenant in tenants]),
            _program(
                "keycloak", peer, [realms.create(f"users-{uuid4().hex[:8]}", tenant.emails) for tenant in tenants]
            ),
        ]
        taken = {
            each.name: run.compare(f"keycloak_{each.name}", [each.subject(program, run) for program in programs])
            for each in OPERATIONS
        }
        memory = growth.memory(run.home, platform, peer)
    run.raw["keycloak_memory"] = memory
    grown |= growth.measure(run, keycloak, [step for step in steps if step > run.sizes.issuers])
    run.raw["keycloak_growth"] = grown
    return [
        *(_row(each, taken[each.name]) for each in OPERATIONS),
        *_rows_of_sign_in(taken["sign_in"], taken["login"]),
        *growth.rows(grown, memory),
    ]


# --- the operations --------------------------------------------------------------------------------------------------


def _shuffled(program: Program, run: Run, request: Callable[[Issuer, str], Any]) -> list[Any]:
    """Return a request for every user, in random order."""
    walk = [(issuer, email) for issuer in program.issuers for email in issuer.emails]
    random.Random(3).shuffle(walk)
    return [request(issuer, email) for issuer, email in walk]


def _sign_in(program: Program, run: Run) -> Subject:
    return Subject(program.name, program.server, [], journeys=_shuffled(program, run, Issuer.journey))


def _login(program: Program, run: Run) -> Subject:
    return Subject(program.name, program.server, _shuffled(program, run, Issuer.login_request))


def _refresh(program: Program, run: Run) -> Subject:
    issuer = program.issuers[0]
    head, body = issuer.refresh_template()

    def first() -> list[bytes]:
        users = [issuer.emails[number % len(issuer.emails)] for number in range(CONNECTIONS)]
        contents = [body.replace("{token}", _tokens(program.server, issuer, email)["refresh_token"]) for email in users]
        return [f"{head}Content-Length: {len(content)}\r\n\r\n{content}".encode("ascii") for content in contents]

    return Subject(program.name, program.server, [], renewal=(head, body), prepare=first)


def _new_user(program: Program, run: Run) -> Subject:
    def new() -> list[bytes]:
        issuers = random.Random(3).choices(program.issuers, k=max(8, int(NEW_USERS_PER_SECOND * run.seconds)))
        return [issuer.new_user_request(f"new-{uuid4().hex}@example.com") for issuer in issuers]

    return Subject(program.name, program.server, [], prepare=new, once=True, expects=201)


def _each(request: Callable[[Issuer], Sequence[bytes]]) -> Callable[[Program, Run], Subject]:
    """Return a load of the same requests at every issuer, in random order."""

    def subject(program: Program, run: Run) -> Subject:
        requests = [each for issuer in program.issuers for each in request(issuer)]
        random.Random(3).shuffle(requests)
        return Subject(program.name, program.server, requests)

    return subject


def _with_tokens(request: Callable[[Issuer, str], bytes]) -> Callable[[Program, Run], Subject]:
    """Return a load of requests about the token of a user of each issuer."""

    def subject(program: Program, run: Run) -> Subject:
        pairs = zip(program.issuers, program.tokens, strict=True)
        return Subject(program.name, program.server, [request(issuer, token) for issuer, token in pairs])

    return subject


OPERATIONS: Final = (
    Operation("sign_in", "hosted sign-in: code flow with PKCE, to the tokens", "25", 2.5, _sign_in),
    Operation("login", "login with a password, without a page", "29", 2.5, _login),
    Operation("refresh", "refresh of an application", "28", 2.5, _refresh),
    Operation("client_credentials", "client_credentials", "28", 1.5, _each(lambda issuer: [issuer.client_credentials()])),
    Operation("introspection", "introspection of a user's token", "26", 0.5, _with_tokens(Issuer.introspection)),
    Operation(
        "userinfo", "userinfo", "26", 0.5, _with_tokens(lambda issuer, token: world.get(issuer.userinfo, token))
    ),
    Operation("new_user", "new user with a password", "30", 2.5, _new_user),
    Operation(
        "list", "list of 20 users", "29", 3.0,
        _each(lambda issuer: [world.get(path, issuer.administration.removeprefix("Bearer ")) for path in issuer.lists]),
    ),
    Operation(
        "metadata", "metadata and keys", "27", 1.5,
        _each(lambda issuer: [world.get(issuer.metadata), world.get(issuer.keys)]),
    ),
)  # fmt: skip


def _row(operation: Operation, taken: dict[str, list[Sample]]) -> Row:
    by_cpu = 1 / ratio_of_all_cpu(taken, "platform", "keycloak")
    return Row(
        operation.target,
        operation.what,
        ours=_cost(taken["platform"]),
        against=f"Keycloak: {_cost(taken['keycloak'])}",
        ratio=by_cpu,
        wanted=f"≥ {operation.least} by CPU",
        met=by_cpu >= operation.least,
        beside=f"by requests/s {middle(taken['platform']) / middle(taken['keycloak']):.2f}x",
    )


def _rows_of_sign_in(hosted: dict[str, list[Sample]], login: dict[str, list[Sample]]) -> list[Row]:
    ratio = ratio_of_all_cpu({"hosted": hosted["platform"], "login": login["platform"]}, "hosted", "login")
    requests = {name: middle(samples, "requests_of_each") for name, samples in hosted.items()}
    return [
        Row(
            "25",
            "the same hosted sign-in",
            ours=cost(hosted["platform"]),
            against=f"our login without a page: {cost(login['platform'])}",
            ratio=ratio,
            wanted="≤ 1.4 by CPU",
            met=ratio <= 1.4,
        ),
        Row(
            "25",
            "requests of a hosted sign-in",
            ours=f"{requests['platform']:.0f}",
            against=f"Keycloak: {requests['keycloak']:.0f}",
            ratio=requests["platform"] / requests["keycloak"],
            wanted="≤ 4 requests",
            met=requests["platform"] <= 4,
        ),
    ]


def _cost(samples: Sequence[Sample]) -> str:
    return f"{cost(samples)}, p50 {middle(samples, 'p50_ms'):.1f} ms, p99 {middle(samples, 'p99_ms'):.1f} ms"


# --- the programs ----------------------------------------------------------------------------------------------------


def _program(name: str, server: Server, issuers: Sequence[Issuer]) -> Program:
    """Return the program after one user of each issuer has signed in."""
    tokens = [str(_tokens(server, issuer, issuer.emails[0])["access_token"]) for issuer in issuers]
    return Program(name, server, issuers, tokens)


def _tokens(server: Server, issuer: Issuer, email: str) -> dict[str, Any]:
    tokens, _ = journey.sign_in(HTTPConnection("127.0.0.1", server.port, timeout=60), issuer.sign_in(email))
    return tokens


def _issuer(tenant: world.BenchTenant) -> Issuer:
    """Return the tenant with an application, which is its default client, and a back end."""
    world.register_redirect_uri(tenant, CALLBACK)
    operator = Principal(OPERATOR, uuid4(), None, None, None, (), frozenset(EVERY_PERMISSION), auth_time=now())
    back_end, secret = create_client(
        tenant_id=tenant.tenant_id, by=operator, name="Back end", type="confidential", scopes=["services:read"]
    )
    root, client = f"/t/{lookup.find(tenant.tenant_id).slug}", str(tenant.client_id)
    user = {"tenant_id": str(tenant.tenant_id), "client_id": client}
    path = f"/uflow/user/enduser/list?tenant_id={tenant.tenant_id}&limit=20&page="
    return Issuer(
        authorize=f"{root}/authorize",
        token=f"{root}/token",
        userinfo=f"{root}/userinfo",
        introspect=f"{root}/introspect",
        metadata=f"{root}/.well-known/openid-configuration",
        keys=f"{root}/jwks",
        client_id=client,
        back_end=f"Basic {base64.b64encode(f'{back_end.pk}:{secret}'.encode()).decode()}",
        administration=f"Bearer {tenant.token}",
        lists=tuple(f"{path}{page}" for page in range(1, max(2, len(tenant.emails) // 20 + 1))),
        emails=tenant.emails,
        login=lambda email, password: json_post(
            "/uflow/auth/enduser/login", {"client_id": client, "email": email, "password": password}
        ),
        new_user=lambda email, password: json_post(
            "/uflow/user/clients/register", {**user, "email": email, "password": password, "name": "Person"}
        ),
    )
