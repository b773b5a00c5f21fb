"""A matching engine as a service beside a real server: it reads the server's log, and matches without Spark.

As a program, with the data directory as its argument, it serves until its standard input ends.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from wanderbus.broker.messages import MatchesWanted
from wanderbus.runtime.log.log_reader import read_log
from wanderbus.runtime.segment_files import durable_end
from wanderbus.runtime.services.engine import BEGIN, MATCHES, NAME, Begin, EventMatches, Matches, MatchesAsked
from wanderbus.runtime.services.service import Service
from wanderbus.simulation.engine import SimulatedEngine
from wanderbus.subscription import Subscription


class EngineService:
    """The functions of the service; it never waits for matches."""

    def __init__(self, data_dir: Path) -> None:
        self.engine = SimulatedEngine(())
        self.begun = 0
        """Number of beginnings."""
        self._directory = data_dir / "log"
        self._coming: list[Subscription] = []
        self._begin: Begin | None = None
        self._log: list[bytes] = []

    def service(self, data_dir: Path) -> Service:
        """Return the service, to be started."""
        begin, asked = msgspec.msgpack.Decoder(Begin), msgspec.msgpack.Decoder(MatchesAsked)
        handlers = {
            BEGIN: lambda body: self.begin(begin.decode(body)),
            MATCHES: lambda body: self.matches(asked.decode(body)),
        }
        return Service(data_dir, NAME, handlers)

    def begin(self, piece: Begin) -> None:
        """Take a piece of a beginning."""
        if self._begin is None or self._begin.number != piece.number:
            self._coming.clear()
        self._begin = piece
        self._coming += piece.subscriptions
        if piece.is_last:
            self.begun += 1
            self._read(piece.number, piece.first, piece, tuple(self._coming), piece.first)

    def matches(self, asked: MatchesAsked) -> Matches:
        """Return the matches of what is durable."""
        if self._begin is None or not self._begin.is_last:
            return Matches(asked.first, asked.first, is_lost=True)
        return self._read(asked.number, asked.first, self._begin, None, durable_end(self._directory))

    def _read(
        self, number: int, first: int, begin: Begin, subscriptions: Sequence[Subscription] | None, end: int
    ) -> Matches:
        while len(self._log) < end:
            self._log += [frame.payload for frame in read_log(self._directory, len(self._log), end)]
        self.engine.log = self._log
        own = None if subscriptions is None else tuple(subscriptions)
        answer = self.engine.read(MatchesWanted(number, first, first, own, begin.filter_work_max, begin.parents), end)
        events = tuple(EventMatches(each.event.offset, each.matched, each.undecided) for each in answer.events)
        return Matches(first, answer.next, events, answer.is_lost)


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    with EngineService(directory).service(directory):
        sys.stdin.buffer.read()
