"""A home of end users, and one of their number."""

import pytest

from tests.mfa.webauthn.authenticator import Authenticator
from tests.mfa.webauthn.passkeys import Home, end_users_of, somebody_with_passkey
from tests.world import House, Person


@pytest.fixture
def home(house: House) -> Home:
    return end_users_of(house)


@pytest.fixture
def enrolled(house: House) -> tuple[Person, Authenticator]:
    """Somebody with a passkey whose counter counts."""
    return somebody_with_passkey(house)
