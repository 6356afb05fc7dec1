"""Attackers with a stolen token, or at a browser that was left open."""

import pytest

from tests.properties.running import require_properties
from tests.properties.starts import STARTS


# A failure is played again many times to shorten it.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", [name for name in STARTS if name.startswith(("access token", "ID token", "browser"))])
def test_stolen_session_stays_within_its_limits(start: str, pytestconfig: pytest.Config) -> None:
    require_properties(start, pytestconfig)
