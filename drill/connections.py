"""The connections to a database server, counted during a fault."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from drill.cluster import NotThere
from drill.world import World

PAUSE_SECONDS = 0.1
# Backends that wait for a lock before they are ready are in pg_locks only.
OF_PLATFORM = """
SELECT count(*) FROM (
  SELECT pid FROM pg_stat_activity WHERE usename = 'identity' UNION SELECT pid FROM pg_locks WHERE NOT granted
) AS backends
"""
# Of the programs whose DATABASE_URL has this application_name, to databases of tenants.
OF_PROGRAM = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = %s AND starts_with(datname, 'bench_') AND datname <> 'bench_fence'
"""


class ConnectionCounter(threading.Thread):
    """Counts with one statement again and again. `most`: the highest number; `above`: how often it was above `limit`."""

    def __init__(self, address: dict[str, Any], statement: str, values: tuple[str, ...], limit: int) -> None:
        super().__init__(daemon=True)
        self.address, self.statement, self.values, self.limit = address, statement, values, limit
        self.ended = threading.Event()
        self.most = self.above = 0

    def run(self) -> None:
        with psycopg.connect(**self.address, autocommit=True) as raw:
            while not self.ended.is_set():
                ((number,),) = raw.execute(self.statement, self.values).fetchall()
                self.most = max(self.most, number)
                self.above += number > self.limit
                self.ended.wait(PAUSE_SECONDS)


@contextmanager
def counted_connections(world: World, statement: str, *values: str, limit: int) -> Iterator[None]:
    """Count during the block; each count above the limit is noted as wrong. Raises NotThere if the server ended it."""
    counter = ConnectionCounter(world.cluster.node("leader").address(), statement, values, limit)
    counter.start()
    try:
        yield
    finally:
        counted_to_the_end = counter.is_alive()
        counter.ended.set()
        counter.join()
        world.wrong += counter.above
        world.connections, world.connection_limit = counter.most, limit
    if not counted_to_the_end:
        raise NotThere("The connections of the server were not counted to the end.")
