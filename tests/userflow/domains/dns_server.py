"""A DNS server on this machine that answers for TXT records."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dns.flags
import dns.message
import dns.rcode
import dns.rrset


class DnsServer:
    """Answers over UDP with what `records` has, by name without the last dot; NXDOMAIN for other names."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.records: dict[str, list[str]] = {}
        self.broken: set[str] = set()

    def answer(self, query: bytes) -> bytes:
        asked = dns.message.from_wire(query)
        question = asked.question[0]
        name = question.name.to_text(omit_final_dot=True)
        response = dns.message.make_response(asked, recursion_available=True)
        if name in self.broken:
            response.set_rcode(dns.rcode.SERVFAIL)
        elif name not in self.records:
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif self.records[name]:
            response.answer.append(dns.rrset.from_text(question.name, 60, "IN", "TXT", *self.records[name]))
        return response.to_wire()


@contextmanager
def serve() -> Iterator[DnsServer]:
    """Run a server in a thread."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            query, reply = self.request
            reply.sendto(served.answer(query), self.client_address)

    with socketserver.ThreadingUDPServer(("127.0.0.1", 0), Handler) as server:
        host, port = server.server_address[:2]
        served = DnsServer((str(host), int(port)))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
