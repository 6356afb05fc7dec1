"""The configuration in docs/quickstarts.md is short, and where a sample application exists, its own, which the tests run."""

import re

import pytest

from tests.machine.conftest import ROOT
from tests.quickstarts.page import BLOCKS, PAGE, file_name

SAMPLES = ("django-authlib/app.py", "single-page-app/app.js", "protected-api/app.py")
MARKED = re.compile(r"(?:#|//) --- configuration\n(.*?)\n+(?:#|//) --- end of configuration", re.DOTALL)
MOST_LINES = 10
# Of a complete file, which has the rest of the application too.
MOST_LINES_OF_FILE = {"go": 70, "xml": 35}
MOST_LINES_OF_OTHER_FILES = 32


@pytest.mark.parametrize("sample", SAMPLES)
def test_quickstart_shows_the_lines_of_the_sample(sample: str) -> None:
    (configuration,) = MARKED.findall((ROOT / "examples" / sample).read_text())
    assert configuration in PAGE


def test_configuration_of_each_quickstart_is_short() -> None:
    assert {heading for heading, _, _ in BLOCKS} >= {
        *("Flask", "FastAPI", "Django", "Django with mozilla-django-oidc", "Django with django-allauth"),
        *("Next.js", "Express", "React", "Single-page application", "Go", "ASP.NET Core", "Laravel"),
        *("Application", "Resource server", "Apache", "nginx", "Python", "Envoy"),
    }
    too_long = {}
    for heading, language, block in BLOCKS:
        lines = [line for line in block.splitlines() if line.strip()]
        whole = MOST_LINES_OF_FILE.get(language, MOST_LINES_OF_OTHER_FILES)
        if len(lines) > (whole if file_name(block) else MOST_LINES):
            too_long[heading] = len(lines)
    assert too_long == {}
