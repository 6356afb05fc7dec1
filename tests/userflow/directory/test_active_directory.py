"""Synchronising from a real slapd that looks like an Active Directory."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.userflow.directory import slapd as ad
from tests.userflow.directory.conftest import Directory, counts
from tests.world import House

pytestmark = pytest.mark.needs("slapd", "python-ldap")


@pytest.fixture(scope="module")
def server() -> Iterator[ad.Slapd]:
    running = ad.Slapd([])
    yield running
    running.end()


@pytest.fixture
def directory(server: ad.Slapd, new_house: Callable[[], House], configured: Callable[..., Directory]) -> Iterator[Any]:
    """A directory that is empty at the beginning."""
    yield configured(new_house(), **settings_of(server))
    for dn, _ in server.door.search_s(ad.BASE, 2, "(objectClass=user)", ["cn"]):
        server.door.delete_s(dn)


def settings_of(server: ad.Slapd, **more: Any) -> dict[str, Any]:
    return {
        "kind": "active_directory",
        "server": "localhost",
        "port": server.tls_port,
        "ca_certificate": server.ca,
        "base_dn": ad.BASE,
        "bind_dn": ad.READER,
        "secret": ad.SECRET,
        **more,
    }


def test_people_come_and_a_second_run_changes_nothing(directory: Directory, server: ad.Slapd) -> None:
    for number in range(7):
        server.add(ad.Somebody(number, f"person{number}@corp.example"))
    first, second = directory.sync(), directory.sync()
    assert (first["state"], counts(first)) == ("succeeded", (7, 7, 0, 0, 0, 0)), first
    assert counts(second) == (7, 0, 0, 0, 0, 0)
    user = directory.user("person3@corp.example")
    assert (user["provider"], user["active"], user["name"]) == ("active_directory", True, "Person 3")
