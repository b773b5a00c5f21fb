"""The service ``engine`` as its server uses it: matches come from the service, the events from the log (SPEC T-06)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.broker.engine.engine_event import engine_event, is_for_engine
from wanderbus.broker.messages import EngineEvent, MatchesRead, MatchesWanted
from wanderbus.errors import StorageError
from wanderbus.records import decode_record
from wanderbus.runtime.log.log_reader import RecordPlace, read_frames
from wanderbus.runtime.segment_files import durable_end
from wanderbus.runtime.services.backoff import Backoff
from wanderbus.runtime.services.caller import ServiceCaller
from wanderbus.runtime.services.engine import (
    BEGIN,
    MATCHES,
    NAME,
    PIECE_SUBSCRIPTIONS_MAX,
    Begin,
    EventMatches,
    Matches,
    MatchesAsked,
)
from wanderbus.runtime.services.frames import ServiceAway
from wanderbus.subscription import Subscription

WAIT_S: Final = 1.0
"""Time that the service waits for matches."""

ANSWER_S_MAX: Final = 30.0
"""Timeout for an answer; a busy computer may be slow, and nothing but these events waits for it."""

EMPTY_PAUSE_S: Final = 0.02
"""Pause after an answer without anything, in case that the service does not wait."""

PIECE_EVENTS_MAX: Final = 256
PIECE_BYTES_MAX: Final = 256 * 2**10
"""Events of one piece, and their bytes: the broker writes them as one record."""


class RemoteEngine:
    """The service of the server in ``data_dir``; ``identity`` returns server and incarnation. One thread uses it.

    A service that does not answer is away: its events wait in the log, and one line is logged.
    """

    def __init__(self, data_dir: Path, identity: Callable[[], tuple[str, int]]) -> None:
        self._directory = data_dir / "log"
        self._identity = identity
        self._caller = ServiceCaller(data_dir, NAME, ANSWER_S_MAX)
        self._closed = threading.Event()
        self._backoff = Backoff("the matching engine", "events wait for the matching engine")
        self._answer = Matches(0, 0)
        """The last answer; the part from ``_next`` on was not returned yet."""
        self._next = 0
        self._place: tuple[int, RecordPlace] | None = None
        """Offset and place of the first record behind those that were read; records without a match may follow."""

    def read(self, wanted: MatchesWanted) -> MatchesRead:
        """Return the next piece of matches."""
        try:
            if wanted.subscriptions is not None:
                self._begin(wanted, wanted.subscriptions)
            if wanted.subscriptions is not None or wanted.first != self._next or self._next >= self._answer.next:
                self._ask(wanted)
            if self._answer.is_lost:
                self._answer, self._next = Matches(0, 0), 0
                return MatchesRead(wanted.number, wanted.first, is_lost=True)
            piece = self._piece(wanted)
        except (StorageError, OSError, msgspec.DecodeError) as error:
            self._answer, self._next, self._place = Matches(0, 0), 0, None
            return MatchesRead(wanted.number, wanted.first, failed=str(error), retry_s=self._backoff.next_s(str(error)))
        self._backoff.reset()
        return piece

    def close(self) -> None:
        """End the connection; a request that waits fails."""
        self._closed.set()
        self._backoff.close()
        self._caller.close()

    def _begin(self, wanted: MatchesWanted, subscriptions: tuple[Subscription, ...]) -> None:
        server, incarnation = self._identity()
        most = PIECE_SUBSCRIPTIONS_MAX
        for place in range(0, max(1, len(subscriptions)), most):
            begin = Begin(
                number=wanted.number,
                server=server,
                incarnation=incarnation,
                first=wanted.first,
                subscriptions=subscriptions[place : place + most],
                filter_work_max=wanted.filter_work_max,
                is_last=place + most >= len(subscriptions),
                parents=dict(wanted.parents),
            )
            self._caller.ask(*BEGIN, begin, type(None))

    def _ask(self, wanted: MatchesWanted) -> None:
        asked = MatchesAsked(wanted.number, wanted.first, wanted.durable, WAIT_S)
        began = time.monotonic()
        answer = self._caller.ask(*MATCHES, asked, Matches)
        if not answer.is_lost:
            self._check(answer, wanted.first)
        self._answer, self._next = answer, wanted.first
        if answer.next == answer.first and time.monotonic() - began < EMPTY_PAUSE_S:
            self._closed.wait(EMPTY_PAUSE_S)

    def _check(self, answer: Matches, first: int) -> None:
        """Raise :class:`ServiceAway` unless the matches are those of records from ``first`` on, in order."""
        offsets = [first - 1, *(each.offset for each in answer.events), answer.next]
        is_rising = all(one < other for one, other in pairwise(offsets))
        if answer.first != first or not is_rising:
            raise ServiceAway(f"the service {NAME} answers with other events; start it again")
        if answer.next > first and answer.next > durable_end(self._directory):
            raise ServiceAway(f"the service {NAME} is ahead of the log; start it again")

    def _piece(self, wanted: MatchesWanted) -> MatchesRead:
        """Return the next events of the answer, as many as one record takes."""
        coming = [each for each in self._answer.events if each.offset >= self._next]
        found: list[EngineEvent] = []
        size, end = 0, self._answer.next
        for event in self._events(coming[:PIECE_EVENTS_MAX]):
            size += len(event.event.event)
            if found and size > PIECE_BYTES_MAX:
                end = found[-1].event.offset + 1
                break
            found.append(event)
        else:
            if len(coming) > PIECE_EVENTS_MAX:
                end = coming[PIECE_EVENTS_MAX].offset
        self._next = end
        return MatchesRead(wanted.number, end, tuple(found))

    def _events(self, matched: list[EventMatches]) -> Iterator[EngineEvent]:
        """Yield the events from the log; one that is not the engine's is left out."""
        if not matched:
            return
        wanted = {each.offset: each for each in matched}
        first, end = self._next, matched[-1].offset + 1
        for frame, path in read_frames(self._directory, first, end, self._place_before(first)):
            if (matches := wanted.get(frame.offset)) is None:
                continue
            record = decode_record(frame.payload)
            if is_for_engine(record):
                yield engine_event(frame.offset, record, matches.matched, matches.undecided)
            self._place = frame.offset + 1, RecordPlace(path, frame.end)

    def _place_before(self, first: int) -> RecordPlace | None:
        """Return a place from which record ``first`` is found without a search from the begin of its segment."""
        if self._place is None or self._place[0] > first or not self._place[1].path.exists():
            return None
        return self._place[1]
