"""Two hosts for a benchmark or a test: network namespaces joined by a cable; takes root.

::

    near: eth0 10.77.0.2/24 ──veth── eth0 10.77.0.1/24 :far

``near`` is the side that moves. Namespaces are named ``wbench<process id>-<random>-<side>``; the machine's own network
is left alone, and what a killed process left behind is removed by the next.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.slow_link import slow_link

DEVICE: Final = "eth0"
FAR_ADDRESS: Final = "10.77.0.1"
NEAR_ADDRESSES: Final = ("10.77.0.2", "10.77.0.3")
PREFIX_BITS: Final = 24
_COMMAND_S_MAX: Final = 10.0
_NAME: Final = re.compile(r"wbench(\d+)-")
_RUNTIME: Final = Path("/run/netns")


class HostsError(Exception):
    """The namespaces cannot be created; the text gives the reason, in one line."""


class Hosts(NamedTuple):
    """Names of the two namespaces."""

    near: str
    far: str

    def lose(self, share: float) -> None:
        """Make each host lose this share of the packets that reach it, replacing its earlier share."""
        for name in self:
            _run("ip", "netns", "exec", name, "iptables", "-F", "INPUT")
            if share:
                rule = f"-A INPUT -i {DEVICE} -m statistic --mode random --probability {share} -j DROP"
                _run("ip", "netns", "exec", name, "iptables", *rule.split())


def missing(*programs: str) -> str | None:
    """Return why hosts cannot be made here, in one line; None if no obstacle is known."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    absent = [name for name in ("ip", *programs) if program(name) is None]
    if absent:
        packages = {"ip": "iproute2"}
        return f"missing (Debian: apt-get install {' '.join(packages.get(name, name) for name in absent)})"
    return None


@contextlib.contextmanager
def hosts(*, loss: float = 0.0, delay_s: float = 0.0) -> Iterator[Hosts]:
    """Make two hosts for the block, ``delay_s`` apart each way; raises :class:`HostsError`."""
    sweep()
    prefix = f"wbench{os.getpid()}-{secrets.token_hex(2)}"
    made = Hosts(f"{prefix}-near", f"{prefix}-far")
    try:
        for name in made:
            _run("ip", "netns", "add", name)
        with _link(made, delay_s):
            _configure(made)
            if loss:
                made.lose(loss)
            yield made
    finally:
        for name in made:
            with contextlib.suppress(HostsError):
                _run("ip", "netns", "delete", name)


@contextlib.contextmanager
def _link(made: Hosts, delay_s: float) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if delay_s:
            try:
                stack.enter_context(slow_link(made, DEVICE, delay_s))
            except OSError as error:
                raise HostsError(str(error)) from None
        else:
            _run("ip", *f"link add {DEVICE} netns {made.near} type veth peer {DEVICE} netns {made.far}".split())
        yield


def _configure(made: Hosts) -> None:
    for name, address in zip(made, (NEAR_ADDRESSES[0], FAR_ADDRESS), strict=True):
        lines = ["link set lo up", f"link set {DEVICE} up", f"address add {address}/{PREFIX_BITS} dev {DEVICE}"]
        _run("ip", "-netns", name, "-batch", "-", text="\n".join(lines) + "\n")


def command(namespace: str, argv: Sequence[str]) -> list[str]:
    """Return the command line that runs ``argv`` in a namespace, under the same process id."""
    return ["ip", "netns", "exec", namespace, *argv]


def program(name: str) -> str | None:
    """Return the path of a program, even if its directory is only in root's PATH."""
    return shutil.which(name, path=_search_path())


def sweep() -> None:
    """Remove the namespaces of processes that no longer exist."""
    for path in _RUNTIME.glob("wbench*") if _RUNTIME.is_dir() else ():
        match = _NAME.match(path.name)
        if match and not Path("/proc", match[1]).exists():
            with contextlib.suppress(HostsError):
                _run("ip", "netns", "delete", path.name)


def _run(*argv: str, text: str | None = None) -> None:
    environment = dict(os.environ, PATH=_search_path())
    try:
        done = subprocess.run(
            argv, input=text, capture_output=True, text=True, timeout=_COMMAND_S_MAX, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostsError(f"{' '.join(argv[:4])}: {error}") from None
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        raise HostsError(f"{' '.join(argv)}: {complaint[0]}")


def _search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
