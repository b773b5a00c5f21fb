"""Network namespaces as hosts: created, joined by cables, given commands, and always removed; takes root.

They are named ``<kind><process id>-<random>-<host>``. The machine's own network is not changed, and the next run of a
kind removes the namespaces of a killed process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self, TypeVar

from wanderbus.testbed import CannotRunError
from wanderbus.testbed.processes import Process

DIRECTORY: Final = Path("/run/netns")

Made = TypeVar("Made")

_COMMAND_S_MAX: Final = 10.0
_DATAGRAM_S_MAX: Final = 4.0
_CLONE_NEWNET: Final = 0x40000000
_PACKAGES: Final = {"ip": "iproute2", "nft": "nftables", "iptables-restore": "iptables"}
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
    """The namespaces of one network; every method raises :class:`CannotRunError` if a command fails.

    As a context manager it removes them at the end of the block, with everything in them.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._prefix = f"{kind}{os.getpid()}-{secrets.token_hex(2)}"
        self._made: list[str] = []

    def __enter__(self) -> Self:
        self.sweep()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    @contextlib.contextmanager
    def building(self, *programs: str) -> Iterator[None]:
        """Remove all of them if the block fails; first check for ``programs``, and sweep what killed runs left."""
        check(*programs)
        self.sweep()
        try:
            yield
        except BaseException:
            self.remove()
            raise

    def add(self, *hosts: object) -> None:
        """Create a namespace for each of ``hosts``, with a working loopback interface."""
        for host in hosts:
            self._made.append(self.name(host))
            run(["ip", "netns", "add", self.name(host)])
            self.configure(host, ["link set lo up"])

    def join(self, one: object, device: str, other: object, other_device: str) -> None:
        """Connect ``device`` of host ``one`` to ``other_device`` of host ``other`` by a virtual cable."""
        cable = f"link add {device} netns {self.name(one)} type veth peer {other_device} netns {self.name(other)}"
        run(["ip", *cable.split()])

    def configure(self, host: object, lines: Sequence[str]) -> None:
        """Let ``ip`` execute these ``lines`` in the namespace of ``host``, in this order."""
        run(["ip", "-netns", self.name(host), "-batch", "-"], "\n".join(lines) + "\n")

    def run(self, host: object, argv: Sequence[str], text: str | None = None) -> str:
        """Run a command on ``host`` to its end, with ``text`` as its input; return its output."""
        return run(self.command(host, argv), text)

    def forward(self, host: object) -> None:
        """Make ``host`` a router."""
        self.run(host, ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])

    def lose(self, host: object, device: str, share: float) -> None:
        """Make ``host`` lose this share of the packets that arrive at ``device``, instead of its earlier share."""
        self.run(host, ["iptables", "-F", "INPUT"])
        if share:
            rule = f"-A INPUT -i {device} -m statistic --mode random --probability {share} -j DROP"
            self.run(host, ["iptables", *rule.split()])

    def source_seen(self, host: object, address: str, *, by: object) -> str:
        """Send a datagram from the host ``by`` to ``host`` at ``address``; return its source address, empty if none
        arrived.
        """
        argv = self.command(host, [sys.executable, "-c", _LISTEN, address])
        with Process("listener", argv, Path(os.devnull), read=True) as listener:
            listener.line()
            self.run(by, [sys.executable, "-c", _SPEAK, address])
            try:
                return listener.line(_DATAGRAM_S_MAX + 1.0).strip()
            except CannotRunError:
                return ""

    def command(self, host: object, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` in the namespace of ``host``, under the same process id."""
        return command(self.name(host), argv)

    def name(self, host: object) -> str:
        """Return the name of the namespace of ``host``."""
        return f"{self._prefix}-{host}"

    def remove(self) -> None:
        """Remove all of them; their interfaces, addresses and routes go with them. No harm if called twice."""
        while self._made:
            with contextlib.suppress(CannotRunError):
                run(["ip", "netns", "delete", self._made[-1]])
            self._made.pop()

    def sweep(self) -> None:
        """Remove those of this kind whose process has ended."""
        pattern = re.compile(rf"{self._kind}(\d+)-")
        for path in DIRECTORY.glob(f"{self._kind}*") if DIRECTORY.is_dir() else ():
            match = pattern.match(path.name)
            if match and not Path("/proc", match[1]).exists():
                with contextlib.suppress(CannotRunError):
                    run(["ip", "netns", "delete", path.name])


def missing(*programs: str) -> str | None:
    """Return why there can be no namespaces with these ``programs`` here, in one line; None if nothing is missing."""
    if os.geteuid() != 0:
        return "making network namespaces takes root"
    absent = [name for name in ("ip", *programs) if program(name) is None]
    if not absent:
        return None
    packages = " ".join(dict.fromkeys(_PACKAGES.get(name, name) for name in absent))
    return f"missing commands: {', '.join(absent)} (Debian: apt-get install {packages})"


def check(*programs: str) -> None:
    """Raise :class:`CannotRunError` for the reason that :func:`missing` gives."""
    if reason := missing(*programs):
        raise CannotRunError(reason)


def program(name: str) -> str | None:
    """Return the path of a program, even if its directory is only in root's PATH."""
    return shutil.which(name, path=_search_path())


def command(namespace: str, argv: Sequence[str]) -> list[str]:
    """Return the command line that runs ``argv`` in a namespace, under the same process id."""
    return ["ip", "netns", "exec", namespace, *argv]


def enter(namespace: str) -> None:
    """Move this thread, and the threads and processes that it starts, into a namespace."""
    with (DIRECTORY / namespace).open("rb") as there:
        _set_namespace(there)


@contextlib.contextmanager
def entered(namespace: str) -> Iterator[None]:
    """Run the block in a namespace; threads and processes that it starts stay there."""
    with Path("/proc/thread-self/ns/net").open("rb") as home:
        enter(namespace)
        try:
            yield
        finally:
            _set_namespace(home)


def inside(namespace: str, make: Callable[[], Made]) -> Made:
    """Return the result of ``make``, called in a namespace: sockets that it opens belong there, whoever uses them."""

    def enter_and_make() -> Made:
        enter(namespace)
        return make()

    # The network namespace is a property of a thread, and this thread ends here.
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(enter_and_make).result()


def run(argv: Sequence[str], text: str | None = None) -> str:
    """Run a command to its end; :class:`CannotRunError` with the first line of its error output if it fails."""
    shown = " ".join(argv[:4])
    try:
        done = subprocess.run(
            argv,
            input=text,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S_MAX,
            check=False,
            env={**os.environ, "PATH": _search_path()},
            start_new_session=True,  # Ctrl-C must not end it halfway
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRunError(f"{shown}: {error}") from None
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        raise CannotRunError(f"{shown}: {complaint[0]}")
    return done.stdout


def _set_namespace(file: BinaryIO) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET) != 0:
        raise CannotRunError(f"cannot enter namespace {file.name}: {os.strerror(ctypes.get_errno())}")


def _search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
