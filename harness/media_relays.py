"""Media relays beside a SIP server: rtpengine in userspace, and our own; the command lines that run them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from wanderbus.testbed import CannotRunError
from wanderbus.testbed.launch import python

RTPENGINE: Final = shutil.which("rtpengine", path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin")
MISSING: Final = "rtpengine is not installed; on Debian: apt-get install --no-install-recommends rtpengine-daemon"


def rtpengine_command(address: str, ng: tuple[str, int], pid_file: Path, *, ports: str) -> list[str]:
    """Return the command line of rtpengine in the foreground: streams use ``ports`` of ``address``, commands go to
    ``ng``.

    ``--table=-1`` runs it without its kernel module. Raises :class:`CannotRunError` where there is no rtpengine.
    """
    if RTPENGINE is None:
        raise CannotRunError(MISSING)
    first, _, last = ports.partition("-")
    command = [RTPENGINE, "--table=-1", "--config-file=none", f"--interface={address}", "--foreground"]
    command += [f"--listen-ng={ng[0]}:{ng[1]}", f"--port-min={first}", f"--port-max={last}"]
    return [*command, "--log-stderr", "--log-level=3", "--delete-delay=0", f"--pidfile={pid_file}"]


def own_command(address: str, ng: tuple[str, int], *, ports: str) -> list[str]:
    """Return the command line of our relay: it prints ``ready`` in JSON when it accepts commands, its figures at the
    end.
    """
    where = ["--address", address, "--ng-listen", f"{ng[0]}:{ng[1]}", "--ports", ports]
    return python("wanderbus", "relay", *where, "--json")


def datagrams_in(statistics: Mapping[str, Any]) -> int:
    """Return the number of datagrams that a relay has forwarded, by its own count."""
    totals = statistics.get("totalstatistics")
    return int(totals["relayedpackets"] if totals else statistics["streams"]["datagrams"])
