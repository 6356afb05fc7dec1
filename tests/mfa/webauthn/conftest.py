"""A home of end users, and one of their number."""

import pytest

from tests.mfa.webauthn.authenticator import Authenticator
from tests.mfa.webauthn.passkeys import Home, end_users_of, user_with_passkey
from tests.world import TestTenant, User


@pytest.fixture
def home(tenant: TestTenant) -> Home:
    return end_users_of(tenant)


@pytest.fixture
def enrolled(tenant: TestTenant) -> tuple[User, Authenticator]:
    """Somebody with a passkey whose counter counts."""
    return user_with_passkey(tenant)
