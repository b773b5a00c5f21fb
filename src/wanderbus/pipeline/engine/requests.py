"""Requests of the server to the engine: the present beginning, its matches, and its failure (SPEC T-06).

The threads of the service answer here, and another thread runs the query. Nothing here uses Spark.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from wanderbus.pipeline.engine.chunks import MatchChunk
from wanderbus.pipeline.engine.results import Results, joined
from wanderbus.runtime.services.engine import BEGIN, MATCHES, Begin, MatchesAsked
from wanderbus.runtime.services.frames import ServiceAway
from wanderbus.runtime.services.service import Handlers
from wanderbus.subscription import Subscription

_log = logging.getLogger("wanderbus.service")

PAUSE_S_MIN: Final = 0.5
PAUSE_S_MAX: Final = 8.0
"""Pauses after a failure, before the server may begin again: each is twice the one before, until there are matches."""

WAIT_S_MAX: Final = 30.0

_begins: Final = msgspec.msgpack.Decoder(Begin)
_asked: Final = msgspec.msgpack.Decoder(MatchesAsked)


class EncodedMatches(msgspec.Struct, frozen=True):
    """A :class:`~wanderbus.runtime.services.engine.Matches` whose events are encoded."""

    first: int
    next: int
    events: msgspec.Raw = msgspec.Raw(b"\x90")
    is_lost: bool = False


class Beginning:
    """A request to begin with all its subscriptions, and the matches since."""

    def __init__(self, begin: Begin) -> None:
        self.begin = begin
        self.results = Results(begin.first)
        self.reason = ""
        """Reason for which its query has failed."""
        self.over_s = 0.0
        """Monotonic time from which on the server may begin again."""


class QueryRequests:
    """The desk between the server and the query; ``check`` raises an error for a beginning with another log."""

    def __init__(self, check: Callable[[Begin], None], now_s: Callable[[], float] = time.monotonic) -> None:
        self._check = check
        self._now_s = now_s
        self._pieces: list[Begin] = []
        self._present: Beginning | None = None
        self._taken: Beginning | None = None
        self._pause_s = PAUSE_S_MIN
        self._changed = threading.Condition()

    @property
    def handlers(self) -> Handlers:
        """Return the functions of the service."""
        return {BEGIN: self._on_begin, MATCHES: self._on_matches}

    def take(self, wait_s: float) -> Beginning | None:
        """Return a new beginning, or None if there is none within ``wait_s``."""
        with self._changed:
            self._changed.wait_for(lambda: self._present is not self._taken, wait_s)
            if self._present is self._taken:
                return None
            self._taken = self._present
            return self._taken

    def is_present(self, beginning: Beginning) -> bool:
        """Return whether no later beginning has come."""
        return self._present is beginning

    def fail(self, beginning: Beginning, reason: str) -> None:
        """End a beginning whose query has failed."""
        with self._changed:
            if beginning.results.end > beginning.begin.first:
                self._pause_s = PAUSE_S_MIN
            beginning.reason, beginning.over_s = reason, self._now_s() + self._pause_s
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        beginning.results.close()

    def _on_begin(self, body: msgspec.Raw) -> None:
        piece = _begins.decode(body)
        self._check(piece)
        with self._changed:
            if self._pieces and self._pieces[0].number != piece.number:
                self._pieces.clear()
            self._pieces.append(piece)
            if not piece.is_last:
                return
            pieces, self._pieces = self._pieces, []
            former, self._present = self._present, Beginning(_joined(pieces))
            self._changed.notify_all()
        if former is not None:
            former.results.close()
        _log.info("matching begins at record %s with %s subscriptions", piece.first, sum(_counts(pieces)))

    def _on_matches(self, body: msgspec.Raw) -> EncodedMatches:
        asked = _asked.decode(body)
        beginning, lost = self._present, EncodedMatches(asked.first, asked.first, is_lost=True)
        if beginning is None or asked.number != beginning.begin.number:
            return lost
        found = beginning.results.get(asked.first, asked.durable, min(asked.wait_s, WAIT_S_MAX))
        if found is None:
            return lost
        if found:
            return EncodedMatches(asked.first, found[-1].end, msgspec.Raw(joined_matches(found)))
        if not self.is_present(beginning):
            return lost
        if beginning.reason:
            if self._now_s() >= beginning.over_s:
                return lost
            raise ServiceAway(beginning.reason)
        return EncodedMatches(asked.first, asked.first)


def joined_matches(chunks: Sequence[MatchChunk]) -> bytes:
    """Return the matches of all chunks as one array of msgpack."""
    return joined(sum(chunk.count for chunk in chunks), [chunk.matches for chunk in chunks])


def _joined(pieces: Sequence[Begin]) -> Begin:
    subscriptions: tuple[Subscription, ...] = tuple(each for piece in pieces for each in piece.subscriptions)
    return msgspec.structs.replace(pieces[-1], subscriptions=subscriptions)


def _counts(pieces: Sequence[Begin]) -> list[int]:
    return [len(piece.subscriptions) for piece in pieces]
