"""Kamailio as registrar and proxy on loopback: another's server, to hold our own beside."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.interop.processes import answers_options, free_port, running

DOMAIN = "example.org"
PROGRAM = shutil.which("kamailio", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
MISSING = "Kamailio is not installed: apt-get install kamailio"

_CONFIGURATION = Path(__file__).with_name("kamailio.cfg")


class Kamailio(NamedTuple):
    """Where it listens, for UDP and TCP, and its main process."""

    port: int
    pid: int

    @property
    def place(self) -> str:
        """The same as ``host:port``."""
        return f"127.0.0.1:{self.port}"


@contextlib.contextmanager
def kamailio(
    users: Mapping[str, str],
    *,
    algorithm: str = "MD5",
    challenge_calls: bool = True,
    children: int = 2,
    processor: int | None = None,
) -> Iterator[Kamailio]:
    """Run Kamailio for ``users`` (names and passwords); ``algorithm`` is what its digest challenges name."""
    if PROGRAM is None:
        raise FileNotFoundError(MISSING)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="wanderbus-kamailio-") as directory:
        runtime = Path(directory)
        filled = {
            "PORT": str(port),
            "CHILDREN": str(children),
            "ALGORITHM": algorithm,
            "USERS": "\n".join(f'    $sht(users=>{name}) = "{password}";' for name, password in users.items()),
        }
        text = re.sub("|".join(filled), lambda found: filled[found[0]], _without_comments(_CONFIGURATION.read_text()))
        configuration = runtime / "kamailio.cfg"
        configuration.write_text(text)
        # In the foreground (-DD), so that the process we started is the one that ends all its children.
        command = [PROGRAM, "-DD", "-E", "-f", str(configuration), "-m", "64", "-M", "8", "-Y", directory]
        command += ["-w", directory, *(["-A", "CHALLENGE_CALLS"] if challenge_calls else [])]
        with running(command, runtime / "said", lambda: answers_options(port), processor=processor) as process:
            yield Kamailio(port, process.pid)


def _without_comments(text: str) -> str:
    return re.sub(r"(?m)^# .*\n", "", text)
