"""rtpengine in userspace: another's media relay, to hold our own beside."""

from __future__ import annotations

import contextlib
import secrets
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.media_relays import MISSING as MISSING
from harness.media_relays import RTPENGINE, rtpengine_command
from harness.ports import free_port
from harness.udp_probe import answers_there, relay_question
from wanderbus.machine import Address
from wanderbus.relay import ng
from wanderbus.testbed.launch import pinned
from wanderbus.testbed.processes import Process

PROGRAM = RTPENGINE


class Rtpengine(NamedTuple):
    """Address for rtpengine's commands, and its process."""

    ng: Address
    pid: int

    def ask(self, **fields: Any) -> dict[str, Any]:
        """Give it a command; return its answer."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
            asker.settimeout(5.0)
            asker.connect(self.ng)
            # rtpengine repeats its earlier answer to a cookie that it received in the last seconds.
            asker.send(ng.write_command(secrets.token_hex(8).encode(), fields))
            return ng.read_reply(asker.recv(65_536))[1]

    def calls(self) -> list[str]:
        """Return the Call-IDs of the calls that it has now."""
        return list(self.ask(command="list")["calls"])

    def passed(self) -> tuple[int, int]:
        """Return the datagrams, and bytes, that it received in its current calls."""
        totals = [self.ask(**{"command": "query", "call-id": call})["totals"]["RTP"] for call in self.calls()]
        return sum(int(each["packets"]) for each in totals), sum(int(each["bytes"]) for each in totals)


@contextlib.contextmanager
def rtpengine(
    *,
    address: str = "127.0.0.1",
    ng_port: int | None = None,
    ports: str = "22000-22999",
    processor: int | None = None,
    within: Sequence[str] = (),
) -> Iterator[Rtpengine]:
    """Run rtpengine with these ports for streams, without its kernel module; ``within`` a namespace that it enters."""
    place = (address, ng_port or free_port(address))
    question = relay_question("ping")
    with tempfile.TemporaryDirectory(prefix="wanderbus-rtpengine-") as directory:
        command = [*within, *rtpengine_command(address, place, Path(directory) / "pid", ports=ports)]
        with Process("rtpengine", pinned(command, processor), Path(directory) / "said") as process:
            process.wait_until(lambda: answers_there(within, place, question))
            yield Rtpengine(place, process.pid)


def answers(place: Address) -> bool:
    """Return whether a relay answers a ping."""
    return answers_there((), place, relay_question("ping"))
