"""A hostile server blocks no thread for long, uses little memory, and ends no other tenant's run."""

import socket
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.userflow.directory.conftest import Directory
from tests.userflow.directory.hostile import answering, asked, bound, done, entry, hostile, person
from tests.world import TestTenant

pytestmark = pytest.mark.needs("python-ldap", "slapd")
TINY = [b"ab"] * 2_000_000


def half_a_message(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.sendall(b"\x30\x84\x00\x00\x10\x00\x02")
    connection.recv(65_536)


def half_an_answer(connection: socket.socket) -> None:
    connection.sendall(bound(asked(connection)))
    asked(connection)
    connection.sendall(b"\x30\x84\x00\x00\x10\x00\x02")
    connection.recv(65_536)


def dripping_offer(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.sendall(b"\x30\x82\x0f\xff")
    while True:
        time.sleep(0.1)
        connection.sendall(b"\0")


def silent_handshake(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.recv(65_536)


@pytest.mark.quiet_machine
@pytest.mark.parametrize(
    ("speak", "tls"),
    [(half_a_message, True), (half_an_answer, True), (dripping_offer, False), (silent_handshake, False)],
)
def test_stalled_server_ends_at_deadline(
    tenant: TestTenant,
    configured: Callable[..., Directory],
    settings: Any,
    tmp_path: Path,
    speak: Callable[[socket.socket], None],
    tls: bool,
) -> None:
    settings.DIRECTORY_REQUEST_SECONDS = 1
    with hostile(tmp_path, speak, tls=tls) as members:
        directory = configured(tenant, enabled=False, **members)
        began = time.monotonic()
        assert directory.test()["success"] is False
        assert tenant.api.post(f"{directory.path}/sync", {}).status_code == 502
        # Without the limit: forever.
        assert time.monotonic() - began < 40


@pytest.mark.quiet_machine
def test_endless_one_object_pages_end_at_deadline(
    tenant: TestTenant, configured: Callable[..., Directory], settings: Any, tmp_path: Path
) -> None:
    numbers = count()

    def people(number: int) -> bytes:
        mark = next(numbers)
        return entry(number, person(mark.to_bytes(16, "big"), b"p%d@endless.example" % mark)) + done(number, b"more")

    with hostile(tmp_path, answering(people)) as members:
        directory = configured(tenant, enabled=False, **members)
        for seconds in (1, 5, 25):  # longer if the machine was too busy for the first page
            settings.DIRECTORY_REQUEST_SECONDS = seconds
            began = time.monotonic()
            cut = tenant.api.post(f"{directory.path}/sync", {"dry_run": True})
            if cut.status_code == 200:
                break
    assert (cut.status_code, cut.json()["state"]) == (200, "incomplete")
    assert time.monotonic() - began < seconds + 20


def test_waiting_addresses_end_at_deadline(
    tenant: TestTenant, configured: Callable[..., Directory], settings: Any, tmp_path: Path
) -> None:
    ids, mark, moved = [uuid4().bytes for _ in range(60)], uuid4().hex, count()

    def people(number: int) -> bytes:
        step = next(moved)
        rows = [person(guid, b"p%d@%s.example" % (place + step, mark.encode())) for place, guid in enumerate(ids)]
        return b"".join(entry(number, row) for row in rows) + done(number)

    with hostile(tmp_path, answering(people)) as members:
        directory = configured(tenant, enabled=False, **members)
        assert directory.sync()["users_created"] == 60
        # Each round frees one more address: sixty rounds, but the time is up before the first.
        settings.DIRECTORY_REQUEST_SECONDS = 0
        cut = directory.sync()
        assert (cut["state"], cut["users_updated"] < 60) == ("incomplete", True)
        settings.DIRECTORY_REQUEST_SECONDS = 150
        assert directory.sync()["state"] == "succeeded"


REFUSED: dict[str, tuple[Callable[[int], bytes], str]] = {
    "empty pages": (lambda number: done(number, b"more"), "empty pages"),
    "more rows than asked for": (
        lambda number: b"".join(entry(number, person(bytes([row]) * 16)) for row in range(6)) + done(number),
        "more objects than requested",
    ),
    "millions of values": (
        lambda number: entry(number, [*person(), (b"x", TINY)]) + done(number),
        "ended the connection",
    ),
    "an attribute that is no text": (
        lambda number: entry(number, [(b"\xff\xfe", [b"x"]), *person()]) + done(number),
        "not valid LDAP",
    ),
    "a name that is no text": (
        lambda number: entry(number, person(), dn=b"\xff\xfe") + done(number),
        "not valid LDAP",
    ),
}


@pytest.mark.parametrize(("people", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_malformed_ldap_response_is_reported(
    tenant: TestTenant,
    configured: Callable[..., Directory],
    tmp_path: Path,
    people: Callable[[int], bytes],
    says: str,
) -> None:
    with hostile(tmp_path, answering(people)) as members:
        tried = configured(tenant, enabled=False, **members).test()
    assert (tried["success"], says in tried["message"]) == (False, True), tried


def test_invalid_status_skips_only_its_object(
    tenant: TestTenant, configured: Callable[..., Directory], tmp_path: Path
) -> None:
    people = [person(uuid4().bytes, userAccountControl=status) for status in (b"--5", b"-", b"5-", b"1" * 11)]
    with hostile(
        tmp_path, answering(lambda number: b"".join(entry(number, row) for row in people) + done(number))
    ) as members:
        ran = configured(tenant, enabled=False, **members).sync()
    assert (ran["state"], ran["users_skipped"]) == ("succeeded", 4)
    assert {problem["code"] for problem in ran["errors"]} == {"status_unreadable"}


def test_hostile_group_names_are_compared_quickly(
    tenant: TestTenant, configured: Callable[..., Directory], tmp_path: Path
) -> None:
    group = f"Spaces {uuid4().hex}"
    assert tenant.api.post("/authmgr/groups", {"name": group}).status_code == 201
    name = b"a" + b" " * 40_000 + b"b"
    with hostile(tmp_path, answering(lambda number: entry(number, person(memberOf=name)) + done(number))) as members:
        directory = configured(tenant, enabled=False, groups={"CN=a": group}, **members)
        began = time.process_time()
        assert directory.test()["success"] is True
    assert time.process_time() - began < 5
