"""A TCP port that leads to a PostgreSQL server, and can be closed for all clients or for subscriptions only."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from psycopg.conninfo import conninfo_to_dict


@dataclass
class Forwarder:
    """`closed` rejects all connections and ends the open ones; `without_subscriptions` does so for those of a move."""

    path: str
    port: int
    closed: bool = False
    without_subscriptions: bool = False
    _open: list[tuple[bool, socket.socket]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The server's URL over this port, with a password that the server does not ask for."""
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self.port}/identity"

    def close(self) -> None:
        """End all connections and accept no new ones."""
        self.closed = True
        self._end(subscriptions_only=False)

    def close_subscriptions(self) -> None:
        """End the connections of subscriptions and accept no new ones."""
        self.without_subscriptions = True
        self._end(subscriptions_only=True)

    def _end(self, *, subscriptions_only: bool) -> None:
        for of_subscription, each in list(self._open):
            if of_subscription or not subscriptions_only:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def serve(self, listener: socket.socket) -> None:
        """Accept connections until the listener is closed."""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        first = client.recv(8192)
        # Requests for encryption come before the startup packet; there is none.
        while len(first) == 8:
            client.sendall(b"N")
            first = client.recv(8192)
        of_subscription = b"identity_move_" in first
        if self.closed or (of_subscription and self.without_subscriptions):
            client.close()
            return
        server = socket.socket(socket.AF_UNIX)
        server.connect(self.path)
        server.sendall(first)
        self._open += [(of_subscription, client), (of_subscription, server)]
        threading.Thread(target=_pump, args=(client, server), daemon=True).start()
        _pump(server, client)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


PASSWORD = "never-in-a-log-9c1f"


@contextmanager
def forwarded(url: str) -> Iterator[Forwarder]:
    """Open a port that leads to the embedded server of this URL."""
    path = f"{conninfo_to_dict(url)['host']}/.s.PGSQL.5432"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        forwarder = Forwarder(path, listener.getsockname()[1])
        threading.Thread(target=forwarder.serve, args=(listener,), daemon=True).start()
        try:
            yield forwarder
        finally:
            forwarder.close()
            # Wakes accept().
            listener.shutdown(socket.SHUT_RDWR)
