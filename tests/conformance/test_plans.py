"""The plans of the conformance suite, where the environment names a suite; what the runner writes, always."""

import os

import pytest

from tests.conformance import results
from tests.conformance.__main__ import main
from tests.conformance.keys import encoded
from tests.conformance.plans import PLANS

SUITE, PLATFORM, CA = (os.environ.get(f"CONFORMANCE_{name}", "") for name in ("SUITE", "PLATFORM", "CA"))


@pytest.mark.skipif(
    not (SUITE and PLATFORM), reason="CONFORMANCE_SUITE and CONFORMANCE_PLATFORM name no running suite and platform"
)
@pytest.mark.needs("chromium", "chromedriver")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("plan", PLANS)
def test_no_module_of_the_plan_fails(plan: str) -> None:
    trust = ["--ca", CA] if CA else []
    assert main(["--suite", SUITE, "--platform", PLATFORM, *trust, plan]) == 0


def test_page_has_the_tables_of_the_results() -> None:
    text = results.PAGE.read_text(encoding="utf-8")
    assert results.filled(text, results.tables()) == text


def test_reason_is_the_first_sentence_of_each_message() -> None:
    module = {"reasons": ["Check: it is | so. It is not wrong.", "x" * 300], "screenshots": ["basic.a.1.png"]}
    first, second, third = results.reason(module).split("; ")
    assert first == "Check: it is \\| so."
    assert len(second) == results.MOST_CHARACTERS
    assert third == "a person compares the screenshot: `basic.a.1.png`"


def test_numbers_of_keys_are_base64url() -> None:
    # RFC 7518 section 6.3.1.2: the exponent 65537.
    assert encoded(65537) == "AQAB"
