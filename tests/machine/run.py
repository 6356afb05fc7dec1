"""Run the tests: `python -m tests.machine.run [ARGUMENTS OF PYTEST]`; bin/test does.

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


def run(arguments: Sequence[str]) -> int:
    """Return pytest's exit code, of both runs together."""
    # One more than cores, because tests also wait: for a server's start, a lock, a page.
    processes = min((os.cpu_count() or 1) + 1, MOST_PROCESSES)
    everywhere = [f"--numprocesses={processes}", "--dist=loadfile", "--no-loadscope-reorder"]
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
