"""A network of namespaces: one per host, joined by a router in a namespace of its own.

::

    host h: eth0 10.42.<16h+place>.2/24 ──veth── w<h> 10.42.<16h+0..3>.1/24 :router, forwarding

The router is the gateway of every place of every host, so a host changes place by losing its address and default
route and getting others, in another subnet: what a device does that leaves one network and joins the next. All of
it is inside namespaces named ``wbdemo<pid of the conductor>-<random>-<host>``; the machine's own network is left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from demo import CannotRunError
from demo.network import PLACES

_ROUTER: Final = "router"
_COMMAND_TIMEOUT_S: Final = 5.0
_NAME: Final = re.compile(r"wbdemo(\d+)-")
_RUNTIME: Final = Path("/run/netns")

_LISTEN: Final = (
    "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(4); "
    "s.bind((sys.argv[1], 5060)); print('bound', flush=True); print(s.recvfrom(99)[1][0], flush=True)"
)
_SPEAK: Final = (
    "import socket, sys, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    "for _ in range(5): s.sendto(b'x', (sys.argv[1], 5060)); time.sleep(0.05)"
)


class NamespaceNetwork:
    """See the module; ``hosts`` are at most 15 names."""

    mode = "netns"
    told = False

    def __init__(self, hosts: Sequence[str]) -> None:
        self._numbers = {host: number for number, host in enumerate(hosts)}
        self._places = dict.fromkeys(hosts, 0)
        self._made: list[str] = []
        self._prefix = f"wbdemo{os.getpid()}-{secrets.token_hex(2)}"

    def open(self) -> None:
        """Build the network and send one datagram across it; :class:`CannotRunError` if any of it fails."""
        if os.geteuid() != 0:
            raise CannotRunError("making them takes root")
        if shutil.which("ip") is None:
            raise CannotRunError("the command 'ip' is missing (Debian: apt-get install iproute2)")
        try:
            _sweep()
            self._build()
            self._check()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the namespaces; their interfaces, addresses and routes go with them."""
        while self._made:
            with contextlib.suppress(CannotRunError):
                _ip("netns", "delete", self._made.pop())

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` in the namespace of ``host``, under the same process id."""
        return ["ip", "netns", "exec", self._name(host), *argv]

    def address(self, host: str) -> str:
        """Return the address ``host`` is at."""
        return f"{self._subnet(host, self._places[host])}.2"

    def move(self, host: str) -> str:
        """Take the address and the default route from ``host`` and give it those of its next place."""
        old = self.address(host)
        self._places[host] = (self._places[host] + 1) % PLACES
        _batch(self._name(host), [f"address delete {old}/24 dev eth0", *self._arrive(host)])
        return self.address(host)

    def _name(self, host: str) -> str:
        return f"{self._prefix}-{host}"

    def _subnet(self, host: str, place: int) -> str:
        return f"10.42.{16 * self._numbers[host] + place}"

    def _arrive(self, host: str) -> list[str]:
        subnet = self._subnet(host, self._places[host])
        return [f"address add {subnet}.2/24 dev eth0", f"route replace default via {subnet}.1 dev eth0"]

    def _build(self) -> None:
        for host in (_ROUTER, *self._numbers):
            self._made.append(self._name(host))
            _ip("netns", "add", self._name(host))
        router = ["link set lo up"]
        for host, number in self._numbers.items():
            port = f"w{number}"
            _ip(
                "link",
                "add",
                port,
                "netns",
                self._name(_ROUTER),
                "type",
                "veth",
                "peer",
                "eth0",
                "netns",
                self._name(host),
            )
            router += [f"address add {self._subnet(host, place)}.1/24 dev {port}" for place in range(PLACES)]
            router.append(f"link set {port} up")
            _batch(self._name(host), ["link set lo up", "link set eth0 up", *self._arrive(host)])
        _batch(self._name(_ROUTER), router)
        _run([*self.command(_ROUTER, ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])])

    def _check(self) -> None:
        """Let the last host say a word to the first; the first has to hear it from the last one's address."""
        first, *_, last = self._numbers
        argv = self.command(first, [sys.executable, "-c", _LISTEN, self.address(first)])
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as listener:
            assert listener.stdout is not None
            listener.stdout.readline()
            _run(self.command(last, [sys.executable, "-c", _SPEAK, self.address(first)]))
            heard = listener.stdout.readline().strip()
        if heard != self.address(last):
            raise CannotRunError("the router does not forward")


def _sweep() -> None:
    """Remove what a conductor left that was killed before it could clean up; those of living ones stay."""
    for path in _RUNTIME.glob("wbdemo*") if _RUNTIME.is_dir() else ():
        match = _NAME.match(path.name)
        if match and not Path("/proc", match[1]).exists():
            _ip("netns", "delete", path.name)


def _ip(*arguments: str) -> None:
    _run(["ip", *arguments])


def _batch(namespace: str, lines: Sequence[str]) -> None:
    _run(["ip", "-netns", namespace, "-batch", "-"], "\n".join(lines) + "\n")


def _run(argv: Sequence[str], text: str | None = None) -> None:
    """Run a command to its end; :class:`CannotRunError` with the first line of its complaint if it fails."""
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRunError(f"{' '.join(argv[:4])}: {error}") from None
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        raise CannotRunError(f"{' '.join(argv[:4])}: {complaint[0]}")
