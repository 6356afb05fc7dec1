"""URLs of a server with several hosts."""

from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from identity_platform.environment import database
from identity_platform.postgresql import hosts
from tenants.database_servers import servers


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u@db1,db2/identity", "primary"),
        ("postgresql://u@db1:5433,db2:5434/identity", "primary"),
        ("postgresql://u@/identity?host=/run/a,/run/b", "primary"),
        ("postgresql://u@db1,db2/identity?target_session_attrs=any", "any"),
        ("postgresql://u@db1/identity", None),
    ],
)
def test_only_the_primary_of_several_hosts_is_accepted(url: str, expected: str | None) -> None:
    assert database(url, "DATABASE_URL")["OPTIONS"].get("target_session_attrs") == expected
    assert servers.parse_url(url).get("target_session_attrs") == expected


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"host": "a,b", "port": "1,2"}, (("a", "1"), ("b", "2"))),
        ({"host": "a,b", "port": "1"}, (("a", "1"), ("b", "1"))),
        ({"host": "a,b"}, (("a", "5432"), ("b", "5432"))),
        ({"host": "a,b,c", "port": "1,2"}, ()),
        ({"host": "a,b", "hostaddr": "10.0.0.1,10.0.0.2"}, ()),
    ],
)
def test_hosts_of_a_url(parameters: dict[str, Any], expected: tuple[hosts.HostAndPort, ...]) -> None:
    assert hosts.hosts_and_ports(parameters) == expected


def test_primary_is_tried_first_and_a_lost_host_last() -> None:
    known = hosts.hosts_and_ports(conninfo_to_dict("host=order-a,order-b,order-c port=1"))
    hosts.remember_primary(known, ("order-b", "1"))
    assert hosts.in_order(known) == {"host": "order-b,order-a,order-c", "port": "1,1,1"}
    hosts.lost(known, ("order-b", "1"))
    assert hosts.in_order(known)["host"] == "order-a,order-c,order-b"
    # Another thread has found another one meanwhile.
    hosts.lost(known, ("order-b", "1"))
    hosts.remember_primary(known, ("elsewhere", "1"))
    assert hosts.in_order(known)["host"] == "order-a,order-c,order-b"
