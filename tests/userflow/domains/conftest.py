from collections.abc import Iterator
from typing import Any

import pytest

from tests.userflow.domains.dns_server import DnsServer, serve


@pytest.fixture(scope="session")
def _dns_server() -> Iterator[DnsServer]:
    with serve() as server:
        yield server


@pytest.fixture
def name_server(_dns_server: DnsServer, settings: Any) -> Iterator[DnsServer]:
    """A DNS server that the platform asks, without records."""
    settings.DNS_RESOLVERS = [_dns_server.address]
    yield _dns_server
    _dns_server.records.clear()
    _dns_server.broken.clear()
