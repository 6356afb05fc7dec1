"""Attackers with an account of their own, a client, an old backup, or an address only."""

import pytest

from tests.properties.running import require_properties
from tests.properties.starts import STARTS


@pytest.mark.parametrize(
    "start",
    [
        name
        for name in STARTS
        if not name.startswith(("access token", "ID token", "browser", "admin with", "client with"))
    ],
)
def test_stranger_gains_nothing(start: str, pytestconfig: pytest.Config) -> None:
    require_properties(start, pytestconfig)
