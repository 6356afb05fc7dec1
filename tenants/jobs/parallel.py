"""The same job for many tenants: some at a time on each database server."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from typing import TypeVar

from django.db import connections

from tenants.models import DatabaseServer, TenantDatabase

Result = TypeVar("Result")


def on_each_server(
    mappings: Iterable[TenantDatabase], jobs: int, work: Callable[[TenantDatabase], Result]
) -> Iterator[Result]:
    """Yield the result of every tenant when it is there, with `jobs` tenants at a time on each server.

    On Ctrl-C, or when the caller stops, waiting tenants are not begun and running ones are waited for.
    """
    by_server: dict[DatabaseServer, list[TenantDatabase]] = defaultdict(list)
    for mapping in mappings:
        by_server[mapping.server].append(mapping)

    def work_in_thread(mapping: TenantDatabase) -> Result:
        try:
            return work(mapping)
        finally:
            # Django does not close a thread's connections when it ends.
            connections.close_all()

    with ExitStack() as pools:
        running: list[Future[Result]] = []
        for server, of_server in by_server.items():
            pool = pools.enter_context(ThreadPoolExecutor(jobs, thread_name_prefix=f"job-{server.name}"))
            pools.callback(pool.shutdown, wait=True, cancel_futures=True)
            running += [pool.submit(work_in_thread, mapping) for mapping in of_server]
        for done in as_completed(running):
            yield done.result()
