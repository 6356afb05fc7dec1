"""The explorer plays a few sequences of the starts that differ most; `bin/explore` plays any number, of all starts."""

from typing import Final

import pytest

from tests.properties.machine import Failure
from tests.properties.running import explore
from tests.properties.starts import STARTS

# Of each kind of start the one that can do most harm.
STRONGEST: Final = (
    "access token of ann",
    "access token of operator",
    "ID token of ann",
    "browser of chief",
    "admin with admins:write",
    "admin with endusers:write",
    "admin with clients:write",
    "client with clients:write",
    "client with endusers:write",
    "account in the same tenant",
    "address of a victim",
    "third-party client",
    "old mailbox of ann",
    "old backup",
    "rows of the database",
)


# A failure is played again many times to shorten it.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", STRONGEST)
def test_properties_hold(start: str) -> None:
    assert start in STARTS
    try:
        explore(start, examples=1)
    except Failure as failure:
        pytest.fail(str(failure), pytrace=False)
