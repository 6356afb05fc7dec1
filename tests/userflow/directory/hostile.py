"""A hostile server that sends minimal LDAP (RFC 4511, BER by X.690)."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.userflow.directory import slapd as ad

Row = list[tuple[bytes, list[bytes]]]
PAGED = b"1.2.840.113556.1.4.319"


def ber(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    length = bytes([len(body)]) if len(body) < 0x80 else b"\x84" + len(body).to_bytes(4, "big")
    return bytes([tag]) + length + body


def text(value: bytes) -> bytes:
    return ber(0x04, value)


def message(number: int, *parts: bytes) -> bytes:
    return ber(0x30, ber(0x02, number.to_bytes(4, "big")), *parts)


SUCCESS = ber(0x0A, b"\0") + text(b"") + text(b"")


def bound(number: int) -> bytes:
    return message(number, ber(0x61, SUCCESS))


def entry(number: int, row: Row, dn: bytes = b"CN=x") -> bytes:
    attributes = (ber(0x30, text(name), ber(0x31, *map(text, values))) for name, values in row)
    return message(number, ber(0x64, text(dn), ber(0x30, *attributes)))


def done(number: int, cookie: bytes = b"") -> bytes:
    paging = text(ber(0x30, ber(0x02, b"\0"), text(cookie)))
    return message(number, ber(0x65, SUCCESS), ber(0xA0, ber(0x30, text(PAGED), paging)))


def person(guid: bytes = b"g" * 16, mail: bytes = b"person@corp.example", **more: bytes) -> Row:
    """Return an object of an Active Directory; `more` replaces attributes."""
    usual = {"objectGUID": guid, "mail": mail, "displayName": b"X", "userAccountControl": b"512"}
    return [(name.encode(), [value]) for name, value in (usual | more).items()]


def asked(connection: socket.socket) -> int:
    """Return the number of the next request. Raises ConnectionError at the end."""
    heard = connection.recv(65_536)
    if not heard:
        raise ConnectionError
    start = 2 if heard[1] < 0x80 else 2 + (heard[1] & 0x7F)
    return int.from_bytes(heard[start + 2 : start + 2 + heard[start + 1]], "big")


def answering(people: Callable[[int], bytes]) -> Callable[[socket.socket], None]:
    """Accept every bind, and return the objects of `people` for each search."""

    def speak(connection: socket.socket) -> None:
        connection.sendall(bound(asked(connection)))
        while True:
            connection.sendall(people(asked(connection)))

    return speak


@contextmanager
def hostile(home: Path, speak: Callable[[socket.socket], None], *, tls: bool = True) -> Iterator[dict[str, Any]]:
    """Serve during the block; yield the fields of a configuration for it."""
    authority = ad.authority()
    key = ec.generate_private_key(ec.SECP256R1())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = home / "server.pem"
    pem.write_bytes(secret + ad.pem(ad.certificate("localhost", key, authority)).encode())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        # The client has closed the connection.
        with suppress(OSError), connection:
            speak(context.wrap_socket(connection, server_side=True) if tls else connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield {
        "kind": "active_directory",
        "server": "127.0.0.1",
        "port": listener.getsockname()[1],
        "tls": "ldaps" if tls else "starttls",
        "ca_certificate": ad.pem(authority[1]),
        "base_dn": ad.BASE,
        "bind_dn": ad.READER,
        "secret": "x",
    }
    listener.close()
