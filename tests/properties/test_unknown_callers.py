"""Attackers with an account of their own, a client, an old backup, or an address only."""

import pytest

from tests.properties.running import require_properties
from tests.properties.starts import STARTS

# They have files of their own.
_OTHERS = ("access token", "ID token", "browser", "admin with", "client with")


# A failure is played again many times to shorten it.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", [name for name in STARTS if not name.startswith(_OTHERS)])
def test_unknown_caller_gains_nothing(start: str, pytestconfig: pytest.Config) -> None:
    require_properties(start, pytestconfig)
