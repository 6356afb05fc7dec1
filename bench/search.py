"""What does the console's search cost with 10,000 tenants and 10,000,000 end users in its index?

A search is the whole stack in this process, without the socket, as in `bench.console`, whose tenants it fills. The end users
are in the index only, except for one. It also compares the index with a tenant of 100,000 end users, as the daily run does.
`python -m bench.search --help` says how to run it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.table import Table

from bench import console as lists
from bench import home, report

INDEXED, EVERYWHERE = 10_000_000, 1_000
# A person who is in many tenants.
FAMOUS = "everywhere@example.com"
HEADS = ("search", "statements: global, tenant", "ms: median", "95 %", f"< {lists.WANTED_MS:.0f} ms")

_ROWS = (
    "INSERT INTO userflow_indexedenduser (tenant_id, user_id, digest)"
    " SELECT t.id, gen_random_uuid(), substr(sha256((t.id::text || n)::bytea), 1, 16)"
    " FROM tenants_tenant t, generate_series(1, %s) n WHERE t.slug ~ '^tenant-'"
)
_FAMOUS = (
    "INSERT INTO userflow_indexedenduser (tenant_id, user_id, digest)"
    " SELECT id, gen_random_uuid(), %s FROM tenants_tenant WHERE slug ~ '^tenant-' LIMIT %s"
)


def main() -> None:
    """Fill, measure, print the table and write it to bench/results/search.{json,md}."""
    parser = argparse.ArgumentParser(prog="bench.search", description="The console's search on a large platform.")
    parser.add_argument("--looks", type=int, default=50, help="searches of each kind (50)")
    parser.add_argument("--smoke", action="store_true", help="tiny data: shows that it works")
    parser.add_argument("--results", type=Path, default=home.ROOT / "bench" / "results", help="where the files go")
    options = parser.parse_args()
    sizes = {"tenants": 10, "people": 50, "events": 50} if options.smoke else lists._sizes()
    sizes["indexed"] = 1_000 if options.smoke else INDEXED
    var = Path(os.environ.get("IDENTITY_VAR") or home.ROOT / "var").resolve()
    out = Console()
    with home.opened(var / "bench-search", keep=False) as own:
        os.environ.update(own.environment)
        lists._prepare()
        about = report.machine(own) | sizes
        with out.status("") as status:
            rows, compared = measure(sizes, 2 if options.smoke else options.looks, lambda what: status.update(what))
        about |= {"load_average_after": report.load_average(), "compared": compared}
    table = Table(*HEADS, title="The console's search")
    for row in rows:
        table.add_row(*row.cells())
    out.print(table)
    _write(options.results, about, rows)
    out.print(f"Written to {options.results / 'search.json'} and search.md")


def measure(
    sizes: dict[str, int], looks: int, say: Callable[[str], None]
) -> tuple[list[lists.Looks], dict[str, float]]:
    """Search for each kind of words; the first search warms up, the second one is counted, the others are timed."""
    from django.test import Client

    tenant_id = UUID(lists._fill(sizes, say)[""])
    say("the comparison of a tenant with the index")
    compared = {"first": _compare(tenant_id), "again": _compare(tenant_id)}
    _index(sizes, say)
    browser = Client(headers={"Host": "127.0.0.1"})
    lists._sign_in(browser)
    found = []
    for name, words in _words(tenant_id).items():
        say(name)
        row = lists.Looks(name)
        _search(browser, words)
        with lists._counting() as counts:
            _search(browser, words)
        row.statements = counts["default"], counts["tenant"]
        row.ms = [_search(browser, words) for _ in range(looks)]
        found.append(row)
    return found, compared


def _compare(tenant_id: UUID) -> float:
    from userflow.user_index.actions import compare

    began = time.perf_counter()
    compare(tenant_id)
    return round(time.perf_counter() - began, 2)


def _index(sizes: dict[str, int], say: Callable[[str], None]) -> None:
    from django.db import connection

    from userflow.user_index.entries import digest_of

    say(f"{sizes['indexed']:,} end users in the index")
    with connection.cursor() as cursor, _without_indexes():
        cursor.execute("SET statement_timeout = 0")
        cursor.execute(_ROWS, [sizes["indexed"] // sizes["tenants"]])
        cursor.execute(_FAMOUS, [digest_of(FAMOUS), min(EVERYWHERE, sizes["tenants"])])
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")
        cursor.execute("RESET statement_timeout")


@contextmanager
def _without_indexes() -> Iterator[None]:
    """Drop the indexes inside the block: creating them at the end takes minutes less."""
    from django.db import connection

    from userflow.user_index.models import IndexedEndUser

    for index in IndexedEndUser._meta.indexes:
        with connection.schema_editor() as editor:
            editor.remove_index(IndexedEndUser, index)
    yield
    for index in IndexedEndUser._meta.indexes:
        with connection.schema_editor() as editor:
            editor.add_index(IndexedEndUser, index)


def _words(tenant_id: UUID) -> dict[str, str]:
    from tenants.entering.context import in_tenant
    from userflow.accounts.models import EndUser

    with in_tenant(tenant_id):
        person = EndUser.objects.get(email_key="p7@crowd.example")
    return {
        "nothing": "",
        "address": person.email,
        "address of 1,000 tenants": FAMOUS,
        "unknown address": "unknown@crowd.example",
        "id of an end user": str(person.pk),
        "slug": "tenant-777",
        "beginning of every name": "tenant",
        "beginning of every client": "client",
        "beginning of every service": "service",
        "beginning of an admin's address": "admin-77",
        "no result": "no-such-name",
    }


def _search(browser: Any, words: str) -> float:
    began = time.perf_counter()
    answer = browser.post("/admin/search/", {"q": words}, headers={"HX-Request": "true"}, secure=True)
    took = (time.perf_counter() - began) * 1000
    if answer.status_code != 200:
        raise RuntimeError(f"The search answered {answer.status_code}: {answer.headers}")
    return took


def _write(folder: Path, about: dict[str, Any], rows: list[lists.Looks]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    figures = {row.name: {"statements": row.statements, "ms": [round(ms, 1) for ms in row.ms]} for row in rows}
    content = json.dumps({"about": about, "searches": figures}, indent=1)
    (folder / "search.json").write_text(content + "\n", encoding="utf-8")
    lines = [
        f"# The search with {about['tenants']:,} tenants and {about['indexed']:,} end users",
        "",
        f"`python -m bench.search`, {len(rows[0].ms)} searches of each kind by an operator; commit {about['commit']}, "
        f"{about['cores']} cores, PostgreSQL {about['postgresql']}, Python {about['python']}, load average "
        f"{about['load_average_before'][0]} before and {about['load_average_after'][0]} after.",
        "",
        "| " + " | ".join(HEADS) + " |",
        "|" + "---|" * len(HEADS),
        *["| " + " | ".join(row.cells()) + " |" for row in rows],
        "",
        f"Comparing a tenant of {about['people']:,} end users with the index: {about['compared']['first']} s when none of "
        f"them is in it, {about['compared']['again']} s when all are.",
    ]
    (folder / "search.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
