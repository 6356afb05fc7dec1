"""Run the tests: `python -m tests.machine.run [--all] [ARGUMENTS OF PYTEST]`; bin/test does.

Without `--all` and without a path those of every day run (`groups.py`), with a path all that it has.

Most tests run on all cores, the longest files first (`order.py`). Those marked `quiet_machine` measure time, so they run
afterwards, one at a time, and those of them that failed once more: the only tests that may be retried. With `-m` among the
arguments pytest runs once, as told.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

MOST_PROCESSES = 8
ALL = "--all"


def names_tests(arguments: Sequence[str]) -> bool:
    """Return whether the arguments select tests by path, name or mark."""
    return any(argument.startswith(("tests", "./", "/", "-k", "-m")) for argument in arguments)


def run(arguments: Sequence[str]) -> int:
    """Return pytest's exit code, of both runs together."""
    # One more than cores, because tests also wait: for a server's start, a lock, a page.
    processes = min((os.cpu_count() or 1) + 1, MOST_PROCESSES)
    everywhere = [f"--numprocesses={processes}", "--dist=loadfile", "--no-loadscope-reorder"]
    if not names_tests(arguments) and ALL not in arguments:
        return _pytest(*everywhere, "--everyday", *arguments)
    if ALL in arguments:
        # What a change of a test costs shows in its own run.
        slowest = ["--durations=40", "--durations-min=5"]
        arguments = [*(argument for argument in arguments if argument != ALL), *slowest]
    if any(argument.startswith("-m") for argument in arguments):
        return _pytest(*everywhere, *arguments)
    codes = {_pytest(*everywhere, "-m", "not quiet_machine", *arguments)}
    alone = ["-m", "quiet_machine", *arguments, "--numprocesses=0"]
    code = _pytest(*alone)
    if code == pytest.ExitCode.TESTS_FAILED:
        print("Once more, those that failed:", flush=True)
        code = _pytest(*alone, "--last-failed")
    codes.add(code)
    # A file may have tests of one group only.
    return max(codes - {pytest.ExitCode.NO_TESTS_COLLECTED}, default=pytest.ExitCode.NO_TESTS_COLLECTED)


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments]).returncode


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
