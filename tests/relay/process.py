"""``wanderbus relay`` as a process, and a proxy that gives it commands."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.relay.desk import medium
from wanderbus.machine import Address
from wanderbus.relay import ng
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

WAIT_S = 60.0


class Proxy:
    """Commands over UDP, each answered in time."""

    def __init__(self, relay: Address) -> None:
        self.place = relay
        self.socket = socket.socket(socket.AF_INET6 if ":" in relay[0] else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(relay)
        self._cookies = itertools.count(1)

    def give(self, fields: dict[str, Any]) -> dict[str, Any]:
        cookie = b"%d" % next(self._cookies)
        self.socket.send(ng.write_command(cookie, fields))
        answered, reply = ng.read_reply(self.socket.recv(65_536))
        assert answered == cookie
        return reply

    def call(self, a: str, b: str, call: str = "call") -> tuple[Address, Address]:
        """Agree on a call; return where A has to send or connect to, and where B has to."""
        offered = self.give(ng.describe("offer", a, call_id=call, from_tag="a"))
        answered = self.give(ng.describe("answer", b, call_id=call, from_tag="a", to_tag="b"))
        assert (offered.get("result"), answered.get("result")) == ("ok", "ok"), (offered, answered)
        to_b, to_a = medium(offered["sdp"]), medium(answered["sdp"])
        return (to_a.address, to_a.port), (to_b.address, to_b.port)

    def figures(self) -> dict[str, int]:
        """The figures of all streams."""
        return dict(self.give({"command": "statistics"})["statistics"]["streams"])


@contextlib.contextmanager
def relaying(*arguments: str) -> Iterator[tuple[Proxy, Process]]:
    """Run a relay for the block, and let it end by itself after the block."""
    argv = python("wanderbus", "relay", "--ng-listen", "127.0.0.1:0", "--json", *arguments)
    with (
        tempfile.TemporaryDirectory(prefix="wanderbus-relay-") as directory,
        Process("the relay", argv, Path(directory) / "errors", read=True) as process,
    ):
        place = json.loads(process.line(WAIT_S))["ready"]
        host, _, port = place.removeprefix("ng:").rpartition(":")
        proxy = Proxy((host.strip("[]"), int(port)))
        with proxy.socket:
            yield proxy, process
        process.end(WAIT_S)


def datagram_socket(host: str = "127.0.0.1") -> socket.socket:
    """A socket of a party, on a free port."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(WAIT_S)
    made.bind((host, 0))
    return made


def place(party: socket.socket) -> Address:
    host, port = party.getsockname()[:2]
    return host, port
