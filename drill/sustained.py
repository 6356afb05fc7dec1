"""`bin/drill load`: requests as in real use for some minutes, and whether memory, threads and connections stay the same."""

from __future__ import annotations

import base64
import json
import random
import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psutil
import psycopg
from django_otp.oath import totp
from rich.console import Console

from drill.cluster import NotThere
from drill.load import Client
from drill.world import World

if TYPE_CHECKING:
    from bench.world import BenchTenant

TENANTS = 50
USERS_PER_TENANT = 4
PER_SECOND = 60.0
CALLERS = 16
SAMPLE_SECONDS = 15.0
STEP_SECONDS = 30.0
# Of a hundred requests.
MIX = {
    "profile": 33,
    "list": 15,
    "refresh": 17,
    "credential": 20,
    "login": 9,
    "registration": 3,
    "totp": 3,
}
# Caches, pools and threads fill in the beginning, last the cache of verified tokens. Later, the median of the last third may be
# this much above that of the first.
WARM_UP_SECONDS = 600.0
GROWTH = {"memory (MiB)": 1.05, "threads": 1.05, "connections": 1.10}
# A few more are no growth, however small the number is.
ALLOWED = {"memory (MiB)": 16.0, "threads": 4.0, "connections": 10.0}
BEGIN, END = "<!-- Written by bin/drill load. -->\n", "<!-- End of what bin/drill load writes. -->\n"


@dataclass
class User:
    """An end user with a session, and with an authenticator app if there is a secret."""

    tenant: BenchTenant
    email: str
    session: dict[str, Any]
    secret: bytes | None = None
    # The time step of the last code: each works once.
    step: int = 0


@dataclass
class BackEnd:
    """A tenant's back end, which reads the secret of a service."""

    token: str
    path: str


@dataclass(frozen=True)
class Sample:
    """What the platform used at one moment, in seconds since the beginning."""

    at: float
    values: dict[str, float]


@dataclass
class Measured:
    """Statuses and times (in seconds) of the responses, by kind of request; and the samples."""

    statuses: dict[str, Counter[str]] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)

    def add(self, kind: str, statuses: Counter[str], seconds: float) -> None:
        self.statuses.setdefault(kind, Counter()).update(statuses)
        self.times.setdefault(kind, []).append(seconds)


class Traffic:
    """Users and back ends of all tenants, and the requests that they make."""

    def __init__(self, port: int, password: str) -> None:
        self.port, self.password = port, password
        self.users: deque[User] = deque()
        self.enrolled: deque[User] = deque()
        self.tenants: list[BenchTenant] = []
        self.back_ends: list[BackEnd] = []
        self.measured = Measured()
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.due = 0.0

    def add_tenant(self, tenant: BenchTenant) -> None:
        """Sign all users of a tenant in; half of them set up an authenticator app. Raises NotThere."""
        caller = Client(self.port, tenant.tenant_id)
        for number, email in enumerate(tenant.emails[:USERS_PER_TENANT]):
            user = User(tenant, email, _expected(*self._login(caller, tenant, email)))
            if number % 2:
                self._enroll(caller, user)
                self.enrolled.append(user)
            else:
                self.users.append(user)
        self.back_ends.append(_back_end(caller, tenant))
        self.tenants.append(tenant)

    def _login(self, caller: Client, tenant: BenchTenant, email: str) -> tuple[int, dict[str, Any]]:
        body = {"client_id": str(tenant.client_id), "email": email, "password": self.password}
        return caller.call("POST", "/uflow/auth/enduser/login", body)

    def _enroll(self, caller: Client, user: User) -> None:
        who = {"tenant_id": str(user.tenant.tenant_id), "email": user.email}
        begun = _expected(*caller.call("POST", "/webauthn/totp/beginSetup", who))
        secret = base64.b32decode(begun["secret"])
        code = f"{totp(secret, t0=0):06d}"
        _expected(*caller.call("POST", "/webauthn/totp/confirmSetup", {**who, "secret": begun["secret"], "code": code}))
        user.secret, user.step = secret, int(time.time() // STEP_SECONDS)

    def work(self, caller: Client) -> None:
        """Make the next request when it is due, until the end. Its time counts from when it was due."""
        chance = random.Random()
        while not self.ended.is_set():
            with self.lock:
                self.due = due = max(self.due, time.monotonic() - 5) + 1 / PER_SECOND
            self.ended.wait(max(0.0, due - time.monotonic()))
            [kind] = chance.choices(list(MIX), weights=list(MIX.values()))
            before = caller.heard.statuses.copy()
            kind = self._request(caller, kind, chance)
            seconds = time.monotonic() - due
            with self.lock:
                self.measured.add(kind, caller.heard.statuses - before, seconds)

    def _request(self, caller: Client, kind: str, chance: random.Random) -> str:
        """Make a request of a kind; return the kind. Without a user whose next code is due, it is a read of a profile."""
        if kind == "totp" and (user := self._with_code()) is not None:
            self._prove(caller, user)
        elif kind == "credential":
            back_end = chance.choice(self.back_ends)
            caller.call("GET", back_end.path, token=back_end.token)
        elif kind == "registration":
            tenant = chance.choice(self.tenants)
            who = {"tenant_id": str(tenant.tenant_id), "client_id": str(tenant.client_id)}
            body = {**who, "email": f"new-{uuid4().hex}@example.com", "password": self.password}
            caller.call("POST", "/uflow/user/clients/register", body)
        elif kind == "list":
            tenant = chance.choice(self.tenants)
            caller.call("GET", f"/uflow/user/enduser/list?tenant_id={tenant.tenant_id}&limit=20", token=tenant.token)
        else:
            # No other caller has the user meanwhile: a refresh token works once.
            with self.lock:
                user = self.users.popleft() if self.users else None
            if user is None:
                return self._request(caller, "credential", chance)
            kind = self._of_user(caller, kind, user)
            self.users.append(user)
        return kind

    def _of_user(self, caller: Client, kind: str, user: User) -> str:
        if kind == "login":
            _, said = self._login(caller, user.tenant, user.email)
            user.session = said or user.session
        elif kind == "refresh":
            body = {"grant_type": "refresh_token", "client_id": str(user.tenant.client_id)}
            _, said = caller.call("POST", "/authmgr/token", {**body, "refresh_token": user.session["refresh_token"]})
            user.session = said or user.session
        else:
            caller.call("GET", "/authmgr/profile", token=user.session["access_token"])
            return "profile"
        return kind

    def _with_code(self) -> User | None:
        with self.lock:
            if self.enrolled and self.enrolled[0].step < int(time.time() // STEP_SECONDS):
                user = self.enrolled.popleft()
                user.step = int(time.time() // STEP_SECONDS)
                return user
        return None

    def _prove(self, caller: Client, user: User) -> None:
        assert user.secret is not None
        _, said = self._login(caller, user.tenant, user.email)
        if "mfa_token" in said:
            proof = {"code": f"{totp(user.secret, t0=0):06d}", "mfa_token": said["mfa_token"]}
            who = {"tenant_id": str(user.tenant.tenant_id), "email": user.email}
            caller.call("POST", "/webauthn/totp/verifyLogin", {**who, **proof})
        with self.lock:
            # The code may be of the step after the one that was looked at.
            user.step = int(time.time() // STEP_SECONDS)
            self.enrolled.append(user)


def _back_end(caller: Client, tenant: BenchTenant) -> BackEnd:
    services = "/exsvc/api/v1/services"
    service = {"name": f"Load {uuid4()}", "type": "crm", "base_url": "https://crm.example.com"}
    made = _expected(*caller.call("POST", services, service, tenant.token))
    path = f"{services}/{made['id']}/credentials"
    _expected(*caller.call("POST", path, {"name": "key", "type": "api_key", "secret": "sk_live_1234"}, tenant.token))
    client = {"name": f"Back end {uuid4()}", "type": "confidential", "scopes": ["services:credentials"]}
    known = _expected(*caller.call("POST", f"/clientms/tenants/{tenant.tenant_id}/clients", client, tenant.token))
    grant = {"grant_type": "client_credentials", "scope": "services:credentials"}
    login = {"client_id": known["client_id"], "client_secret": known["client_secret"]}
    token = _expected(*caller.call("POST", "/authmgr/token", {**grant, **login}))["access_token"]
    return BackEnd(token, path)


def _expected(status: int, said: dict[str, Any]) -> dict[str, Any]:
    if not 200 <= status < 300:
        raise NotThere(f"The load cannot begin: a request got {status}.")
    return said


def run(world: World, minutes: float, console: Console) -> Measured:
    """Load the platform for some minutes. Raises NotThere."""
    from bench.world import PASSWORD, tenants_with_users

    traffic = Traffic(world.port, PASSWORD)
    with console.status("") as status:
        for tenant in tenants_with_users(TENANTS, USERS_PER_TENANT, status.update):
            status.update(f"signing in users of tenant {len(traffic.back_ends) + 1} of {TENANTS}")
            traffic.add_tenant(tenant)
        callers = [Client(world.port, uuid4()) for _ in range(CALLERS)]
        threads = [threading.Thread(target=traffic.work, args=(caller,), daemon=True) for caller in callers]
        began = time.monotonic()
        traffic.due = began
        for thread in threads:
            thread.start()
        try:
            while (spent := time.monotonic() - began) < minutes * 60:
                traffic.measured.samples.append(Sample(spent, _values(world)))
                status.update(f"{spent / 60:.1f} of {minutes:g} minutes")
                time.sleep(min(SAMPLE_SECONDS, max(0.0, minutes * 60 - spent)))
            traffic.measured.samples.append(Sample(time.monotonic() - began, _values(world)))
        finally:
            traffic.ended.set()
            for thread in threads:
                thread.join(30)
    return traffic.measured


def _values(world: World) -> dict[str, float]:
    first = psutil.Process(world.server.process.pid)
    processes = [first, *first.children(recursive=True)]
    with psycopg.connect(**world.cluster.node("leader").address()) as raw:
        row = raw.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'identity'").fetchone()
    assert row is not None
    return {
        "memory (MiB)": sum(process.memory_info().rss for process in processes) / (1 << 20),
        "threads": sum(process.num_threads() for process in processes),
        "connections": row[0],
    }


def verdict(samples: Sequence[Sample], what: str, warm_up: float = WARM_UP_SECONDS) -> tuple[str, bool]:
    """Return how a value has developed after the warm-up, and whether it stayed the same.

    The medians of the first and of the last third are compared. Too few samples are no growth, and say so.
    """
    values = [sample.values[what] for sample in samples if sample.at >= warm_up]
    if len(values) < 9:
        return "too short for a verdict", True
    third = len(values) // 3
    first, last = statistics.median(values[:third]), statistics.median(values[-third:])
    flat = last <= max(first * GROWTH[what], first + ALLOWED[what])
    return f"{first:.0f} → {last:.0f}", flat


def lines(measured: Measured, minutes: float, about: dict[str, Any]) -> list[str]:
    """Return the section of the page, in Markdown."""
    found = ["| requests | number | failed | p50 (ms) | p95 (ms) | p99 (ms) |", "|---|---|---|---|---|---|"]
    for kind in [kind for kind in MIX if kind in measured.times]:
        found.append(_row(kind, measured.statuses[kind], measured.times[kind]))
    statuses = sum(measured.statuses.values(), Counter[str]())
    found.append(_row("all", statuses, [one for times in measured.times.values() for one in times]))
    found += ["", "| of the platform | first third → last third | stays the same |", "|---|---|---|"]
    for what in GROWTH:
        said, flat = verdict(measured.samples, what)
        found.append(f"| {what} | {said} | {'yes' if flat else 'NO'} |")
    ran = (
        "{minutes:g} minutes with {tenants} tenants: {began}, commit {commit}, {cores} cores, PostgreSQL {postgresql}."
    )
    return [*found, "", ran.format(minutes=minutes, tenants=TENANTS, **about)]


def met(measured: Measured) -> bool:
    """Return whether no request failed and everything stayed the same."""
    statuses = sum(measured.statuses.values(), Counter[str]())
    return not _failed(statuses) and all(verdict(measured.samples, what)[1] for what in GROWTH)


def write(folder: Path, page: Path, measured: Measured, section: list[str]) -> None:
    """Write `load.json` with the samples, and the section into the page."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "samples": [{"at": round(one.at, 1), **one.values} for one in measured.samples],
        "statuses": measured.statuses,
    }
    (folder / "load.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    text = "\n".join(section)
    page.write_text(f"{before}{BEGIN}\n{text}\n\n{END}{after}", encoding="utf-8")


def _row(kind: str, statuses: Counter[str], times: list[float]) -> str:
    failed = ", ".join(f"{number} × {status}" for status, number in sorted(_failed(statuses).items())) or "0"
    p50, p95, p99 = (_quantile(times, share) * 1000 for share in (0.50, 0.95, 0.99))
    return f"| {kind} | {len(times)} | {failed} | {p50:.0f} | {p95:.0f} | {p99:.0f} |"


def _failed(statuses: Counter[str]) -> dict[str, int]:
    return {status: number for status, number in statuses.items() if not status.startswith("2")}


def _quantile(times: list[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
