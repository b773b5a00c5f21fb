"""SIPp: plays the scenarios of this directory against a SIP server or user agent, and reports their results."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

from harness.ports import free_port
from tests.interop.kamailio import DOMAIN
from wanderbus.testbed.launch import pinned
from wanderbus.testbed.processes import Process

PROGRAM = shutil.which("sipp")
MISSING = "SIPp is not installed: apt-get install sip-tester"

_SCENARIOS = Path(__file__).with_name("scenarios")
_TRANSPORTS = {"UDP": "u1", "TCP": "t1"}
_TRACE_CHARACTERS_MAX = 6_000


class ScenarioFailed(AssertionError):
    """A call deviated from its scenario; the text ends with the messages that were exchanged."""


class How(TypedDict, total=False):
    """The parameters of :func:`playing` that may be left out."""

    port: int
    transport: str
    users: Mapping[str, str] | None
    caller: str
    callee: str
    contact_port: int
    calls: int
    options: Sequence[str]
    trace: bool
    processor: int
    limit_s: float


class Play(NamedTuple):
    """A running SIPp: the number of calls that it makes or takes, its address, and its log files."""

    process: Process
    scenario: str
    calls: int
    port: int
    directory: Path
    deadline: float

    def wait(self) -> None:
        """Wait until every call has followed its scenario; raise :class:`ScenarioFailed` otherwise."""
        status = self.process.wait(max(0.0, self.deadline - time.monotonic()))
        if status != 0:
            # SIPp has no open trace left once it ended.
            self.process.end()
            raise ScenarioFailed(f"{self.scenario}: SIPp ended with {status}\n{self._trace()}")

    def _trace(self) -> str:
        texts = [path.read_text(errors="replace") for path in sorted(self.directory.glob("*.log"))]
        return "\n".join(text[-_TRACE_CHARACTERS_MAX:] for text in texts)


@contextlib.contextmanager
def playing(
    scenario: str,
    server_port: int | None = None,
    *,
    port: int | None = None,
    transport: str = "UDP",
    users: Mapping[str, str] | None = None,
    caller: str = "alice",
    callee: str = f"sip:bob@{DOMAIN}",
    contact_port: int | None = None,
    calls: int = 1,
    options: Sequence[str] = (),
    trace: bool = True,
    processor: int | None = None,
    limit_s: float = 25.0,
) -> Iterator[Play]:
    """Let SIPp play ``scenario``: towards ``server_port``, or awaiting calls when None.

    ``users`` (names and passwords) are used in turn, for scenarios that register; their contacts name ``contact_port``,
    SIPp's own ``port`` when None. With ``trace`` every message is kept for the report of a failure.
    """
    if PROGRAM is None:
        raise FileNotFoundError(MISSING)
    port = port or free_port()
    keys = {"caller": caller, "callee": callee, "contact_port": str(contact_port or port)}
    with tempfile.TemporaryDirectory(prefix="wanderbus-sipp-") as name:
        directory = Path(name)
        command = [PROGRAM, *_common(scenario, port, transport, limit_s), "-m", str(calls), *options]
        command += [part for key, value in keys.items() for part in ("-key", key, value)]
        command += ["-trace_msg", "-message_file", "messages.log"] if trace else []
        command += [] if users is None else ["-inf", str(_user_file(users, directory))]
        command += [] if server_port is None else [f"127.0.0.1:{server_port}"]
        with Process("SIPp", pinned(command, processor), directory / "screen", cwd=directory) as process:
            yield Play(process, scenario, calls, port, directory, time.monotonic() + limit_s + 2.0)


def play(scenario: str, server_port: int, **how: Unpack[How]) -> None:
    """Let SIPp play ``scenario`` towards ``server_port`` to its end; parameters as for :func:`playing`."""
    with playing(scenario, server_port, **how) as started:
        started.wait()


def _common(scenario: str, port: int, transport: str, limit_s: float) -> list[str]:
    place = ["-t", _TRANSPORTS[transport], "-i", "127.0.0.1", "-p", str(port), "-nostdin"]
    bounds = ["-timeout", f"{limit_s:.0f}s", "-timeout_error", "-trace_err", "-error_file", "errors.log"]
    return ["-sf", str(_SCENARIOS / f"{scenario}.xml"), *place, *bounds]


def _user_file(users: Mapping[str, str], directory: Path) -> Path:
    lines = [f"{name};[authentication username={name} password={password}]" for name, password in users.items()]
    path = directory / "users.csv"
    path.write_text("\n".join(["SEQUENTIAL", *lines, ""]))
    return path
