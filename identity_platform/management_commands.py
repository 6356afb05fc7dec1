"""Django's command line for this project: `bin/manage`, `manage.py` and `identity manage` run it."""

import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from identity_platform.installation import MANAGE

INTERRUPTED = 130


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
    return f"the output is not whole ({why}). Run the same command again."


def main(words: Sequence[str]) -> None:
    """Run one command: the name of the program, the command, its arguments.

    What an operator can put right is one line on standard error; `--traceback` shows where it was.
    """
    # A start makes a million objects that stay: looking for garbage among them again and again took an eighth of it.
    gc.set_threshold(50_000, 20, 20)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "identity_platform.settings")
    if os.environ.get("NO_COLOR"):
        os.environ.setdefault("DJANGO_COLORS", "nocolor")
    from django.core.management import execute_from_command_line

    try:
        _end_like_ctrl_c()
        _speak_utf_8()
        try:
            execute_from_command_line(list(words))
        finally:
            sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as problem:
        explained = None if "--traceback" in words else _explain(problem)
        if explained is None:
            raise
        text, code = explained
        print("\n" * (code == INTERRUPTED) + f"{Path(words[0]).name}: {text}", file=sys.stderr)
        sys.exit(code)


def _explain(problem: BaseException) -> tuple[str, int] | None:
    """Return what is printed and the exit code, None for a defect of the platform, which is shown with its traceback.

    The exit codes of all commands: interrupted; nothing was tried (2); something is left to do (1).
    """
    from django.core.exceptions import ImproperlyConfigured
    from django.db import InterfaceError, InternalError, OperationalError, ProgrammingError
    from psycopg import OperationalError as DriverError
    from psycopg.errors import ReadOnlySqlTransaction, UndefinedColumn, UndefinedTable

    from identity_platform.serving.embedded.errors import EmbeddedServerFailed

    read_only = isinstance(problem, InternalError) and isinstance(problem.__cause__, ReadOnlySqlTransaction)
    if isinstance(problem, KeyboardInterrupt):
        return "interrupted. The same command can be run again.", INTERRUPTED
    if isinstance(problem, (ImproperlyConfigured, EmbeddedServerFailed)):
        return str(problem), 2
    if isinstance(problem, ProgrammingError) and isinstance(problem.__cause__, (UndefinedTable, UndefinedColumn)):
        return (
            f"the database has no tables, or those of an older release. Run `{MANAGE} prepare` first; to upgrade, make a "
            "backup with the older release before.",
            2,
        )
    if read_only or isinstance(problem, (OperationalError, InterfaceError, DriverError, ReadOnlySqlTransaction)):
        return f"the database server does not answer, or refused to go on: {problem}", 1
    if isinstance(problem, OSError):
        return _said_of(problem), 1
    return None
