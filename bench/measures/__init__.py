"""The measurements, in the order in which they run: the databases grow from one to the next."""

from collections.abc import Callable

from bench.measures import (
    backends,
    crowd,
    factors,
    fleet,
    frame,
    imports,
    keycloak,
    limits,
    moves,
    openid,
    peers,
    provisioning,
    reads,
    signin,
    tenancy,
    throughput,
)
from bench.run import Row, Run

MEASURES: dict[str, Callable[[Run], list[Row]]] = {
    "provisioning": provisioning.measure,
    "read": reads.measure_one,
    "list": reads.measure_list,
    "login": signin.measure_login,
    "peers": peers.measure,
    "backends": backends.measure,
    "factors": factors.measure,
    "openid": openid.measure,
    "frame": frame.measure,
    "latency": signin.measure_latency,
    "ratelimit": limits.measure,
    "tenants": tenancy.measure,
    "migrate": fleet.measure_migrate,
    "start": fleet.measure_start,
    "crowd": crowd.measure,
    "curves": throughput.measure,
    "import": imports.measure,
    "move": moves.measure,
    "keycloak": keycloak.measure,
}
