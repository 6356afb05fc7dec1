"""Console jobs in tests: a worker inside the process of the test."""

import asyncio

from procrastinate import PsycopgConnector
from procrastinate.contrib.django import app
from procrastinate.contrib.django.utils import connector_params

from console.jobs.actions import QUEUE


def run_waiting_jobs() -> None:
    """Run the jobs that wait in the queue, and return."""
    asyncio.run(_run(PsycopgConnector(kwargs=connector_params())))


async def _run(connector: PsycopgConnector) -> None:
    with app.replace_connector(connector):
        async with app.open_async():
            await app.run_worker_async(queues=[QUEUE], wait=False)
