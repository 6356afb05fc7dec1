"""Where the platform lets itself be sent by directories: `identity_platform.outbound` with the settings and errors of
this room. Networks in `DIRECTORY_ALLOWED_NETWORKS` are let through, as most directories stand in private ones."""

import socket

from django.conf import settings

from identity_platform.outbound import NotResolved, Reach, TargetRejected, check_host
from identity_platform.outbound import connect as connect_to_checked
from userflow.directory.errors import DirectoryAddressRejected, DirectoryFailed


def reach(*, plain_http: bool = False) -> Reach:
    """What directories may be reached at."""
    return Reach.of(settings.DIRECTORY_ALLOWED_NETWORKS, plain_http=plain_http)


def reject_plainly_forbidden(host: str) -> None:
    """DirectoryAddressRejected for a host that needs no look-up to be rejected."""
    try:
        check_host(host, reach())
    except TargetRejected as refused:
        raise DirectoryAddressRejected from refused


def connect(host: str, port: int, *, timeout: float) -> socket.socket:
    """A connection to the host, by an address that was looked up once and may be reached.

    Raises DirectoryAddressRejected (before anything is sent), DirectoryFailed (no such name, nobody answers).
    """
    try:
        return connect_to_checked(host, port, reach(), seconds=timeout)
    except NotResolved as problem:
        raise DirectoryFailed(f"The name {host} cannot be looked up: check the server's name.") from problem
    except TargetRejected as refused:
        raise DirectoryAddressRejected from refused
    except OSError as problem:
        raise DirectoryFailed(
            f"Nobody answers at {host}:{port}: check server and port, and the firewalls between."
        ) from problem
