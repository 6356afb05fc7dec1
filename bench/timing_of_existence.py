"""Does the time of a response tell whether an address has an account?

Requests about free and about taken addresses come in random order in this process, through the whole stack without the
socket, where the tenant requires verified addresses. For each endpoint it prints the probability that a random request about
a taken address takes longer than a random one about a free address (the area under the ROC curve): 0.5 tells nothing.
`python -m bench.timing_of_existence --help` says how to run it; the machine should do nothing else.
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import random
import re
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import console, home

if TYPE_CHECKING:
    from uuid import UUID

    from django.test import Client
    from django.test.client import ClientHandler

PASSWORD, WRONG = "correct horse 9 battery", "wrong horse 8 battery"
# What a measurement must stay within: one request is then right in at most 55 %.
LEAST, MOST = 0.45, 0.55
_FORM_TOKEN = re.compile(r'name="form_token" value="([^"]+)"')


@dataclass(frozen=True)
class Subject:
    """The tenant that is asked, and the handler of the requests."""

    tenant_id: str
    slug: str
    client_id: str
    handler: ClientHandler

    def client(self) -> Client:
        """Return a new caller, from an address of its own."""
        from django.test import Client

        caller = Client(REMOTE_ADDR=f"10.{'.'.join(str(secrets.randbelow(254) + 1) for _ in range(3))}")
        caller.handler = self.handler
        return caller

    def call(self, path: str, body: Mapping[str, object]) -> Callable[[], Any]:
        """Return one call of the API, ready to be timed."""
        caller, raw = self.client(), json.dumps(body)
        return lambda: caller.post(path, raw, content_type="application/json")

    def register(self, email: str) -> Callable[[], Any]:
        body = {"tenant_id": self.tenant_id, "client_id": self.client_id, "email": email, "password": PASSWORD}
        return self.call("/uflow/user/clients/register", body)

    def register_at_page(self, email: str) -> Callable[[], Any]:
        caller, path = self.client(), f"/t/{self.slug}/register"
        token = _FORM_TOKEN.search(caller.get(path).content.decode())
        assert token is not None
        fields = {"form_token": token[1], "email": email, "name": "", "password": PASSWORD}
        return lambda: caller.post(path, fields)

    def verify_code(self, email: str) -> Callable[[], Any]:
        return self.call("/uflow/user/email/verify", {"tenant_id": self.tenant_id, "email": email, "code": "000000"})

    def forgot(self, email: str) -> Callable[[], Any]:
        return self.call("/uflow/auth/enduser/password/forgot", {"tenant_id": self.tenant_id, "email": email})

    def resend(self, email: str) -> Callable[[], Any]:
        return self.call("/uflow/user/email/resend", {"tenant_id": self.tenant_id, "email": email})

    def login(self, email: str) -> Callable[[], Any]:
        return self.call("/uflow/auth/enduser/login", {"client_id": self.client_id, "email": email, "password": WRONG})


def probability_slower(taken: list[float], free: list[float]) -> float:
    """Return the probability that a random one of `taken` is greater than a random one of `free`; ties count half."""
    ordered = sorted(free)
    wins = sum((bisect.bisect_left(ordered, one) + bisect.bisect_right(ordered, one)) / 2 for one in taken)
    return wins / (len(taken) * len(free))


def compare(
    ask: Callable[[str], Callable[[], Any]], taken: list[str], samples: int
) -> tuple[list[float], list[float], set[int]]:
    """Time `samples` requests about taken addresses and as many about free ones; in milliseconds.

    Their order is random as a whole: in pairs, a request about a free address would follow one about a taken one more often
    than not, whose mail has just displaced what the processor had cached.
    """
    from userflow.mail_delivery import background

    times: dict[bool, list[float]] = {True: [], False: []}
    statuses: set[int] = set()
    kinds = [True, False] * samples
    random.shuffle(kinds)
    unused = iter(taken)
    for is_taken in kinds:
        send = ask(next(unused) if is_taken else _address())
        began = time.perf_counter()
        response = send()
        times[is_taken].append((time.perf_counter() - began) * 1000)
        statuses.add(response.status_code)
        # What runs after a response must not slow the next one down.
        background.settle(60)
    return times[True], times[False], statuses


def measure(samples: int, only: str = "") -> bool:
    """Make a tenant with users, print one line for each endpoint; return whether all stay within the bounds."""
    from django.conf import settings
    from django.test.client import ClientHandler

    from tenants.models import Tenant
    from userflow.tenants.actions import open_tenant

    settings.LIMITS.update({name: (10**9, seconds) for name, (_, seconds) in settings.LIMITS.items()})
    settings.EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
    settings.ALLOWED_HOSTS = ["*"]
    made = open_tenant(name="Timing", slug=f"timing-{secrets.token_hex(4)}")
    Tenant.objects.filter(pk=made.tenant.pk).update(settings={"email_verification": "required"})
    subject = Subject(str(made.tenant.pk), made.tenant.slug, str(made.client_id), ClientHandler(False))
    users, waiting = _people(made.tenant.pk, made.client_id, samples)
    measurements = (
        ("POST /uflow/user/clients/register", subject.register, users),
        ("POST /t/{slug}/register", subject.register_at_page, users),
        ("POST …/email/verify, a wrong code", subject.verify_code, waiting),
        ("POST …/email/resend", subject.resend, waiting),
        ("POST …/password/forgot", subject.forgot, users),
        ("POST …/enduser/login, a wrong password", subject.login, users),
    )
    within = True
    for name, ask, addresses in measurements:
        if only not in name:
            continue
        slower, free, statuses = compare(ask, addresses, samples)
        probability = probability_slower(slower, free)
        within = within and LEAST <= probability <= MOST
        medians = f"{statistics.median(slower):7.2f} ms taken, {statistics.median(free):7.2f} ms free"
        print(f"{name:42} {probability:.3f}  {medians}  {sorted(statuses)}", flush=True)
    return within


def _people(tenant_id: UUID, client_id: UUID, number: int) -> tuple[list[str], list[str]]:
    """Store users with verified addresses, and registrations that wait; return their addresses."""
    from django.utils.timezone import now

    from tenants.entering.context import in_tenant
    from userflow.accounts.models import EndUser
    from userflow.credentials import passwords
    from userflow.credentials.email_verification import issue_secrets
    from userflow.credentials.models import PendingRegistration

    users, waiting = [_address() for _ in range(number)], [_address() for _ in range(number)]
    common = {"client_id": client_id, "name": "", "password": passwords.hashed(PASSWORD)}
    with in_tenant(tenant_id) as tenant:
        EndUser.objects.bulk_create(
            EndUser(email=email, email_key=email, email_verified_at=now(), **common) for email in users
        )
        rows = [PendingRegistration(email=email, email_key=email, **common) for email in waiting]
        for row in rows:
            issue_secrets(row, tenant)
        PendingRegistration.objects.bulk_create(rows)
    return users, waiting


def _address() -> str:
    return f"{secrets.token_hex(8)}@example.com"


def main() -> None:
    """Measure on embedded servers of its own; exit 1 if an endpoint is outside the bounds."""
    parser = argparse.ArgumentParser(prog="bench.timing_of_existence", description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=1000, help="requests about each kind of address (1000)")
    parser.add_argument("--only", default="", help="a part of the name of the endpoints to measure")
    options = parser.parse_args()
    var = Path(os.environ.get("IDENTITY_VAR") or home.ROOT / "var").resolve()
    with home.opened(var / "bench-timing", keep=False) as own:
        os.environ.update(own.environment)
        console._prepare()
        within = measure(options.samples, options.only)
    sys.exit(0 if within else 1)


if __name__ == "__main__":
    main()
