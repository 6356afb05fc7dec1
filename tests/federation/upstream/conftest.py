"""Fixtures: a local identity provider, and networks of this machine allowed for it."""

from collections.abc import Iterator

import pytest
from django.test import override_settings

from tests.federation.upstream.provider import Provider


@pytest.fixture(autouse=True)
def _local_providers() -> Iterator[None]:
    # Only this address: others of the loopback network are as private as 10.0.0.0/8.
    with override_settings(
        FEDERATION_ALLOWED_NETWORKS=["127.0.0.1/32"], FEDERATION_PLAIN_HTTP=True, FEDERATION_TIMEOUT_SECONDS=5
    ):
        yield


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()
