"""The calls for end users, and one end user."""

import pytest

from tests.mfa.webauthn.authenticator import Authenticator
from tests.mfa.webauthn.passkeys import Home, end_users_of, user_with_passkey
from tests.world import TestTenant, User


@pytest.fixture
def home(tenant: TestTenant) -> Home:
    return end_users_of(tenant)


@pytest.fixture
def enrolled(tenant: TestTenant) -> tuple[User, Authenticator]:
    """A user with a passkey whose counter rises."""
    return user_with_passkey(tenant)
