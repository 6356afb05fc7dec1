"""Which addresses directories may have: `identity_platform.outbound` with the settings and errors of this package.

Networks in `DIRECTORY_ALLOWED_NETWORKS` are allowed, as most directories are in private ones.
"""

import socket

from django.conf import settings

from identity_platform.outbound import NotResolved, Reach, TargetRejected, check_host
from identity_platform.outbound import connect as connect_to_checked
from userflow.directory.errors import DirectoryAddressRejected, DirectoryFailed


def reach(*, plain_http: bool = False) -> Reach:
    """Return the allowed addresses of directories."""
    return Reach.of(settings.DIRECTORY_ALLOWED_NETWORKS, plain_http=plain_http)


def reject_plainly_forbidden(host: str) -> None:
    """Raise DirectoryAddressRejected for a host that is forbidden even without a name look-up."""
    try:
        check_host(host, reach())
    except TargetRejected as refused:
        raise DirectoryAddressRejected from refused


def connect(host: str, port: int, *, timeout: float) -> socket.socket:
    """Connect to an allowed address of the host, which is looked up once.

    Raises DirectoryAddressRejected (before anything is sent), DirectoryFailed (unknown name, no response).
    """
    try:
        return connect_to_checked(host, port, reach(), seconds=timeout)
    except NotResolved as problem:
        raise DirectoryFailed(f"The name {host} cannot be resolved. Check the server name.") from problem
    except TargetRejected as refused:
        raise DirectoryAddressRejected from refused
    except OSError as problem:
        raise DirectoryFailed(f"No response from {host}:{port}. Check server, port and firewalls.") from problem
