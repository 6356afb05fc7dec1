"""Several writes as one statement: each room says its own part, and all of them are one round trip and one commit.

A statement with data-modifying parts (PostgreSQL documentation 7.8.4) is atomic by itself, so it needs no transaction
around it. On the hottest writes that saves more than half of their time on the server (docs/performance.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """One write of a statement. `sql` reads its row `FROM` the part that goes before it: no row there, nothing written.

    Names of values begin with the part's name, so that no two parts take each other's.
    """

    name: str
    sql: str
    values: Mapping[str, Any]


def together(parts: Iterable[Part], answer: str) -> tuple[str, dict[str, Any]]:
    """The statement that runs all parts and answers `answer`, with its values.

    Every part sees the tables as they were before the statement; what another part has written it sees by `RETURNING`
    only.
    """
    parts = list(parts)
    written = ",\n".join(f"{part.name} AS ({part.sql})" for part in parts)
    return f"WITH {written}\n{answer}", {name: value for part in parts for name, value in part.values.items()}
