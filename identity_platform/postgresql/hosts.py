"""Several hosts of one database server: a primary with standbys, one of which is promoted when the primary is lost.

A URL names them all (PostgreSQL documentation 34.1.1.3). The driver tries them in the order given and waits for each that is
gone from the network, so the host that was the primary last is tried first here.
"""

from collections.abc import Mapping
from typing import Any

# A host and its port, as in the URL.
HostAndPort = tuple[str, str]
# The order in which the hosts of a list are tried now. A function of the number of servers.
_orders: dict[tuple[HostAndPort, ...], tuple[HostAndPort, ...]] = {}


def with_primary(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a connection, which accept only the primary where they name several hosts.

    `primary` and not `read-write`: the database of a tenant that is being moved is read-only, and is still read.
    """
    if len(hosts_and_ports(parameters)) > 1:
        return {"target_session_attrs": "primary", **parameters}
    return dict(parameters)


def hosts_and_ports(parameters: Mapping[str, Any]) -> tuple[HostAndPort, ...]:
    """Return the hosts that the parameters name. Empty where they name addresses (`hostaddr`) instead."""
    hosts = str(parameters.get("host") or "").split(",")
    ports = [port or "5432" for port in str(parameters.get("port") or "").split(",")]
    if parameters.get("hostaddr"):
        return ()
    if len(ports) == 1:
        ports *= len(hosts)
    # Another number of ports than of hosts is the driver's to reject.
    return tuple(zip(hosts, ports, strict=True)) if len(ports) == len(hosts) else ()


def in_order(known: tuple[HostAndPort, ...]) -> dict[str, str]:
    """Return the driver's parameters `host` and `port`, with the host first that was the primary last."""
    order = _orders.get(known, known)
    return {"host": ",".join(host for host, _ in order), "port": ",".join(port for _, port in order)}


def remember_primary(known: tuple[HostAndPort, ...], primary: HostAndPort) -> None:
    """Try this host first from now on."""
    order = _orders.get(known, known)
    if primary in order and order[0] != primary:
        _orders[known] = (primary, *(host for host in order if host != primary))


def lost(known: tuple[HostAndPort, ...], primary: HostAndPort) -> None:
    """Try this host last from now on."""
    order = _orders.get(known, known)
    if primary == order[0]:
        _orders[known] = (*order[1:], primary)
