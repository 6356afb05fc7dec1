"""Targets 6 and 7: login, session read and refresh beside django-allauth, better-auth and fastapi-users.

All use the same PostgreSQL server, the same number of users with the same argon2id hash, as many processes as cores, and
eight callers. The platform has everything on; the peers have no rate limits. Of the peers only django-allauth has refresh
tokens: better-auth extends a session once a day while it is read, fastapi-users has none.
"""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlencode

import psycopg
from django.conf import settings

from bench import environments, servers, world
from bench.home import ROOT, Home
from bench.measures.reads import cost, ratio_of_all_cpu
from bench.rounds import CONNECTIONS, Sample, Subject, WrongAnswers, middle, ratio
from bench.run import Row, Run
from bench.servers import Server
from bench.subjects import LEAVES_OUT, REFRESH_LEAVES_OUT
from tenants.entering import lookup

PEOPLE: Final = 200
JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Login:
    """A login request, and what the response's body and headers make: headers of a session read, the refresh token."""

    path: str
    kind: str
    body: Callable[[str], str]
    session: Callable[[Any, http.client.HTTPMessage], dict[str, str]]
    refresh_token: Callable[[Any], str] = lambda body: str(body["refresh_token"])


@dataclass(frozen=True)
class Programs:
    """Commands of a peer: one makes its tables, one serves. `answers` is a path that responds as soon as it serves."""

    prepare: Sequence[Any]
    serve: Sequence[Any]
    answers: str


@dataclass(frozen=True)
class Peer:
    """A program that signs users in, too."""

    name: str
    programs: Callable[[Home], Programs]
    # One user: parameters are the e-mail address and the argon2id hash in PHC format.
    add_user: tuple[str, ...]
    login: Login
    read: str
    # How many times as fast the platform must be, by requests per second and by CPU; reads by CPU only.
    login_wanted: float
    read_wanted: float
    environment: dict[str, str] = field(default_factory=dict)


def _allauth(home: Home) -> Programs:
    python = environments.python_of("allauth", home.folder.parent)
    module = "bench.peers.allauth.peer"
    granian = [python, "-P", "-m", "granian", "--interface", "wsgi", "--http", "1", "--no-ws", "--host", "127.0.0.1"]
    sizes = ["--workers", home.environment["WEB_WORKERS"], "--blocking-threads", settings.WEB_THREADS]
    serve = [*granian, "--port", "{port}", *sizes, "--log-level", "warning", f"{module}:application"]
    return Programs([python, "-P", "-m", module], serve, answers="/")


def _better_auth(home: Home) -> Programs:
    node, folder = environments.node_of("better_auth", home.folder.parent)
    return Programs([node, folder / "server.mjs", "migrate"], [node, folder / "server.mjs"], answers="/api/auth/ok")


def _fastapi_users(home: Home) -> Programs:
    python = environments.python_of("fastapi_users", home.folder.parent)
    module = "bench.peers.fastapi_users.peer"
    uvicorn = [python, "-P", "-m", "uvicorn", "--workers", home.environment["WEB_WORKERS"], "--no-access-log"]
    serve = [*uvicorn, "--log-level", "warning", "--host", "127.0.0.1", "--port", "{port}", f"{module}:app"]
    return Programs([python, "-P", "-m", module], serve, answers="/")


def _cookie(_: Any, headers: http.client.HTTPMessage) -> dict[str, str]:
    return {"Cookie": "; ".join(each.split(";", 1)[0] for each in headers.get_all("Set-Cookie", []))}


ALLAUTH: Final = Peer(
    "django-allauth",
    _allauth,
    (
        "INSERT INTO auth_user (password, is_superuser, username, first_name, last_name, email, is_staff, is_active,"
        " date_joined) VALUES ('argon2' || %(hash)s, false, %(email)s, '', '', %(email)s, false, true, now())",
        'INSERT INTO account_emailaddress (email, verified, "primary", user_id)'
        " SELECT email, true, true, id FROM auth_user WHERE email = %(email)s",
    ),
    Login(
        "/_allauth/app/v1/auth/login",
        JSON,
        lambda email: json.dumps({"email": email, "password": world.PASSWORD}),
        lambda body, _: {"X-Session-Token": body["meta"]["session_token"]},
        lambda body: str(body["meta"]["refresh_token"]),
    ),
    "/_allauth/app/v1/auth/session",
    login_wanted=2.0,
    read_wanted=3.0,
)
PEERS: Final = (
    ALLAUTH,
    Peer(
        "better-auth",
        _better_auth,
        (
            'INSERT INTO "user" (id, name, email, "emailVerified", "createdAt", "updatedAt")'
            " VALUES (%(email)s, 'Person', %(email)s, true, now(), now())",
            'INSERT INTO account (id, "accountId", "providerId", "userId", password, "createdAt", "updatedAt")'
            " VALUES (%(email)s, %(email)s, 'credential', %(email)s, %(hash)s, now(), now())",
        ),
        Login(
            "/api/auth/sign-in/email",
            JSON,
            lambda email: json.dumps({"email": email, "password": world.PASSWORD}),
            _cookie,
        ),
        "/api/auth/get-session",
        login_wanted=1.2,
        read_wanted=2.0,
    ),
    Peer(
        "fastapi-users",
        _fastapi_users,
        (
            'INSERT INTO "user" (id, email, hashed_password, is_active, is_superuser, is_verified)'
            " VALUES (gen_random_uuid(), %(email)s, %(hash)s, true, false, true)",
        ),
        Login(
            "/auth/login",
            FORM,
            lambda email: urlencode({"username": email, "password": world.PASSWORD}),
            lambda body, _: {"Authorization": f"Bearer {body['access_token']}"},
        ),
        "/users/me",
        login_wanted=1.2,
        read_wanted=2.0,
    ),
)


def measure(run: Run) -> list[Row]:
    """Log in, then read a session, at the platform and each peer in turn in each round."""
    [tenant] = world.tenants_with_users(1, run.sizes.users, run.say)
    emails = tenant.emails[:PEOPLE]
    ours = _login_of(tenant)
    hashing = {"PEER_HASH": world.password_hash(), "PEER_PASSWORD": world.PASSWORD}
    record = run.home.with_database(lookup.find(tenant.tenant_id).database)
    with ExitStack() as running:
        platform = running.enter_context(servers.platform(run.home))
        bare_hash = running.enter_context(servers.peer(run.home, "hash_only", **hashing))
        bare_view = running.enter_context(servers.peer(run.home, "bare", PEER_DATABASE_URL=record))
        bare_wsgi = running.enter_context(servers.peer(run.home, "wsgi"))
        logins = [_logins("platform", platform, ours, emails), Subject("hash", bare_hash, [world.get("/")])]
        reads = [
            _reads("platform", platform, ours, "/authmgr/profile", emails),
            Subject("drf", bare_view, [world.get(f"/users/{user}") for user in tenant.users]),
            Subject("wsgi", bare_wsgi, [world.get("/")]),
        ]
        for peer in PEERS:
            run.say(peer.name)
            server = running.enter_context(_serving(run.home, peer, emails))
            logins.append(_logins(peer.name, server, peer.login, emails))
            reads.append(_reads(peer.name, server, peer.login, peer.read, emails))
        of_logins = run.compare("peers_login", logins)
        of_reads = run.compare("peers_read", reads)
        of_refreshes = _measure_refresh(run, platform, ours, emails)
    return [
        *(_login_row(of_logins, peer) for peer in PEERS),
        _bare_row(of_logins, "login", "hash", "the bare hash"),
        *(_read_row(of_reads, peer) for peer in PEERS),
        _bare_row(of_reads, "profile of the caller", "drf", "a bare DRF view of one record"),
        _bare_row(of_reads, "profile of the caller", "wsgi", "a bare WSGI response"),
        _refresh_row(of_refreshes),
    ]


def _login_of(tenant: world.BenchTenant) -> Login:
    return Login(
        "/uflow/auth/enduser/login",
        JSON,
        lambda email: json.dumps({"client_id": str(tenant.client_id), "email": email, "password": world.PASSWORD}),
        lambda body, _: {"Authorization": f"Bearer {body['access_token']}"},
    )


def _measure_refresh(run: Run, platform: Server, ours: Login, emails: Sequence[str]) -> dict[str, list[Sample]]:
    """Refresh eight sessions at the platform and at django-allauth with its JWTs, which rotates refresh tokens as well."""
    jwt = replace(ALLAUTH, name=f"{ALLAUTH.name}-jwt", environment={"PEER_TOKENS": "jwt"})
    run.say(jwt.name)
    with _serving(run.home, jwt, emails) as peer:
        form = ("/authmgr/token", FORM, "grant_type=refresh_token&refresh_token={token}")
        json_ = ("/_allauth/app/v1/tokens/refresh", JSON, '{"refresh_token": "{token}"}')
        subjects = [
            _refreshes("platform", platform, ours, emails, *form),
            _refreshes(ALLAUTH.name, peer, jwt.login, emails, *json_),
        ]
        return run.compare("peers_refresh", subjects)


def _refreshes(
    name: str, server: Server, login: Login, emails: Sequence[str], path: str, kind: str, body: str
) -> Subject:
    """Return refreshes, one after the other in each connection, of sessions that each round opens."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"

    def first() -> list[bytes]:
        tokens = [login.refresh_token(_signed_in(server, login, email)[0]) for email in emails[:CONNECTIONS]]
        contents = [body.replace("{token}", token) for token in tokens]
        return [f"{head}Content-Length: {len(content)}\r\n\r\n{content}".encode("ascii") for content in contents]

    return Subject(name, server, [], renewal=(head, body), prepare=first)


@contextmanager
def _serving(home: Home, peer: Peer, emails: Sequence[str]) -> Iterator[Server]:
    """Serve a peer in a database of its own that has these users."""
    database = f"peer_{peer.name.replace('-', '_')}"
    with psycopg.connect(home.environment["DATABASE_URL"], autocommit=True) as raw:
        raw.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        raw.execute(f"CREATE DATABASE {database}")
    programs = peer.programs(home)
    environment = {"PEER_DATABASE_URL": home.with_database(database), "NODE_ENV": "production", **peer.environment}
    surroundings = {**home.environment, **environment, "PYTHONPATH": str(ROOT), "PORT": "0"}
    subprocess.run(list(map(str, programs.prepare)), env=surroundings, check=True, stdout=subprocess.DEVNULL)
    with psycopg.connect(home.with_database(database)) as raw:
        stored = world.password_hash().removeprefix("argon2")
        for statement in peer.add_user:
            for email in emails:
                raw.execute(statement, {"email": email, "hash": stored})
        raw.execute("ANALYZE")
    with servers.running(home, peer.name, programs.serve, environment, path=programs.answers) as server:
        yield server


def _logins(name: str, server: Server, login: Login, emails: Sequence[str]) -> Subject:
    return Subject(name, server, [_post(login, email) for email in emails])


def _reads(name: str, server: Server, login: Login, path: str, emails: Sequence[str]) -> Subject:
    """Return reads of sessions, which this signs in."""
    return Subject(name, server, [_get(path, login.session(*_signed_in(server, login, email))) for email in emails])


def _signed_in(server: Server, login: Login, email: str) -> tuple[Any, http.client.HTTPMessage]:
    """Return the body and the headers of the response to a login."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", login.path, login.body(email), {"Content-Type": login.kind})
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise WrongAnswers(f"{server.name} answered a login with {response.status}: {body[:300]!r}")
    connection.close()
    return json.loads(body), response.headers


def _post(login: Login, email: str) -> bytes:
    body = login.body(email).encode()
    head = f"POST {login.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {login.kind}\r\nContent-Length: {len(body)}"
    return head.encode("ascii") + b"\r\n\r\n" + body


def _get(path: str, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n{lines}\r\n".encode("ascii")


def _login_row(taken: dict[str, list[Sample]], peer: Peer) -> Row:
    by_rate, by_cpu = ratio(taken, "platform", peer.name), 1 / ratio_of_all_cpu(taken, "platform", peer.name)
    return Row(
        "6",
        "login",
        ours=_cost(taken["platform"]),
        against=f"{peer.name}: {_cost(taken[peer.name])}",
        ratio=by_rate,
        wanted=f"≥ {peer.login_wanted}, by CPU too",
        met=min(by_rate, by_cpu) >= peer.login_wanted,
        beside=f"by CPU {by_cpu:.2f}x; the peer leaves out {LEAVES_OUT[peer.name]}",
    )


def _read_row(taken: dict[str, list[Sample]], peer: Peer) -> Row:
    by_cpu = 1 / ratio_of_all_cpu(taken, "platform", peer.name)
    return Row(
        "7",
        "profile of the caller",
        ours=_cost(taken["platform"]),
        against=f"{peer.name}: {_cost(taken[peer.name])}",
        ratio=by_cpu,
        wanted=f"≥ {peer.read_wanted} by CPU",
        met=by_cpu >= peer.read_wanted,
        beside=f"by requests/s {ratio(taken, 'platform', peer.name):.2f}x; the peer leaves out {LEAVES_OUT[peer.name]}",
    )


def _refresh_row(taken: dict[str, list[Sample]]) -> Row:
    return Row(
        "–",
        "refresh",
        ours=_cost(taken["platform"]),
        against=f"{ALLAUTH.name} with JWTs: {_cost(taken[ALLAUTH.name])}",
        ratio=ratio(taken, "platform", ALLAUTH.name),
        wanted="no target",
        met=True,
        beside=f"by CPU {1 / ratio_of_all_cpu(taken, 'platform', ALLAUTH.name):.2f}x; the peer leaves out"
        f" {LEAVES_OUT[ALLAUTH.name]}, {REFRESH_LEAVES_OUT}",
    )


def _bare_row(taken: dict[str, list[Sample]], what: str, name: str, bare: str) -> Row:
    return Row(
        "–",
        what,
        ours=_cost(taken["platform"]),
        against=f"{bare}: {_cost(taken[name])}",
        ratio=ratio(taken, "platform", name),
        wanted="no target",
        met=True,
        beside=f"by CPU {1 / ratio_of_all_cpu(taken, 'platform', name):.2f}x",
    )


def _cost(samples: Sequence[Sample]) -> str:
    return f"{cost(samples)}, p50 {middle(samples, 'p50_ms'):.1f} ms, p99 {middle(samples, 'p99_ms'):.1f} ms"
