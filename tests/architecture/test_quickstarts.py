"""The configuration in docs/quickstarts.md is the one of the sample applications, which the tests run."""

import re

import pytest

from tests.machine.conftest import ROOT

SAMPLES = ("django-authlib/app.py", "single-page-app/app.js", "api/app.py")
MARKED = re.compile(r"(?:#|//) --- configuration\n(.*?)\n+(?:#|//) --- end of configuration", re.DOTALL)
MOST_LINES = 10


@pytest.mark.parametrize("sample", SAMPLES)
def test_quickstart_shows_the_lines_of_the_sample(sample: str) -> None:
    (configuration,) = MARKED.findall((ROOT / "examples" / sample).read_text())
    assert configuration in (ROOT / "docs" / "quickstarts.md").read_text()
    assert len([line for line in configuration.splitlines() if line.strip()]) <= MOST_LINES
