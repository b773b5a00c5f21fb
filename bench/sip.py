"""REGISTER with digest, and calls, per second on one core: our SIP server beside Kamailio with one child process.

Both run in turn under the same load of SIPp over UDP on loopback, several times; the server is kept to one processor
and SIPp to another. SIPp keeps a number of calls going at once and starts a new one as soon as one has ended, so the
rate is what the server can do. ``cpu_per_s`` counts per second of the server's processor time instead of the clock's,
which a machine that has other work disturbs less. The parser is measured alone, on a REGISTER and an INVITE of it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from harness.ports import free_port
from harness.process_figures import processor_s
from harness.reporting import Goal, goal, progress, write_report
from harness.udp_probe import answers_options
from tests.interop import kamailio as peer
from tests.interop import sipp
from tests.interop.kamailio import DOMAIN, kamailio
from tests.interop.sipp import How, play, playing
from wanderbus.sip.message.message import parse_message
from wanderbus.testbed.launch import pinned, python
from wanderbus.testbed.processes import Process

GOAL_REGISTERS_PER_S = 1_000
USERS = {f"user{number}": f"secret{number}" for number in range(1_000)} | {"bob": "sesame"}
SERVER_PROCESSOR, LOAD_PROCESSOR = 0, -1
AT_ONCE = 50
PLAY_S_MAX = 60.0
PARSE_S = 1.0

Server = Callable[[], contextlib.AbstractContextManager[tuple[int, int]]]


class Rate(NamedTuple):
    """Things done per second of the clock, and per second of the server's processor time."""

    per_s: float
    cpu_per_s: float


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    options = _options(arguments)
    missing = [text for program, text in ((peer.PROGRAM, peer.MISSING), (sipp.PROGRAM, sipp.MISSING)) if not program]
    if missing:
        print("\n".join(missing), file=sys.stderr)
        return 2
    runs: list[dict[str, Rate]] = []
    for turn in range(options.runs):
        run: dict[str, Rate] = {}
        for name, server in (("ours", ours), ("kamailio", kamailios)):
            progress(f"run {turn + 1} of {options.runs}: {name}")
            run |= measured(name, server, options.registers, options.calls)
        runs.append(run)
    parses = parses_per_s()
    medians = {name: Rate(*map(statistics.median, zip(*(run[name] for run in runs), strict=True))) for name in runs[0]}
    _print(medians, parses)
    if options.json:
        results = [{name: rate._asdict() for name, rate in run.items()} for run in runs]
        write_report(options.json, "bench sip", results, _goals(medians, parses))
    met = medians["ours register"].per_s >= GOAL_REGISTERS_PER_S
    return 1 if options.strict and not met else 0


def measured(name: str, server: Server, registers: int, calls: int) -> dict[str, Rate]:
    """Put both loads on one server; return the rates."""
    with server() as (port, pid):
        # The first round includes one-time costs: new bindings and cold code.
        register(port, pid, registers // 10)
        return {f"{name} register": register(port, pid, registers), f"{name} call": call(port, pid, calls)}


def register(port: int, pid: int, count: int) -> Rate:
    """Let ``count`` users register, each with a REGISTER that is challenged and one that is answered 200."""
    users = {name: password for name, password in USERS.items() if name != "bob"}

    def load() -> None:
        play("register", port, **_load(count, users))

    return _rate(load, pid, count)


def call(port: int, pid: int, count: int) -> Rate:
    """Let ``count`` calls be made by way of the server: INVITE, ringing, 200, ACK, BYE, 200."""
    with playing("short_answer", port, **_load(count)) as answering:
        play("register", port, users={"bob": USERS["bob"]}, contact_port=answering.port)

        def load() -> None:
            play("short_call", port, **_load(count))

        return _rate(load, pid, count)


def parses_per_s() -> dict[str, float]:
    """Return how many messages per second our parser takes, by kind."""
    return {name: _parses_per_s(text.replace("\n", "\r\n").encode()) for name, text in MESSAGES.items()}


def _parses_per_s(data: bytes) -> float:
    done, started = 0, time.perf_counter()
    while (passed_s := time.perf_counter() - started) < PARSE_S:
        for _ in range(100):
            message = parse_message(data)
            # Every message needs these fields; the parser reads them only on access.
            _ = message.via, message.from_, message.to, message.cseq
        done += 100
    return done / passed_s


def _rate(load: Callable[[], None], pid: int, count: int) -> Rate:
    used_s, started = processor_s([pid]), time.monotonic()
    load()
    passed_s, used_s = time.monotonic() - started, processor_s([pid]) - used_s
    return Rate(count / passed_s, count / max(used_s, 0.01))


def _load(calls: int, users: Mapping[str, str] | None = None) -> How:
    processors = sorted(os.sched_getaffinity(0))
    options = ("-r", "20000", "-l", str(AT_ONCE), "-timer_resol", "1", "-nd")
    return {
        "calls": calls,
        "users": users,
        "options": options,
        "trace": False,
        "processor": processors[LOAD_PROCESSOR],
        "limit_s": PLAY_S_MAX,
    }


@contextlib.contextmanager
def ours() -> Iterator[tuple[int, int]]:
    """Run our server in a process of its own; yield port and process id."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as name:
        users = Path(name) / "users"
        users.touch(0o600)
        users.write_text("".join(f"{user}:{password}\n" for user, password in USERS.items()))
        command = pinned(python("tests.interop.server", str(port), str(users)), _server_processor())
        with Process("the server", command, Path(name) / "log") as process:
            process.wait_until(lambda: answers_options(port))
            yield port, process.pid


@contextlib.contextmanager
def kamailios() -> Iterator[tuple[int, int]]:
    """Run Kamailio with one child for UDP; yield port and process id."""
    with kamailio(USERS, challenge_calls=False, children=1, processor=_server_processor()) as started:
        yield started.port, started.pid


def _server_processor() -> int:
    return sorted(os.sched_getaffinity(0))[SERVER_PROCESSOR]


def _print(medians: dict[str, Rate], parses: dict[str, float]) -> None:
    for kind, text in (("register", "REGISTER with digest"), ("call", "INVITE and BYE")):
        own, other = medians[f"ours {kind}"], medians[f"kamailio {kind}"]
        print(f"{text}: ours {own.per_s:,.0f}/s, Kamailio {other.per_s:,.0f}/s, ratio {own.per_s / other.per_s:.3f}")
        cpu = own.cpu_per_s / other.cpu_per_s
        print(f"  per processor second: ours {own.cpu_per_s:,.0f}, Kamailio {other.cpu_per_s:,.0f}, ratio {cpu:.3f}")
    for kind, rate in parses.items():
        print(f"our parser: {rate:,.0f} {kind}/s")
    print(f"goal: {GOAL_REGISTERS_PER_S:,} REGISTER/s")


def _goals(medians: dict[str, Rate], parses: dict[str, float]) -> list[Goal]:
    own, other = (medians[f"{name} register"].per_s for name in ("ours", "kamailio"))
    calls = medians["ours call"].per_s / medians["kamailio call"].per_s
    return [
        goal("register_per_s", own, "1/s", least=GOAL_REGISTERS_PER_S),
        goal("register_vs_kamailio", own / other, "ratio"),
        goal("call_per_s", medians["ours call"].per_s, "1/s"),
        goal("call_vs_kamailio", calls, "ratio"),
        *(goal(f"parse_{kind.lower()}_per_s", rate, "1/s") for kind, rate in parses.items()),
    ]


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench sip", description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--registers", type=int, default=5_000, help="registrations per run (default %(default)s)")
    parser.add_argument("--calls", type=int, default=2_000, help="calls per run (default %(default)s)")
    parser.add_argument(
        "--runs", type=int, default=3, help="number of runs; their median counts (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file as JSON")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if the goal is not met")
    return parser.parse_args(arguments)


MESSAGES = {
    "REGISTER": f"""REGISTER sip:{DOMAIN} SIP/2.0
Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK-1-1-3;rport
Max-Forwards: 70
From: <sip:alice@{DOMAIN}>;tag=1r1
To: <sip:alice@{DOMAIN}>
Call-ID: 1-1@192.0.2.1
CSeq: 2 REGISTER
Contact: <sip:alice@192.0.2.1:5060>
Authorization: Digest username="alice", realm="{DOMAIN}", nonce="AABwUNYAAAAAAVlkaEXmJPEF", uri="sip:{DOMAIN}", \
response="fba598b119439d15d323afafbd042c7c", algorithm=MD5, cnonce="6b8b4567", nc=00000001, qop=auth
Expires: 300
Content-Length: 0

""",
    "INVITE": f"""INVITE sip:bob@{DOMAIN} SIP/2.0
Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK-1-1-0;rport
Max-Forwards: 70
From: <sip:alice@{DOMAIN}>;tag=1c1
To: <sip:bob@{DOMAIN}>
Call-ID: 1-1@192.0.2.1
CSeq: 1 INVITE
Contact: <sip:alice@192.0.2.1:5060>
Content-Type: application/sdp
Content-Length: 0

""",
}

if __name__ == "__main__":
    sys.exit(main())
