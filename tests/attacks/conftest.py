"""Fixtures: the victims of the attacks."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.attacks.victims import KINDS, Victim
from tests.userflow.directory.entra import Entra
from tests.world import TestTenant


@pytest.fixture
def entra(settings: Any) -> Iterator[Entra]:
    """Return the directory of directory users."""
    directory = Entra()
    settings.DIRECTORY_CLOUDS = {"standin": (directory.base, directory.base)}
    settings.DIRECTORIES_PER_TENANT = 1000
    yield directory
    directory.end()


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def victim(tenant: TestTenant, entra: Entra, request: Any) -> Victim:
    """Return one user of each kind, signed in with the password at an address that the attacker shares."""
    make: Callable[[TestTenant, Entra], Victim] = request.param
    return make(tenant, entra)
