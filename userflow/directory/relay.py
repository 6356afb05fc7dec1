"""TLS for a library that only speaks over a descriptor: Python's own TLS on one side, a local socket on the other.

libldap would look the server's name up again, and verify certificates by whatever TLS library it was built with. So it
gets one end of a local socket; a thread carries the bytes to the connection that `addresses.connect` has opened.
"""

import selectors
import socket
import ssl
import threading
from typing import Final

# What a directory may send before the next request: a page of objects is far below it.
MOST_PER_ANSWER: Final = 64 * 1024 * 1024
AT_ONCE: Final = 65_536


def through_tls(outside: ssl.SSLSocket, *, patience: float) -> socket.socket:
    """A local socket whose bytes go through the TLS connection; closing it closes that as well."""
    inside, given = socket.socketpair()
    outside.setblocking(False)
    threading.Thread(target=_carry, args=(inside, outside, patience), name="directory-tls", daemon=True).start()
    return given


def _carry(inside: socket.socket, outside: ssl.SSLSocket, patience: float) -> None:
    with inside, outside, selectors.DefaultSelector() as waiting:
        waiting.register(inside, selectors.EVENT_READ)
        waiting.register(outside, selectors.EVENT_READ)
        received = 0
        try:
            while True:
                ready = {key.fileobj for key, _ in waiting.select()}
                if inside in ready:
                    asked = inside.recv(AT_ONCE)
                    if not asked:
                        return
                    _send(outside, asked, patience)
                    received = 0
                # Bytes that TLS has decrypted already wake no selector.
                while outside in ready or outside.pending():
                    ready.discard(outside)
                    try:
                        answered = outside.recv(AT_ONCE)
                    except ssl.SSLWantReadError:
                        # Part of a record, or TLS talking to itself (session tickets).
                        break
                    received += len(answered)
                    if not answered or received > MOST_PER_ANSWER:
                        return
                    inside.sendall(answered)
        except OSError:
            # Either end is gone: the other one sees its socket closed, and libldap says that the server is down.
            return


def _send(outside: ssl.SSLSocket, rest: bytes, patience: float) -> None:
    with selectors.DefaultSelector() as waiting:
        waiting.register(outside, selectors.EVENT_WRITE | selectors.EVENT_READ)
        while rest:
            try:
                rest = rest[outside.send(rest) :]
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                if not waiting.select(patience):
                    raise TimeoutError from None
