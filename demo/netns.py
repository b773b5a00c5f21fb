"""Network namespaces as hosts: created, joined by cables, given commands, and always removed.

They are named ``<kind><process id>-<random>-<host>``; the machine's own network is left alone, and the remains of a
killed process are removed by the next of its kind.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from demo import CannotRunError

_COMMAND_S_MAX: Final = 5.0
_RUNTIME: Final = Path("/run/netns")
_PACKAGES: Final = {"ip": "iproute2"}
"""Debian packages that are not named as their program."""

_LISTEN: Final = (
    "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(4); "
    "s.bind((sys.argv[1], 5060)); print('bound', flush=True); print(s.recvfrom(99)[1][0], flush=True)"
)
_SPEAK: Final = (
    "import socket, sys, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    "for _ in range(5): s.sendto(b'x', (sys.argv[1], 5060)); time.sleep(0.05)"
)


class Namespaces:
    """The namespaces of one network; :class:`CannotRunError` if a resource or a command fails."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._prefix = f"{kind}{os.getpid()}-{secrets.token_hex(2)}"
        self._made: list[str] = []

    def check(self, *programs: str) -> None:
        """Raise unless this process may create namespaces, and ``ip`` and these ``programs`` are installed."""
        if os.geteuid() != 0:
            raise CannotRunError("making network namespaces takes root")
        for program in ("ip", *programs):
            if shutil.which(program) is None:
                package = _PACKAGES.get(program, program)
                raise CannotRunError(f"the command '{program}' is missing (Debian: apt-get install {package})")

    def add(self, hosts: Iterable[str]) -> None:
        """Create a namespace for each of ``hosts``, with a working loopback interface."""
        for host in hosts:
            self._made.append(self.name(host))
            run(["ip", "netns", "add", self.name(host)])
            self.configure(host, ["link set lo up"])

    def join(self, one: str, device: str, other: str, other_device: str) -> None:
        """Connect ``device`` of host ``one`` to ``other_device`` of host ``other`` by a virtual cable."""
        cable = f"link add {device} netns {self.name(one)} type veth peer {other_device} netns {self.name(other)}"
        run(["ip", *cable.split()])

    def configure(self, host: str, lines: Sequence[str]) -> None:
        """Let ``ip`` execute these ``lines`` in the namespace of ``host``, in this order."""
        run(["ip", "-netns", self.name(host), "-batch", "-"], "\n".join(lines) + "\n")

    def run(self, host: str, argv: Sequence[str], text: str | None = None) -> str:
        """Run a command there to its end, with ``text`` as its input; return its output."""
        return run(self.command(host, argv), text)

    def source_seen(self, host: str, address: str, *, by: str) -> str:
        """Send a datagram from the host ``by`` to ``host`` at ``address``; return its source address, empty if none
        arrived.
        """
        argv = self.command(host, [sys.executable, "-c", _LISTEN, address])
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as listener:
            assert listener.stdout is not None
            listener.stdout.readline()
            self.run(by, [sys.executable, "-c", _SPEAK, address])
            return listener.stdout.readline().strip()

    def forward(self, host: str) -> None:
        """Have ``host`` pass on what is not for itself."""
        self.run(host, ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` in the namespace of ``host``, under the same process id."""
        return ["ip", "netns", "exec", self.name(host), *argv]

    def name(self, host: str) -> str:
        """Return the name of the namespace of ``host``."""
        return f"{self._prefix}-{host}"

    def remove(self) -> None:
        """Remove all of them; their interfaces, addresses and routes go with them. No harm if called twice."""
        while self._made:
            with contextlib.suppress(CannotRunError):
                run(["ip", "netns", "delete", self._made.pop()])

    def sweep(self) -> None:
        """Remove those of this kind whose process has ended."""
        pattern = re.compile(rf"{self._kind}(\d+)-")
        for path in _RUNTIME.glob(f"{self._kind}*") if _RUNTIME.is_dir() else ():
            match = pattern.match(path.name)
            if match and not Path("/proc", match[1]).exists():
                with contextlib.suppress(CannotRunError):
                    run(["ip", "netns", "delete", path.name])


def run(argv: Sequence[str], text: str | None = None) -> str:
    """Run a command to its end; :class:`CannotRunError` with the first line of its error output if it fails."""
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=_COMMAND_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRunError(f"{' '.join(argv[:4])}: {error}") from None
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        raise CannotRunError(f"{' '.join(argv[:4])}: {complaint[0]}")
    return done.stdout
