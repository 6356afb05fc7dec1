"""Measure list, read and create with 10 to 100,000 services of a tenant.

One tenant of each size is in one database, and the calls visit them in turn, so that other work of the machine
does falls on all alike. A call is the whole stack (authentication, state, permission, rate limit, SQL, JSON, audit) in
this process, without the socket. `python -m bench.registry --help` says how to run it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from rich.console import Console
from rich.table import Table

from bench import home, report

SIZES = (10, 100, 1_000, 10_000, 100_000)
SERVICES = "/exsvc/api/v1/services"
TYPES = ("payment", "email", "storage", "sms", "search", "maps", "crm", "erp", "queue", "monitoring", "ldap", "fax")
# Allowed ratio of the largest tenant's median to the smallest's.
FLAT = 1.5


def main() -> None:
    """Fill, measure, print the table and write it to bench/results/registry.{json,md}."""
    parser = argparse.ArgumentParser(prog="bench.registry", description="The registry from 10 to 100,000 services.")
    parser.add_argument("--calls", type=int, default=200, help="calls of each kind on each tenant (200)")
    parser.add_argument("--smoke", action="store_true", help="tiny data: checks that it works")
    parser.add_argument("--results", type=Path, default=home.ROOT / "bench" / "results", help="folder for the files")
    options = parser.parse_args()
    sizes, calls = ((10, 50), 5) if options.smoke else (SIZES, options.calls)
    var = Path(os.environ.get("IDENTITY_VAR") or home.ROOT / "var").resolve()
    console = Console()
    with home.opened(var / "bench-registry", keep=False) as own:
        os.environ.update(own.environment)
        _prepare()
        about = report.machine(own)
        with console.status("") as status:
            times = measure(sizes, calls, lambda what: status.update(what))
        about["load_average_after"] = report.load_average()
    _show(console, times, sizes)
    _write(options.results, about, times, sizes, calls)
    console.print(f"Written to {options.results / 'registry.json'} and registry.md")


def _prepare() -> None:
    import django
    from django.core.management import call_command

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "identity_platform.settings")
    # Without it every call writes a log line.
    os.environ["LOG_LEVEL"] = "WARNING"
    django.setup()
    with contextlib.redirect_stdout(io.StringIO()):
        call_command("prepare")


def measure(sizes: tuple[int, ...], calls: int, say: Callable[[str], None]) -> dict[str, dict[int, list[float]]]:
    """Milliseconds of every call, by kind and size."""
    from django.db import connection

    tenants = {size: _tenant(size, say) for size in sizes}
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE) registry_service")
        cursor.execute("VACUUM (ANALYZE) registry_servicecount")
    times: dict[str, dict[int, list[float]]] = {}
    for kind, ask in _kinds().items():
        say(kind)
        times[kind] = {size: [] for size in sizes}
        for number in range(-5, calls):  # the first ones warm up
            for size in random.sample(sizes, len(sizes)):
                took = ask(tenants[size], size)
                if number >= 0:
                    times[kind][size].append(took)
    return times


class _Caller:
    """A tenant's admin who calls this process."""

    def __init__(self, tenant_id: UUID, token: str, ids: list[UUID]) -> None:
        from django.test import Client

        self.tenant_id, self.ids = tenant_id, ids
        self._client = Client(headers={"Host": "127.0.0.1", "Authorization": f"Bearer {token}"})

    def ms(self, method: str, path: str, body: Any = None, status: int = 200) -> float:
        content = "" if body is None else json.dumps(body)
        began = time.perf_counter()
        answer = self._client.generic(method, path, content, content_type="application/json" if content else "")
        took = (time.perf_counter() - began) * 1000
        if answer.status_code != status:
            raise RuntimeError(f"{method} {path} returned {answer.status_code}: {answer.content!r}")
        return took


def _kinds() -> dict[str, Callable[[_Caller, int], float]]:
    def page(query: str) -> Callable[[_Caller, int], float]:
        return lambda caller, _: caller.ms("GET", f"{SERVICES}?{query}")

    def create(caller: _Caller, _: int) -> float:
        body = {"name": str(uuid4()), "type": random.choice(TYPES), "base_url": "https://api.example.com/v1"}
        return caller.ms("POST", SERVICES, body, 201)

    return {
        "list, first page": page("limit=20"),
        "list, status=inactive": page("status=inactive"),
        "list, type=EMAIL": page("type=EMAIL"),
        "list, type=payment&status=active": page("type=payment&status=active"),
        "list, unknown name": page("name=unknown"),
        "list, middle page": lambda caller, size: caller.ms("GET", f"{SERVICES}?page={max(1, size // 40)}"),
        "list, last page": lambda caller, size: caller.ms("GET", f"{SERVICES}?page={max(1, size // 20)}"),
        "list, past the end": page("page=1000000"),
        "read one": lambda caller, _: caller.ms("GET", f"{SERVICES}/{random.choice(caller.ids)}"),
        "update": lambda caller, _: caller.ms("PUT", f"{SERVICES}/{random.choice(caller.ids)}", {"api_version": "2"}),
        "create": create,
    }


def _tenant(size: int, say: Callable[[str], None]) -> _Caller:
    from django.utils.timezone import now

    from bench.world import admin_token
    from registry.models import Service
    from userflow.tenants.actions import open_tenant

    tenant = open_tenant(name=f"Tenant of {size}").tenant
    moment = now()
    ids: list[UUID] = []
    for begin in range(0, size, 5_000):
        say(f"{begin} of {size} services")
        rows = [
            Service(
                tenant=tenant,
                name=f"Service {number} {uuid4()}",
                description="A service for the benchmark.",
                type=TYPES[min(int(random.expovariate(0.4)), len(TYPES) - 1)],
                status="inactive" if number % 10 == 0 else "active",
                base_url=f"https://api{number}.example.com/v1",
                metadata={"owner": "operations", "number": number},
            )
            for number in range(begin, min(begin + 5_000, size))
        ]
        Service.objects.bulk_create(rows)
        ids += [row.pk for row in rows]
    # Different times, because the list is ordered by them.
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE registry_service SET created_at = %s - random() * interval '300 days' WHERE tenant_id = %s",
            [moment - timedelta(seconds=1), tenant.pk],
        )
    return _Caller(tenant.pk, admin_token(tenant.pk), random.sample(ids, min(size, 2_000)))


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


def _rows(times: dict[str, dict[int, list[float]]], sizes: tuple[int, ...]) -> list[list[str]]:
    found = []
    for kind, by_size in times.items():
        ratio = _median(by_size[sizes[-1]]) / _median(by_size[sizes[0]])
        cells = [f"{_median(by_size[size]):.2f} ({_p95(by_size[size]):.2f})" for size in sizes]
        found.append([kind, *cells, f"{ratio:.2f}", "yes" if ratio <= FLAT else "no"])
    return found


def _heads(sizes: tuple[int, ...]) -> list[str]:
    return ["ms: median (p95)", *[f"{size:,}" for size in sizes], "last : first", f"flat (≤ {FLAT})"]


def _show(console: Console, times: dict[str, dict[int, list[float]]], sizes: tuple[int, ...]) -> None:
    table = Table(title="Services of a tenant")
    for head in _heads(sizes):
        table.add_column(head)
    for row in _rows(times, sizes):
        table.add_row(*row)
    console.print(table)


def _write(
    folder: Path, about: dict[str, Any], times: dict[str, dict[int, list[float]]], sizes: tuple[int, ...], calls: int
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    medians = {
        kind: {str(size): {"median_ms": round(_median(v), 3), "p95_ms": round(_p95(v), 3)} for size, v in found.items()}
        for kind, found in times.items()
    }
    content = {"about": about, "calls": calls, "sizes": sizes, "times": medians}
    (folder / "registry.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    lines = [
        "# The registry from 10 to 100,000 services of a tenant",
        "",
        f"`python -m bench.registry`, {calls} calls of each kind on each tenant in turn; commit {about['commit']}, "
        f"{about['cores']} cores, PostgreSQL {about['postgresql']}, Python {about['python']}, load average "
        f"{about['load_average_before'][0]} before and {about['load_average_after'][0]} after.",
        "",
        "| " + " | ".join(_heads(sizes)) + " |",
        "|" + "---|" * len(_heads(sizes)),
        *["| " + " | ".join(row) + " |" for row in _rows(times, sizes)],
    ]
    (folder / "registry.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
