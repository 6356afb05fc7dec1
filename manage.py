#!/usr/bin/env python
"""Django's command line for this project; `bin/manage` runs it inside the right environment."""

import os
import sys


def main() -> None:
    """Run one command. What an operator can put right is one line on standard error; `--traceback` shows where it was."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "identity_platform.settings")
    if os.environ.get("NO_COLOR"):
        os.environ.setdefault("DJANGO_COLORS", "nocolor")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    from django.db import InterfaceError, OperationalError
    from psycopg import OperationalError as DriverError

    from identity_platform.embedded.errors import EmbeddedServerFailed

    unfit = (ImproperlyConfigured, EmbeddedServerFailed)
    gone = (OperationalError, InterfaceError, DriverError)
    try:
        execute_from_command_line(sys.argv)
    except (*unfit, *gone, KeyboardInterrupt) as problem:
        if "--traceback" in sys.argv:
            raise
        # The exit codes of all commands: interrupted; nothing was tried; something is left to do.
        if isinstance(problem, KeyboardInterrupt):
            said, code = "interrupted. Run the same command again to go on.", 130
        elif isinstance(problem, unfit):
            said, code = str(problem), 2
        else:
            said, code = f"the database server does not answer, or refused to go on: {problem}", 1
        print(f"\nmanage.py: {said}" if code == 130 else f"manage.py: {said}", file=sys.stderr)
        sys.exit(code)


if __name__ == "__main__":
    main()
