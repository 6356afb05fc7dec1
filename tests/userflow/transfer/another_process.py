"""Run a management command in another process, to be killed, on the databases of the tests."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.environment import DATABASE

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def another_process(*command: object) -> Iterator["subprocess.Popen[str]"]:
    """Start the command; its output is read line by line."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.userflow.transfer.another_process", DATABASE, *map(str, command)],
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "identity_platform.settings", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def serve(database: str, *command: str) -> None:
    """Give this process the tests' databases, and run the command."""
    import django

    # A shell makes its background processes ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    django.setup()
    from django.conf import settings
    from django.core.management import CommandError, call_command
    from django.db import connection

    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = database
    try:
        call_command(*command)
    except CommandError as error:
        print(error, flush=True)
        sys.exit(error.returncode)


if __name__ == "__main__":
    serve(*sys.argv[1:])
