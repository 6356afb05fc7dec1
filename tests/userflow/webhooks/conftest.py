"""Consumers, and deliverers in this process and in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tests.environment import DATABASE
from tests.userflow.webhooks.consumer import Consumer
from tests.world import TestTenant

ROOT = Path(__file__).resolve().parents[3]
ENDPOINTS = "/uflow/webhooks/endpoints"
# The same values as the fixture below.
SETTINGS = {
    "WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
    "WEBHOOK_PLAIN_HTTP": "true",
    "WEBHOOK_TIMEOUT_SECONDS": "3",
    "WEBHOOK_RETRY_FIRST_SECONDS": "1",
    "WEBHOOK_SWEEP_SECONDS": "1",
    "CLIENT_ALLOWED_NETWORKS": "127.0.0.0/8",
    "CLIENT_PLAIN_HTTP": "true",
}


@pytest.fixture(autouse=True)
def _consumers_on_this_machine(settings: Any) -> None:
    settings.WEBHOOK_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    settings.WEBHOOK_PLAIN_HTTP = True
    settings.WEBHOOK_TIMEOUT_SECONDS = 3
    settings.CLIENT_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    settings.CLIENT_PLAIN_HTTP = True


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    made = Consumer()
    yield made
    made.close()


@pytest.fixture
def other_consumer() -> Iterator[Consumer]:
    made = Consumer()
    yield made
    made.close()


@pytest.fixture
def bystander() -> Iterator[Consumer]:
    made = Consumer()
    yield made
    made.close()


@dataclass
class Listening:
    """A tenant with a running consumer."""

    home: TestTenant
    endpoint_id: str
    secret: str

    @property
    def path(self) -> str:
        return f"{ENDPOINTS}/{self.endpoint_id}"

    def read(self) -> dict[str, Any]:
        return dict(self.home.api.get(self.path).json())

    def messages(self, **query: Any) -> list[dict[str, Any]]:
        return list(self.home.api.get(f"{self.path}/messages", query).json()["messages"])


def listen(home: TestTenant, consumer: Consumer, *events: str) -> Listening:
    response = home.api.post(ENDPOINTS, {"url": consumer.url, "events": list(events) or ["*"]})
    assert response.status_code == 201, response.content
    return Listening(home, response.json()["id"], response.json()["secret"])


@pytest.fixture
def listening(new_tenant: Callable[[], TestTenant], consumer: Consumer, bystander: Consumer) -> Listening:
    """A new tenant with two endpoints for all events: the consumer's and an untouched one."""
    home = new_tenant()
    listen(home, bystander)
    return listen(home, consumer)


def deliver() -> None:
    """Deliver the due messages."""
    call_command("deliver_events", "--once", "--threads", "4")


@pytest.fixture
def deliverers() -> Iterator[Callable[[], "subprocess.Popen[str]"]]:
    """Start `deliver_events` in other processes; kill the remaining ones at the end."""
    started: list[subprocess.Popen[str]] = []

    def start() -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.userflow.webhooks.another_deliverer", DATABASE],
            cwd=ROOT,
            env={**os.environ, **SETTINGS},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "Ready."
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
