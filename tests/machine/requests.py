"""Requests byte by byte."""

import socket

LOGIN = b'{"username": "no-user", "password": "wrong"}'


def request(*headers: str, path: str = "/uflow/admin/auth/login") -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def answer(connection: socket.socket) -> str:
    with connection.makefile("rb") as stream:
        return stream.read().decode()
