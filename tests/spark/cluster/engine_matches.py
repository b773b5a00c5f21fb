"""A server's log whose events the matching engine matches, and requests for the matches, as a server sends them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.spark.engine.records import INCARNATION, SERVER, for_engine, started, subscription, write_log
from wanderbus.event import Event
from wanderbus.runtime.services.caller import ServiceCaller
from wanderbus.runtime.services.engine import BEGIN, MATCHES, NAME, Begin, EventMatches, Matches, MatchesAsked

EVENTS: Final = 50_000
"""Events of three batches."""

SUBSCRIPTIONS: Final = tuple(subscription(f"s{row}", "Departure", f"Row == {row}") for row in range(500))
_ROWS: Final = 1_000
_PER_SEGMENT: Final = 20_000
_ANSWER_S_MAX: Final = 120.0


def write_data(data: Path) -> Path:
    """Write the data directory of a server; return it."""
    data.mkdir(0o700)
    events = (Event("Departure", {"Row": number % _ROWS}) for number in range(1, EVENTS + 1))
    write_log(data / "log", [started(), *map(for_engine, events, range(1, EVENTS + 1))], _PER_SEGMENT)
    return data


def expected() -> list[EventMatches]:
    """Return the matches that there are."""
    rows = ((offset, offset % _ROWS) for offset in range(1, EVENTS + 1))
    return [EventMatches(offset, (f"s{row}",)) for offset, row in rows if row < len(SUBSCRIPTIONS)]


def matches_of(data: Path, in_the_middle: Callable[[], None] = lambda: None) -> list[EventMatches]:
    """Return all matches of the engine of this server, which runs; call ``in_the_middle`` after the first ones."""
    found: list[EventMatches] = []
    at, end = 1, EVENTS + 1
    with closing(ServiceCaller(data, NAME, _ANSWER_S_MAX)) as caller:
        caller.ask(*BEGIN, Begin(1, SERVER, INCARNATION, at, SUBSCRIPTIONS, 10_000, True), type(None))
        while at < end:
            answer = caller.ask(*MATCHES, MatchesAsked(1, at, at, 1.0), Matches)
            assert not answer.is_lost
            assert answer.next < end or at > 1, "there is a middle"
            if found == [] != list(answer.events):
                in_the_middle()
            found += answer.events
            at = answer.next
    return found
