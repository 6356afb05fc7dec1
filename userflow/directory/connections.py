"""Connect to the allowed addresses of directories, and relay bytes between libldap and such a connection.

Networks in `DIRECTORY_ALLOWED_NETWORKS` are allowed, as most directories are in private ones.

libldap would resolve the server's name again, verify certificates with the TLS library of its own build, and read responses
of any length into memory. So it gets one end of a local socket; a thread copies the bytes to and from the connection that
`connect` opened, and counts them.
"""

import selectors
import socket
import ssl
import threading
from typing import Final

from django.conf import settings

from identity_platform.outbound import NotResolved, Reach, TargetRejected, check_host
from identity_platform.outbound import connect as connect_to_checked
from userflow.errors import DirectoryAddressRejected, DirectoryFailed

# Bytes that a directory may send before the next request. A page of objects is smaller; in the memory of libldap and
# Python, very short values take some twenty times their size.
MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
AT_ONCE: Final = 65_536


def relayed(outside: socket.socket, *, seconds: float) -> socket.socket:
    """Return a local socket that is relayed to the connection; closing it closes the connection."""
    inside, given = socket.socketpair()
    outside.setblocking(False)
    threading.Thread(target=_carry, args=(inside, outside, seconds), name="directory-relay", daemon=True).start()
    return given


def _carry(inside: socket.socket, outside: socket.socket, seconds: float) -> None:
    with inside, outside, selectors.DefaultSelector() as waiting:
        waiting.register(inside, selectors.EVENT_READ)
        waiting.register(outside, selectors.EVENT_READ)
        received = 0
        try:
            while True:
                ready = {key.fileobj for key, _ in waiting.select()}
                if inside in ready:
                    request = inside.recv(AT_ONCE)
                    if not request:
                        return
                    _send(outside, request, seconds)
                    received = 0
                # Bytes that TLS has already decrypted do not wake the selector.
                while outside in ready or (isinstance(outside, ssl.SSLSocket) and outside.pending()):
                    ready.discard(outside)
                    try:
                        response = outside.recv(AT_ONCE)
                    except (ssl.SSLWantReadError, BlockingIOError):
                        # Part of a record, or a TLS message without data (session tickets).
                        break
                    received += len(response)
                    if not response or received > MAX_RESPONSE_BYTES:
                        return
                    inside.sendall(response)
        except OSError:
            # One end is gone: the other sees its socket closed, and libldap reports that the server is down.
            return


def _send(outside: socket.socket, rest: bytes, seconds: float) -> None:
    with selectors.DefaultSelector() as waiting:
        waiting.register(outside, selectors.EVENT_WRITE)
        while rest:
            try:
                rest = rest[outside.send(rest) :]
                continue
            except ssl.SSLWantReadError:
                waiting.modify(outside, selectors.EVENT_READ)
            except (ssl.SSLWantWriteError, BlockingIOError):
                waiting.modify(outside, selectors.EVENT_WRITE)
            if not waiting.select(seconds):
                raise TimeoutError


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
