"""Why work on a database failed: text for operators that contains no values of rows."""

import traceback
from pathlib import Path

import psycopg
import structlog
from django.db import DatabaseError

from identity_platform.api.errors import ApiError
from tenants.errors import UpgradeFailed

log = structlog.get_logger("identity.tenants")

# SQLSTATE classes whose messages name schema objects only (unknown table, lock not available, connection lost, cancelled).
# Others (22 data exception, 23 integrity) quote values of rows.
_MESSAGE_IS_HARMLESS = ("08", "42", "53", "55", "57")


def why(problem: Exception) -> str:
    """Return why an item of a loop failed, for operators. Logs errors that are neither ours nor the database's: bugs."""
    if isinstance(problem, ApiError):
        return problem.text
    if isinstance(problem, UpgradeFailed):
        return str(problem)
    if not isinstance(problem, DatabaseError | psycopg.Error):
        at = traceback.extract_tb(problem.__traceback__)[-1:]
        trace = [f"{Path(frame.filename).stem}:{frame.name}:{frame.lineno}" for frame in at]
        log.error("unexpected_error", kind=type(problem).__qualname__, trace=trace)
    return reason_of(problem)


def reason_of(problem: BaseException) -> str:
    """Describe an error for operators, without values of rows, which database messages can quote."""
    cause = problem.__cause__ if isinstance(problem, DatabaseError) else problem
    if not isinstance(cause, psycopg.Error):
        return type(problem).__name__
    if cause.sqlstate is None and isinstance(cause, psycopg.OperationalError):
        # The driver's message contains hosts, users and paths.
        return "the database does not answer"
    diagnosis = cause.diag
    words = [type(cause).__name__]
    words += [part for part in (diagnosis.table_name, diagnosis.column_name, diagnosis.constraint_name) if part]
    if cause.sqlstate and cause.sqlstate.startswith(_MESSAGE_IS_HARMLESS) and diagnosis.message_primary:
        words = [f"{words[0]}: {diagnosis.message_primary}"]
    return " ".join(words)
