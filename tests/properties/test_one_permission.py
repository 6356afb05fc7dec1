"""Admin users who hold one permission."""

import pytest

from tests.properties.running import require_properties
from tests.properties.starts import STARTS


# A failure is played again many times to shorten it.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", [name for name in STARTS if name.startswith("admin with")])
def test_one_permission_gives_no_other(start: str, pytestconfig: pytest.Config) -> None:
    require_properties(start, pytestconfig)
