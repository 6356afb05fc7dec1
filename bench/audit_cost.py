"""The cost of auditing a sign-in: the same sign-ins with and without it, interleaved in one process.

Run it with `bin/manage shell -c "from bench.audit_cost import measure; measure()"`. It makes a tenant of its own and
deletes it at the end. The password hash dominates a sign-in, so the second line says what is left without it.
"""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.conf import settings

from identity_platform.audit import writer
from tenants.entering.context import in_tenant
from tenants.lifecycle import provisioning
from userflow.credentials import passwords
from userflow.endusers.actions import register_end_user
from userflow.signin.password import sign_in_end_user
from userflow.tenants.actions import open_tenant

PASSWORD = "correct horse 9 battery"


@contextmanager
def _replaced(module: object, name: str, stand_in: Callable[..., object]) -> Iterator[None]:
    kept = getattr(module, name)
    setattr(module, name, stand_in)
    try:
        yield
    finally:
        setattr(module, name, kept)


def measure(rounds: int = 30, signins: int = 20) -> None:
    """Print the median sign-in with and without auditing, and the ratio, with and without the hash."""
    for name in ("signin", "registration", "wrong_secret"):
        settings.LIMITS[name] = (10**9, 60)
    created = open_tenant(name="Audit cost", slug=f"audit-cost-{secrets.token_hex(4)}")
    try:
        email = f"{secrets.token_hex(6)}@example.com"
        register_end_user(
            tenant_id=created.tenant.pk,
            client_id=created.client_id,
            email=email,
            password=PASSWORD,
        )

        def batch() -> float:
            began = time.perf_counter()
            for _ in range(signins):
                sign_in_end_user(client_id=created.client_id, email=email, password=PASSWORD)
            return (time.perf_counter() - began) / signins

        batch()
        _compare("sign-in", batch, rounds)
        with _replaced(passwords, "matches", lambda password, encoded: True):
            _compare("without the hash", batch, rounds)
        with in_tenant(created.tenant.pk):
            began = time.perf_counter()
            for _ in range(500):
                writer.record_for_tenant("bench.written", target=("user", email))
            print(f"one event alone, in a transaction of its own: {(time.perf_counter() - began) * 2:.3f} ms")
    finally:
        provisioning.delete_tenant(tenant_id=created.tenant.pk)


def _compare(what: str, batch: Callable[[], float], rounds: int) -> None:
    with_trail, without = [], []
    for _ in range(rounds):
        with_trail.append(batch())
        with _replaced(writer, "record_for_tenant", lambda *args, **facts: None):
            without.append(batch())
    a, b = statistics.median(with_trail) * 1000, statistics.median(without) * 1000
    print(f"{what}: {a:.2f} ms with auditing, {b:.2f} ms without: {(a / b - 1) * 100:+.1f} %")
