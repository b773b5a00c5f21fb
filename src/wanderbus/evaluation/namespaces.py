"""Network namespaces for the hosts of a run in real time: created as root, with our own names, and always removed.

They are named ``wbeval<process id>-<random>-<host>``. The machine's own network is not changed, and namespaces of a
killed process are removed by the next one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from wanderbus.errors import ConfigurationError

Opened = TypeVar("Opened")

_COMMAND_S_MAX: Final = 10.0
_NAME: Final = re.compile(r"wbeval(\d+)-")
_DIRECTORY: Final = Path("/run/netns")
_CLONE_NEWNET: Final = 0x40000000


class Namespaces:
    """The namespaces of one run, removed at the end of the ``with`` block with everything in them."""

    def __init__(self) -> None:
        self._prefix = f"wbeval{os.getpid()}-{secrets.token_hex(2)}"
        self._made: list[str] = []

    @staticmethod
    def missing() -> str | None:
        """Return why namespaces cannot be made here, None if no obstacle is known."""
        if os.geteuid() != 0:
            return "network namespaces take root"
        if shutil.which("ip") is None:
            return "the command 'ip' is missing (Debian: apt-get install iproute2)"
        return None

    def __enter__(self) -> Self:
        _sweep()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._made:
            with contextlib.suppress(ConfigurationError):
                _ip("netns", "delete", self._made.pop())

    def name(self, host: object) -> str:
        """Return the name of the namespace of ``host``."""
        return f"{self._prefix}-{host}"

    def add(self, host: object) -> None:
        """Create the namespace of ``host``; raise :class:`ConfigurationError` if that fails, like all methods below."""
        self._made.append(self.name(host))
        _ip("netns", "add", self.name(host))

    def cable(self, host: object, device: str, other: object, other_device: str) -> None:
        """Connect two hosts by a pair of devices."""
        ends = f"{device} netns {self.name(host)} type veth peer {other_device} netns {self.name(other)}"
        _ip(*f"link add {ends}".split())

    def configure(self, host: object, lines: Sequence[str]) -> None:
        """Run lines of ``ip`` commands on ``host``."""
        _ip("-netns", self.name(host), "-batch", "-", text="\n".join(lines) + "\n")

    def command(self, host: object, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` on ``host``, under the same process id."""
        return ["ip", "netns", "exec", self.name(host), *argv]

    def run(self, host: object, argv: Sequence[str], text: str | None = None) -> str:
        """Run a command on ``host`` to its end, and return its output."""
        return _run(self.command(host, argv), text)


def inside(namespace: str, do: Callable[[], Opened]) -> Opened:
    """Return the result of ``do``, called in a namespace: sockets that it opens belong there, whoever uses them."""

    def enter_and_do() -> Opened:
        with (_DIRECTORY / namespace).open("rb") as there:
            if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), _CLONE_NEWNET) != 0:
                raise ConfigurationError(f"{namespace} cannot be entered: {os.strerror(ctypes.get_errno())}")
        return do()

    # The network namespace is a property of a thread, and this thread ends here.
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(enter_and_do).result()


def _sweep() -> None:
    """Remove the namespaces of processes that no longer exist."""
    for path in _DIRECTORY.glob("wbeval*") if _DIRECTORY.is_dir() else ():
        match = _NAME.match(path.name)
        if match and not Path("/proc", match[1]).exists():
            with contextlib.suppress(ConfigurationError):
                _ip("netns", "delete", path.name)


def _ip(*arguments: str, text: str | None = None) -> None:
    _run(["ip", *arguments], text)


def _run(argv: Sequence[str], text: str | None = None) -> str:
    shown = " ".join(argv[:4])
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=_COMMAND_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{shown}: {error}") from None
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        raise ConfigurationError(f"network namespaces are not available: {shown}: {complaint[0]}")
    return done.stdout
