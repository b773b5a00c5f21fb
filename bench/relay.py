"""Datagrams a second through our media relay, beside rtpengine in userspace, and what each adds to the latency.

Both forward the same datagrams in turn, on one processor, while the load is made on another. Of each stream a number
of datagrams is under way at once, and a new one is sent for each that has come out; more at a time lets a relay work
in larger batches, until it loses some. What counts is the highest rate at which none was lost. (rtpengine drops when
it finds more than fifty datagrams waiting at one port.) Latency is that of datagrams one by one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from harness.ports import free_port
from harness.process_figures import processor_s
from harness.reporting import finish, goal, median, percentile, progress
from tests.interop import rtpengine as peer
from wanderbus.machine import Address
from wanderbus.relay import ng
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription
from wanderbus.testbed.launch import pinned, python
from wanderbus.testbed.processes import Process

GOAL_VS_RTPENGINE: Final = 0.3
STREAMS: Final = (1, 8)
SIZES: Final = (200, 1_200)
UNDER_WAY: Final = (1, 2, 4, 8, 16, 32)
LOST_S: Final = 0.1
"""Time after which a datagram that has not come out is lost."""

ROUNDS: Final = 2_000
_HOST: Final = "127.0.0.1"
_MANY: Final = "1000000000"

Pair = tuple[socket.socket, socket.socket]


class Running(NamedTuple):
    """A relay that takes commands, and its process."""

    ng: Address
    pid: int


class Rate(NamedTuple):
    """Datagrams a second that came out, and how many did not; and the same per second of the relay's processor."""

    per_s: float
    lost: int
    cpu_per_s: float
    under_way: int


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    options = _options(arguments)
    if peer.PROGRAM is None:
        print(peer.MISSING, file=sys.stderr)
        return 2
    os.sched_setaffinity(0, {_processors()[-1]})
    rates: dict[tuple[str, int, int], list[Rate]] = {}
    delays: dict[str, list[list[float]]] = {"direct": [], "ours": [], "rtpengine": []}
    for turn in range(options.runs):
        for name, start in (("ours", ours), ("rtpengine", rtpengine)):
            progress(f"run {turn + 1} of {options.runs}: {name}")
            with start() as relay:
                for streams in STREAMS:
                    for size in SIZES:
                        rate = best_rate(relay, streams, size, options.seconds)
                        rates.setdefault((name, streams, size), []).append(rate)
                with through(relay, 1) as (pair,):
                    delays[name].append(latencies_s(pair))
        with direct() as pair:
            delays["direct"].append(latencies_s(pair))
    return _report(rates, delays, options)


@contextlib.contextmanager
def ours() -> Iterator[Running]:
    """Run our relay, without a bound on rates that the load could meet."""
    place = (_HOST, free_port())
    words = python("wanderbus", "relay", "--ng-listen", f"{_HOST}:{place[1]}", "--ports", "21000-21999")
    words += ["--stream-datagrams-per-s", _MANY, "--stream-bytes-per-s", _MANY]
    words = pinned(words, _processors()[0])
    with (
        tempfile.TemporaryDirectory(prefix="wanderbus-relay-") as directory,
        Process("the relay", words, Path(directory) / "log") as process,
    ):
        process.wait_until(lambda: peer.answers(place))
        yield Running(place, process.pid)


@contextlib.contextmanager
def rtpengine() -> Iterator[Running]:
    """Run rtpengine."""
    with peer.rtpengine(processor=_processors()[0]) as started:
        yield Running(started.ng, started.pid)


def best_rate(relay: Running, streams: int, size: int, seconds: float) -> Rate:
    """Return the highest rate without loss; where all lose, the one that loses least."""
    found: list[Rate] = []
    for under_way in UNDER_WAY:
        with through(relay, streams) as pairs:
            found.append(rate_of(relay, pairs, size, seconds, under_way))
        if found[-1].lost:
            break
    whole = [rate for rate in found if not rate.lost]
    return max(whole) if whole else min(found, key=lambda rate: rate.lost)


def rate_of(relay: Running, pairs: Sequence[Pair], size: int, seconds: float, under_way: int) -> Rate:
    """Keep ``under_way`` datagrams of each stream in flight for ``seconds``; return the figures."""
    loads = {there.fileno(): _Load(here, there, bytes(size)) for here, there in pairs}
    came = lost = 0
    with select.epoll() as poll:
        for descriptor, load in loads.items():
            poll.register(descriptor, select.EPOLLIN)
            load.send(under_way)
        used_s, started = processor_s([relay.pid]), time.perf_counter()
        while (passed_s := time.perf_counter() - started) < seconds:
            ready = poll.poll(LOST_S)
            for descriptor, _ in ready:
                came += loads[descriptor].exchange(under_way)
            if not ready:
                for load in loads.values():
                    lost += load.outstanding
                    load.outstanding = 0
                    load.send(under_way)
        used_s = processor_s([relay.pid]) - used_s
    lost += sum(load.never_came() for load in loads.values())
    return Rate(came / passed_s, lost, came / max(used_s, 0.01), under_way)


class _Load:
    """The two ends of a stream, and how many datagrams are between them."""

    def __init__(self, here: socket.socket, there: socket.socket, data: bytes) -> None:
        self.outstanding = 0
        self._here = here
        self._there = there
        self._data = data

    def send(self, count: int) -> None:
        for _ in range(count):
            self._here.send(self._data)
        self.outstanding += count

    def exchange(self, most: int) -> int:
        """Receive what has come out, and send as much; return the number."""
        receive, send, data, came = self._there.recv, self._here.send, self._data, 0
        with contextlib.suppress(BlockingIOError):
            while came < most:
                receive(65_536)
                came += 1
                send(data)
        return came

    def never_came(self) -> int:
        """Receive what is still in flight; return how many datagrams are lost."""
        while self.outstanding and select.select([self._there], [], [], LOST_S)[0]:
            self._there.recv(65_536)
            self.outstanding -= 1
        return self.outstanding


def latencies_s(pair: Pair) -> list[float]:
    """Return how long single datagrams take from one end to the other."""
    here, there = pair
    there.setblocking(True)
    there.settimeout(1.0)
    data, taken = bytes(SIZES[0]), []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        here.send(data)
        there.recv(65_536)
        taken.append(time.perf_counter() - started)
    return taken


@contextlib.contextmanager
def direct() -> Iterator[Pair]:
    """Connect two ends with nothing in between."""
    with _end() as here, _end() as there:
        here.connect(there.getsockname())
        there.connect(here.getsockname())
        yield here, there


@contextlib.contextmanager
def through(relay: Running, streams: int) -> Iterator[list[Pair]]:
    """Set up ``streams`` calls, and connect the two ends of each to the relay; a first datagram went both ways."""
    with contextlib.ExitStack() as stack:
        asker = stack.enter_context(_end())
        asker.connect(relay.ng)
        asker.settimeout(5.0)
        pairs = []
        for number in range(streams):
            here, there = stack.enter_context(_end()), stack.enter_context(_end())
            tags = {"call_id": f"call{number}.{here.getsockname()[1]}", "from_tag": "a"}
            to_here = _asked(asker, ng.describe("offer", _sdp(here), **tags))
            to_there = _asked(asker, ng.describe("answer", _sdp(there), to_tag="b", **tags))
            stack.callback(_asked, asker, ng.delete(**tags))
            here.connect((_HOST, to_there))
            there.connect((_HOST, to_here))
            for sender, receiver in ((here, there), (there, here)):
                sender.send(b"first")
                if not select.select([receiver], [], [], 2.0)[0]:
                    raise TimeoutError("a relay does not forward")
                receiver.recv(65_536)
            there.setblocking(False)
            pairs.append((here, there))
        yield pairs


def _end() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 2**20)
    made.bind((_HOST, 0))
    return made


def _sdp(end: socket.socket) -> str:
    medium = MediaDescription(address=_HOST, port=end.getsockname()[1])
    return SessionDescription("-", 1, 1, _HOST, (medium,)).encode().decode()


def _asked(asker: socket.socket, command: ng.Fields) -> int:
    """Send a command; return the port in its response, 0 if there is none."""
    asker.send(ng.write_command(os.urandom(6).hex().encode(), command))
    sdp, reason = ng.outcome(ng.read_reply(asker.recv(65_536))[1])
    if reason:
        raise RuntimeError(reason)
    return SessionDescription.parse(sdp.encode()).media[0].port if sdp else 0


def _processors() -> list[int]:
    return sorted(_USABLE)


_USABLE: Final = frozenset(os.sched_getaffinity(0))


def _report(
    rates: dict[tuple[str, int, int], list[Rate]], delays: dict[str, list[list[float]]], options: argparse.Namespace
) -> int:
    medians = {key: median(rate.per_s for rate in found) for key, found in rates.items()}
    worst, results = float("inf"), []
    for streams in STREAMS:
        for size in SIZES:
            own, other = medians["ours", streams, size], medians["rtpengine", streams, size]
            worst = min(worst, own / other)
            print(f"{streams} streams of {size} bytes: ours {own:,.0f}/s, rtpengine {other:,.0f}/s, {own / other:.2f}")
    for (name, streams, size), found in rates.items():
        of = {"relay": name, "streams": streams, "bytes": size}
        results += [{**of, **rate._asdict()} for rate in found]
    goals = [goal("vs_rtpengine", worst, "the least ratio", least=GOAL_VS_RTPENGINE)]
    goals.append(goal("lost", sum(rate.lost for (name, *_), found in rates.items() for rate in found), "datagrams"))
    for name in ("ours", "rtpengine"):
        for share in (0.5, 0.99):
            added = [
                percentile(taken, share) - percentile(bare, share)
                for taken, bare in zip(delays[name], delays["direct"], strict=True)
            ]
            goals.append(goal(f"{name}_added_p{share * 100:.0f}_us", median(added) * 1e6, "us"))
    return finish("bench relay", results, goals, file=options.json, strict=options.strict)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench relay", description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds of each measurement (default: %(default)s)")
    parser.add_argument(
        "--runs", type=int, default=3, help="number of runs; their median counts (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file as JSON")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if the goal is not met")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
