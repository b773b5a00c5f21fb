"""A small authoritative name server for tests: in a thread, or as ``python -m tests.name_server ADDRESS ZONE-FILE``.

A zone is lines of owner, type and data. It answers over UDP; what begins with ``silent`` gets no answer, what begins
with ``broken`` a SERVFAIL.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from wanderbus.machine import Address


class NameServer(threading.Thread):
    """Serves ``zone`` at ``address`` from :meth:`start` to :meth:`close`; ``ttl_s`` is by owner, 300 s otherwise."""

    def __init__(self, zone: str, address: Address = ("127.0.0.1", 0), ttl_s: Mapping[str, int] | None = None) -> None:
        super().__init__(daemon=True)
        self.change(zone)
        self._ttl_s = ttl_s or {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self.address: Address = self._socket.getsockname()
        self.asked: list[str] = []
        """Names and types, in order."""
        self._ended = False

    def change(self, zone: str) -> None:
        """Serve another zone from now on."""
        self._records = [line.split(" ", 2) for line in zone.split("\n") if line]

    def run(self) -> None:
        """Answer until closed."""
        while True:
            data, source = self._socket.recvfrom(4_096)
            if self._ended:
                return
            query = dns.message.from_wire(data)
            (question,) = query.question
            self.asked.append(f"{question.name} {dns.rdatatype.to_text(question.rdtype)}")
            if not str(question.name).startswith("silent"):
                self._socket.sendto(self._answer(query).to_wire(), source)

    def close(self) -> None:
        """End the thread, which a last datagram wakes up."""
        self._ended = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self.address)
        self.join(5)
        self._socket.close()

    def _answer(self, query: dns.message.Message) -> dns.message.Message:
        (question,) = query.question
        answer = dns.message.make_response(query)
        name, kind = str(question.name), dns.rdatatype.to_text(question.rdtype)
        found = [data for owner, type_, data in self._records if f"{owner}." == name and type_ == kind]
        if found:
            ttl_s = self._ttl_s.get(name.rstrip("."), 300)
            answer.answer.append(dns.rrset.from_text(name, ttl_s, "IN", kind, *found))
        elif name.startswith("broken"):
            answer.set_rcode(dns.rcode.SERVFAIL)
        elif not any(f"{owner}." == name for owner, _, _ in self._records):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        return answer


if __name__ == "__main__":
    server = NameServer(Path(sys.argv[2]).read_text(encoding="utf-8"), (sys.argv[1], 53))
    print("ready", flush=True)
    server.run()
