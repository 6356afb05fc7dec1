"""Relay bytes between libldap and a connection that the platform has opened and checked.

libldap would resolve the server's name again, verify certificates with the TLS library of its own build, and read responses
of any length into memory. So it gets one end of a local socket; a thread copies the bytes to and from the connection that
`addresses.connect` opened, and counts them.
"""

import selectors
import socket
import ssl
import threading
from typing import Final

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
