"""rtpengine in userspace on loopback: another's media relay, to hold our own beside."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.interop.processes import free_port, running
from wanderbus.machine import Address
from wanderbus.relay import ng

PROGRAM = shutil.which("rtpengine", path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin")
MISSING = "rtpengine is not installed: apt-get install rtpengine-daemon"


class Rtpengine(NamedTuple):
    """Where it takes commands, and its process."""

    ng: Address
    pid: int


@contextlib.contextmanager
def rtpengine(*, ports: str = "22000-22999", processor: int | None = None) -> Iterator[Rtpengine]:
    """Run rtpengine with these ports for streams, without its kernel module (``--table=-1``)."""
    if PROGRAM is None:
        raise FileNotFoundError(MISSING)
    first, _, last = ports.partition("-")
    place = ("127.0.0.1", free_port())
    with tempfile.TemporaryDirectory(prefix="wanderbus-rtpengine-") as directory:
        command = [PROGRAM, "--table=-1", "--config-file=none", "--interface=127.0.0.1", "--foreground"]
        command += [f"--listen-ng={place[0]}:{place[1]}", f"--port-min={first}", f"--port-max={last}"]
        command += ["--log-stderr", "--log-level=3", "--delete-delay=0", f"--pidfile={directory}/pid"]
        with running(command, Path(directory) / "said", lambda: answers(place), processor=processor) as process:
            yield Rtpengine(place, process.pid)


def answers(place: Address) -> bool:
    """Say whether a relay answers a ping."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.settimeout(0.2)
        asker.connect(place)
        with contextlib.suppress(OSError):
            asker.send(ng.write_command(b"ready", ng.ping()))
            return ng.read_reply(asker.recv(65_536)) == (b"ready", {"result": "pong"})
    return False
