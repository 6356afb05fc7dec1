"""Target 14: import of users with four kinds of password hashes into a new tenant, and their export."""

from __future__ import annotations

import base64
import hashlib
import json
import resource
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import argon2
import bcrypt

from bench.run import Row, Run
from bench.servers import postgres_cpu_seconds
from identity_platform.transfer.files import RowWriter
from identity_platform.transfer.rows import JSONL
from identity_platform.transfer.runs import Options
from userflow.tenants.actions import open_tenant
from userflow.transfer.actions import import_end_users
from userflow.transfer.exporting import COLUMNS, export_end_users

WANTED = 5000
PASSWORD = b"correct horse 9 battery"


def measure(run: Run) -> list[Row]:
    """Measure dry run, import and export of the same users, each round in a tenant of its own."""
    number = run.sizes.imported
    run.say("the file")
    file = run.home.folder / "people.jsonl"
    _write_people(file, number)
    taken: dict[str, list[float]] = {what: [] for what in ("dry run", "import", "export")}
    cpu: dict[str, list[tuple[float, float]]] = {what: [] for what in taken}
    for round_ in range(run.rounds):
        tenant_id = open_tenant(name=f"Imported {round_}").tenant.pk
        for what in ("dry run", "import"):
            run.say(f"{what}, round {round_ + 1} of {run.rounds}")
            options = Options(dry_run=what == "dry run", create_missing=True, batch_size=2000)
            with _timed(run, taken[what], cpu[what]), file.open("rb") as stream:
                tally, report = import_end_users(tenant_id=tenant_id, stream=stream, form=JSONL, options=options)
            # Two of the roles have rows of their own.
            assert (tally.created, report.faults) == (number + 2, 0)
        run.say(f"export, round {round_ + 1} of {run.rounds}")
        out = run.home.folder / "out.jsonl"
        with _timed(run, taken["export"], cpu["export"]), out.open("w", encoding="utf-8") as stream_out:
            writer = RowWriter(stream_out, JSONL, COLUMNS)
            for row in export_end_users(tenant_id=tenant_id, hashes=True, definitions=False):
                writer.write(row)
    run.raw["import"] = {"rows": number, "seconds": taken, "cpu_seconds": cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    told = {
        what: f"CPU of a row: {_middle(cpu[what], 0, number):.0f} µs + PostgreSQL {_middle(cpu[what], 1, number):.0f} µs"
        for what in taken
    }
    wanted = f"import of {number} users with hash, a group and a role each"
    return [
        _row("14", wanted, number, taken["import"], WANTED, f"{told['import']}; at most {peak} MiB in this process"),
        _row("–", f"dry run of the import of {number} users", number, taken["dry run"], None, told["dry run"]),
        _row("–", f"export of {number} users with hashes", number, taken["export"], None, told["export"]),
    ]


@contextmanager
def _timed(run: Run, seconds: list[float], cpu: list[tuple[float, float]]) -> Iterator[None]:
    began, mine, theirs = time.perf_counter(), time.process_time(), postgres_cpu_seconds(run.home)
    yield
    seconds.append(time.perf_counter() - began)
    cpu.append((time.process_time() - mine, postgres_cpu_seconds(run.home) - theirs))


def _middle(cpu: list[tuple[float, float]], whose: int, number: int) -> float:
    return statistics.median(one[whose] for one in cpu) / number * 1e6


def _row(target: str, what: str, number: int, seconds: list[float], wanted: int | None, beside: str) -> Row:
    found = number / statistics.median(seconds)
    return Row(
        target,
        what,
        ours=f"{found:.0f} rows/s",
        against=f"{wanted} rows/s" if wanted else "–",
        ratio=found / (wanted or WANTED),
        wanted="≥ 1" if wanted else "no target",
        met=wanted is None or found >= wanted,
        beside=beside,
    )


def _write_people(file: Path, number: int) -> None:
    """Return users with one of a few hashes: creating one for each would take hours."""
    hashes = _hashes()
    with file.open("w", encoding="utf-8") as out:
        for name in ("reader", "editor"):
            out.write(json.dumps({"kind": "role", "name": name, "permissions": [f"pages:{name}"]}) + "\n")
        for n in range(number):
            person: dict[str, Any] = {
                "email": f"person-{n:07}@example.com",
                "name": f"Person Number {n}",
                "password_hash": hashes[n % len(hashes)],
                "metadata": {"department": "Research", "floor": n % 40},
                "groups": [f"group {n % 10}"],
                "roles": ["editor" if n % 5 == 0 else "reader"],
                "email_verified": n % 2 == 0,
                "created_at": "2024-01-31T12:00:00Z",
            }
            out.write(json.dumps(person) + "\n")


def _hashes() -> list[str]:
    salt = b"0123456789abcdef"

    def plain(raw: bytes) -> str:
        return base64.b64encode(raw).decode().rstrip("=")

    scrypt = hashlib.scrypt(PASSWORD, salt=salt, n=2**14, r=8, p=1, dklen=32)
    pbkdf2 = hashlib.pbkdf2_hmac("sha256", PASSWORD, salt, 600_000)
    return [
        bcrypt.hashpw(PASSWORD, bcrypt.gensalt(10)).decode(),
        f"$scrypt$ln=14,r=8,p=1${plain(salt)}${plain(scrypt)}",
        f"pbkdf2_sha256$600000${salt.decode()}${base64.b64encode(pbkdf2).decode()}",
        argon2.PasswordHasher().hash(PASSWORD),
    ]
