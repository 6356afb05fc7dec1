"""The operations of the API document, for tests that walk over all of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

from tests.openapi.document import document


@dataclass(frozen=True)
class Operation:
    """A method and a path of the document, and the rows of the action table that it asks."""

    method: str
    path: str
    rows: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def operations_with_token() -> Iterator[Operation]:
    """All operations that take an access token."""
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            # The token of an application is enough. Userinfo takes tokens of users alone, and rejects others in its own way.
            if {"oauth2": []} in operation["security"]:
                yield Operation(method, path, tuple(operation.get("x-assurance", ())))


def with_unknown_ids(path: str) -> str:
    """The path with a new id in each slot."""
    while "{" in path:
        path = path.replace(path[path.index("{") : path.index("}") + 1], str(uuid4()))
    return path
