"""What a drill counts on a database server."""

import threading
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from django.conf import settings

from drill.connections import ConnectionCounter
from tests.machine.conftest import within

NAMED = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"


@pytest.fixture
def address(django_db_setup: None) -> dict[str, Any]:
    """The server of this test run."""
    admin = settings.DATABASE_ADMIN
    known = {"user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT", "dbname": "NAME"}
    return {name: str(admin[key]) for name, key in known.items() if admin[key]}


@pytest.mark.parametrize(("limit", "is_above"), [(2, False), (1, True)])
def test_connections_above_the_limit_are_counted(address: dict[str, Any], limit: int, is_above: bool) -> None:
    name = f"counted {threading.get_ident()} {limit}"
    counter = ConnectionCounter(address, NAMED, (name,), limit)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(psycopg.connect(**address, application_name=name))
        counter.start()
        assert within(10, lambda: counter.most == 2)
    counter.ended.set()
    counter.join()
    assert (counter.above > 0) is is_above
