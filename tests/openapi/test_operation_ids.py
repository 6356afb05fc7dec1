"""Operations have hand-chosen ids, which generated clients use as the names of their methods."""

import re
from collections import Counter

from tests.openapi.test_optional_fields import document

VERBS = (
    "accept|activate|add|begin|bind|cancel|change|check|confirm|create|deactivate|delete|disable|end|erase|export|finish|get|"
    "import|inspect|introspect|issue|list|login|logout|patch|push|regenerate|register|remove|rename|replay|request|resend|"
    "reset|revoke|rotate|search|set|step|sync|test|unbind|undo|update|validate|verify"
)


def operation_ids() -> list[str]:
    return [operation["operationId"] for path in document()["paths"].values() for operation in path.values()]


def test_operation_ids_are_unique() -> None:
    assert [name for name, number in Counter(operation_ids()).items() if number > 1] == []


def test_operation_ids_are_camel_case_and_begin_with_a_verb() -> None:
    ids = operation_ids()
    assert len(ids) > 100
    assert [name for name in ids if not re.fullmatch(rf"({VERBS})([A-Z][a-z]+)*", name)] == []
