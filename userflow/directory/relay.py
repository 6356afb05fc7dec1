"""A connection for a library that only speaks over a descriptor: ours on one side, a local socket on the other.

libldap would look the server's name up again, verify certificates by whatever TLS library it was built with, and take
answers of any length into memory. So it gets one end of a local socket; a thread carries the bytes to the connection that
`addresses.connect` has opened, and counts them.
"""

import selectors
import socket
import ssl
import threading
from typing import Final

# What a directory may send before the next request. A page of objects is below it; what libldap and Python make of values
# of a byte or two is some twenty times as much.
MOST_PER_ANSWER: Final = 4 * 1024 * 1024
AT_ONCE: Final = 65_536


def relayed(outside: socket.socket, *, patience: float) -> socket.socket:
    """A local socket whose bytes go through the connection; closing it closes that as well."""
    inside, given = socket.socketpair()
    outside.setblocking(False)
    threading.Thread(target=_carry, args=(inside, outside, patience), name="directory-relay", daemon=True).start()
    return given


def _carry(inside: socket.socket, outside: socket.socket, patience: float) -> None:
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
                while outside in ready or (isinstance(outside, ssl.SSLSocket) and outside.pending()):
                    ready.discard(outside)
                    try:
                        answered = outside.recv(AT_ONCE)
                    except (ssl.SSLWantReadError, BlockingIOError):
                        # Part of a record, or TLS talking to itself (session tickets).
                        break
                    received += len(answered)
                    if not answered or received > MOST_PER_ANSWER:
                        return
                    inside.sendall(answered)
        except OSError:
            # Either end is gone: the other one sees its socket closed, and libldap says that the server is down.
            return


def _send(outside: socket.socket, rest: bytes, patience: float) -> None:
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
            if not waiting.select(patience):
                raise TimeoutError
