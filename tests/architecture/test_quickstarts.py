"""The configuration in docs/quickstarts.md is short, and where a sample application exists, its own, which the tests run."""

import re

import pytest

from tests.machine.conftest import ROOT

SAMPLES = ("django-authlib/app.py", "single-page-app/app.js", "protected-api/app.py")
MARKED = re.compile(r"(?:#|//) --- configuration\n(.*?)\n+(?:#|//) --- end of configuration", re.DOTALL)
MOST_LINES = 10
PAGE = (ROOT / "docs" / "quickstarts.md").read_text()
# The heading and the language of each block.
BLOCKS = [
    (heading, language, block)
    for heading, text in re.findall(r"^##+ ([^\n]+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize("sample", SAMPLES)
def test_quickstart_shows_the_lines_of_the_sample(sample: str) -> None:
    (configuration,) = MARKED.findall((ROOT / "examples" / sample).read_text())
    assert configuration in PAGE


def test_configuration_of_each_quickstart_is_short() -> None:
    lines = {heading: len([line for line in block.splitlines() if line.strip()]) for heading, _, block in BLOCKS}
    assert set(lines) >= {"Next.js", "Single-page application", "Django", "Application", "Python", "Envoy"}
    assert {heading: count for heading, count in lines.items() if count > MOST_LINES} == {}
