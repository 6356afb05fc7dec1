#!/usr/bin/env python
"""Django's command line for this project; `bin/manage` runs it inside the right environment."""

import gc
import io
import os
import signal
import sys


def _end_like_ctrl_c() -> None:
    """Let a command that is told to end (SIGTERM), or whose terminal is closed (SIGHUP), clear up as after Ctrl-C.

    Commands that run for ever have their own way, and `nohup` keeps its meaning.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _speak_utf_8() -> None:
    """Let programs read what the commands can read again (CSV, JSON lines), and no letter of a name end a command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="backslashreplace")
        else:
            sys.stdout.reconfigure(encoding="utf-8")


def _said_of(problem: OSError) -> str:
    """What an operator can do about it; standard output is left alone from now on, at the interpreter's end too."""
    if not isinstance(problem, BrokenPipeError) and problem.filename is not None:
        return f"{problem.filename}: {problem.strerror}"
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    why = "its reader has ended" if isinstance(problem, BrokenPipeError) else problem.strerror or str(problem)
    return f"the output is not whole ({why}). Run the same command again to see the rest, or to go on."


def main() -> None:
    """Run one command. What an operator can put right is one line on standard error; `--traceback` shows where it was."""
    # A start makes a million objects that stay: looking for garbage among them again and again took an eighth of it.
    gc.set_threshold(50_000, 20, 20)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "identity_platform.settings")
    if os.environ.get("NO_COLOR"):
        os.environ.setdefault("DJANGO_COLORS", "nocolor")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    from django.db import InterfaceError, InternalError, OperationalError, ProgrammingError
    from psycopg import OperationalError as DriverError
    from psycopg.errors import ReadOnlySqlTransaction, UndefinedTable

    from identity_platform.serving.embedded.errors import EmbeddedServerFailed

    unfit = (ImproperlyConfigured, EmbeddedServerFailed)
    gone = (OperationalError, InterfaceError, InternalError, DriverError, ReadOnlySqlTransaction)
    try:
        _end_like_ctrl_c()
        _speak_utf_8()
        try:
            execute_from_command_line(sys.argv)
        finally:
            sys.stdout.flush()
    except (*unfit, *gone, ProgrammingError, OSError, KeyboardInterrupt) as problem:
        expected = {InternalError: ReadOnlySqlTransaction, ProgrammingError: UndefinedTable}.get(type(problem))
        defect = expected is not None and not isinstance(problem.__cause__, expected)
        if defect or "--traceback" in sys.argv:
            raise
        # The exit codes of all commands: interrupted; nothing was tried; something is left to do.
        if isinstance(problem, KeyboardInterrupt):
            said, code = "interrupted. Run the same command again to go on.", 130
        elif isinstance(problem, unfit):
            said, code = str(problem), 2
        elif isinstance(problem, ProgrammingError):
            said, code = "the database has no tables, or those of an older release. Run `bin/manage prepare` first.", 2
        elif isinstance(problem, OSError):
            said, code = _said_of(problem), 1
        else:
            said, code = f"the database server does not answer, or refused to go on: {problem}", 1
        print(f"\nmanage.py: {said}" if code == 130 else f"manage.py: {said}", file=sys.stderr)
        sys.exit(code)


if __name__ == "__main__":
    main()
