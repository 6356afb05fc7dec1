"""Measure the tests: `bin/mutate --number 20` puts faults into the critical rooms, one at a time, and runs their tests.

A fault that no test notices is printed as a survivor, and the score at the end. Faults are put into a copy of the tree. The
same seed chooses the same faults. Exit code 1: the tests of a room fail without a fault, so they measure nothing.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutation.faults import Fault, faults_in

ROOT: Final = Path(__file__).resolve().parents[2]
# Files of a room, by pattern, and the tests that cover them: those that fail soonest come first.
ROOMS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "sessions": (
        "userflow/sessions/*.py",
        (
            "tests/userflow/sessions",
            "tests/userflow/signin",
            "tests/userflow/access",
            "tests/userflow/clients",
            "tests/userflow/endusers/test_roles_and_groups.py",
            "tests/openid/test_token_rules.py",
        ),
    ),
    "signin": (
        "userflow/signin/*.py",
        (
            "tests/userflow/signin",
            "tests/mfa/signin",
            "tests/attacks",
            "tests/userflow/sessions",
            "tests/openid/pages/test_remembered_devices.py",
        ),
    ),
    "rank": (
        "userflow/accounts/rank.py",
        (
            "tests/userflow/roles",
            "tests/userflow/groups",
            "tests/userflow/endusers",
            "tests/userflow/clients",
            "tests/userflow/admins",
            "tests/userflow/signin/test_action_table.py",
        ),
    ),
    "mfa": (
        "mfa/**/*.py",
        (
            "tests/mfa",
            "tests/attacks",
            "tests/userflow/admins",
            "tests/openid/pages/test_enrollment.py",
        ),
    ),
    "tokens": (
        "openid/tokens/*.py",
        ("tests/openid/test_token_rules.py", "tests/openid/test_code_exchange.py", "tests/openid"),
    ),
    "backend": (
        "tenants/backend/*.py",
        ("tests/tenants/test_context.py", "tests/isolation", "tests/tenants/test_pool.py"),
    ),
}
_LEFT_OUT: Final = ("migrations", "models.py", "__init__.py", "apps.py", "urls.py", "serializers.py", "errors.py")
# Not part of a copy: what is large and what tests do not read.
_NOT_COPIED: Final = shutil.ignore_patterns(".git", ".venv", "node_modules", "__pycache__", "var", "*.log")


@dataclass(frozen=True)
class Outcome:
    """What the tests said of a fault."""

    fault: Fault
    room: str
    verdict: str
    seconds: float


def faults_of_room(room: str) -> list[Fault]:
    """Return all faults that can be put into a room."""
    files = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(ROOMS[room][0]))
    return [
        fault
        for file in files
        if not any(part in _LEFT_OUT for part in file.split("/"))
        for fault in faults_in(ROOT, file)
    ]


def sample(rooms: list[str], number: int, seed: int) -> list[tuple[str, Fault]]:
    """Choose faults, from each room as many as its share of all."""
    every = [(room, fault) for room in rooms for fault in faults_of_room(room)]
    return random.Random(seed).sample(every, min(number, len(every)))


class Copy:
    """A copy of the tree, into which one fault at a time is put."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="mutation-")
        self.root = Path(self.folder.name) / "tree"
        shutil.copytree(ROOT, self.root, ignore=_NOT_COPIED, symlinks=True)
        (self.root / ".venv").symlink_to((ROOT / ".venv").resolve())

    def test(self, room: str, fault: Fault | None, timeout: float) -> tuple[str, float]:
        """Run the tests of a room with the fault; return the verdict and the seconds."""
        began = time.monotonic()
        if fault is None:
            return self._run(room, timeout), time.monotonic() - began
        file = self.root / fault.file
        source = file.read_bytes()
        file.write_bytes(fault.apply(source))
        try:
            return self._run(room, timeout), time.monotonic() - began
        finally:
            file.write_bytes(source)

    def _run(self, room: str, timeout: float) -> str:
        # Compiled files would be written by both processes within a second, and the fault not be seen.
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
            # The servers are thrown away at the end; dropping each run's databases takes longer than its tests.
            "IDENTITY_TEST_SERVERS": "temporary",
        }
        environment.pop("IDENTITY_TEST_RUN", None)
        options = ["--everyday", "-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
        command = [sys.executable, "-P", "-m", "pytest", *ROOMS[room][1], *options]
        try:
            ended = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return "killed by time"
        if ended.returncode not in (0, 1):
            return "killed at start"
        return "killed" if ended.returncode else "survived"


def main() -> int:
    """Put the faults in, one after another, and print what survived."""
    options = _options()
    chosen = sample(options.room or list(ROOMS), options.number, options.seed)
    if options.list:
        for _, fault in chosen:
            print(fault)
        return 0
    rooms = sorted({room for room, _ in chosen})
    copies = [Copy() for _ in range(options.processes)]
    print(f"{len(chosen)} faults (seed {options.seed}) in {', '.join(rooms)}.", flush=True)
    for room in rooms:
        verdict, seconds = copies[0].test(room, None, options.timeout)
        if verdict != "survived":
            print(f"The tests of {room} fail without a fault ({verdict}): {' '.join(ROOMS[room][1])}")
            return 1
        print(f"{room}: the tests pass in {seconds:.0f} s without a fault.", flush=True)
    outcomes = _run_all(chosen, copies, options.timeout)
    return _report(outcomes, options)


def _run_all(chosen: list[tuple[str, Fault]], copies: list[Copy], timeout: float) -> list[Outcome]:
    free = list(copies)

    def run(item: tuple[str, Fault]) -> Outcome:
        room, fault = item
        copy = free.pop()
        try:
            verdict, seconds = copy.test(room, fault, timeout)
        finally:
            free.append(copy)
        print(f"{verdict:>15} {seconds:4.0f} s  {fault}", flush=True)
        return Outcome(fault, room, verdict, seconds)

    with ThreadPoolExecutor(len(copies)) as threads:
        return list(threads.map(run, chosen))


def _report(outcomes: list[Outcome], options: Namespace) -> int:
    survivors = [outcome for outcome in outcomes if outcome.verdict == "survived"]
    by_room = {room: Counter(each.verdict != "survived" for each in outcomes if each.room == room) for room in ROOMS}
    print(f"\nSurvivors ({len(survivors)}):")
    for outcome in survivors:
        print(f"  {outcome.fault}")
    for room, counts in by_room.items():
        if counts.total():
            print(f"{room}: {counts[True]} of {counts.total()} noticed")
    noticed = len(outcomes) - len(survivors)
    print(f"Score: {noticed} of {len(outcomes)} faults noticed ({noticed * 100 / max(len(outcomes), 1):.0f} %).")
    if options.json:
        values = [{"room": each.room, "verdict": each.verdict, "fault": str(each.fault)} for each in outcomes]
        Path(options.json).write_text(json.dumps(values, indent=1))
    return 0


def _options() -> Namespace:
    parser = ArgumentParser(prog="mutate", description=__doc__)
    parser.add_argument("--number", type=int, default=20, help="How many faults.")
    parser.add_argument("--seed", type=int, default=1, help="Chooses the faults.")
    parser.add_argument("--room", action="append", choices=list(ROOMS), help="Only this room; may be repeated.")
    parser.add_argument("--processes", type=int, default=2, help="Faults that are tried at the same time.")
    parser.add_argument("--timeout", type=float, default=600, help="Seconds after which a run counts as failed.")
    parser.add_argument("--list", action="store_true", help="Print the faults and run nothing.")
    parser.add_argument("--json", help="Also write the outcomes to this file.")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
