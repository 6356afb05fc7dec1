"""SQL stands in few files: a statement belongs into the queries of its room (docs/architecture.md)."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.test_house_rules import ROOT, modules

MOST_FILES: Final = 35
_STATEMENTS: Final = (
    "SELECT|INSERT INTO|UPDATE|DELETE FROM|MERGE INTO|WITH|CREATE|ALTER|DROP|GRANT|REVOKE|LOCK TABLE|TRUNCATE|VACUUM|ANALYZE"
    "|REINDEX|COPY|LISTEN|NOTIFY|BEGIN|SET|RESET"
)
BEGINS_STATEMENT: Final = re.compile(rf"\s*\(?({_STATEMENTS})\s+[\w(*%{{'\"]")
# Before a part of an f-string that is computed.
ENDS_AT_KEYWORD: Final = re.compile(rf"\s*({_STATEMENTS})\s*$")


def statements(source: str) -> list[str]:
    """Return the strings of a module, other than docstrings, that begin an SQL statement."""
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    of_f_strings = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
        and (BEGINS_STATEMENT.match(node.value) or (id(node) in of_f_strings and ENDS_AT_KEYWORD.match(node.value)))
    ]


def test_sql_stands_in_few_files() -> None:
    files = [path for path in modules() if "migrations" not in path.parts and statements((ROOT / path).read_text())]
    assert len(files) <= MOST_FILES, "\n".join(map(str, sorted(files)))
    # Else the test would see no statement at all.
    assert Path("registry/queries.py") in files


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('x = "SELECT 1"', True),
        ('x = f"SELECT {columns} FROM users"', True),
        ('x = """\nWITH used AS (UPDATE users SET seen = true)\n"""', True),
        ('x = "Select a user"', False),
        ('x = "SELECT"', False),
        ('"""SELECT is the verb of a query."""', False),
    ],
)
def test_statement_is_recognized(source: str, expected: bool) -> None:
    assert bool(statements(source)) is expected
