"""A private loopback network that loses datagrams, for this thread and the threads and processes that it starts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Final

MISSING: Final = "loss needs root, ip and iptables: apt-get install iproute2 iptables"
POSSIBLE: Final = os.geteuid() == 0 and all(map(shutil.which, ("ip", "iptables")))

_NETWORK: Final = 0x40000000  # CLONE_NEWNET


@contextlib.contextmanager
def losing(probability: float) -> Iterator[Callable[[], int]]:
    """Run the block in a private network, in which each datagram may be lost.

    Threads and processes that the block starts are in that network too. Yields a counter of the datagrams lost so far.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as home:
        if libc.unshare(_NETWORK):
            raise OSError(ctypes.get_errno(), "this process cannot get its own network")
        try:
            _run("ip", "link", "set", "lo", "up")
            chance = ("-m", "statistic", "--mode", "random", "--probability", str(probability))
            _run("iptables", "-A", "INPUT", "-p", "udp", *chance, "-j", "DROP")
            yield _lost
        finally:
            if libc.setns(home.fileno(), _NETWORK):
                raise OSError(ctypes.get_errno(), "there is no way back to the network of before")


def _lost() -> int:
    found = re.search(r"(?m)^ *(\d+) +\d+ +DROP", _run("iptables", "-n", "-v", "-x", "-L", "INPUT"))
    assert found is not None
    return int(found[1])


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout
