"""Components have short names, and every name that is chosen by hand is in use."""

from identity_platform.api.app_parts import api_part
from tests.openapi.document import document

LONGEST = 40


def test_chosen_names_are_in_use() -> None:
    schemas, responses = document()["components"]["schemas"], document()["components"]["responses"]
    assert [name for name in api_part().type_names.values() if name not in schemas] == []
    assert [
        name
        for name in api_part().response_names.values()
        if name not in responses and f"Registry{name}" not in responses
    ] == []


def test_names_are_short() -> None:
    assert [name for named in document()["components"].values() for name in named if len(name) > LONGEST] == []
