"""Counts of events in the three phases of filtering: publisher, channel and destination (SPEC N-01)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

PHASES: Final = ("publisher", "channel", "destination")


class PhaseCounts:
    """Events that each phase has examined since the start of the server, and those that it held back."""

    def __init__(self) -> None:
        self._examined = dict.fromkeys(PHASES, 0)
        self._held_back = dict.fromkeys(PHASES, 0)

    def at_publisher(self, examined: int, held_back: int) -> None:
        """Add what a publishing agent reports; it can report no more events held back than examined."""
        self._examined["publisher"] += examined
        self._held_back["publisher"] += min(examined, held_back)

    def at_channel(self, *, is_sent: bool) -> None:
        """Count an event of a channel that this server leads, or a decentralised event of a publisher here.

        ``is_sent`` is true if a subscription or another server gets it.
        """
        self._count("channel", is_sent=is_sent)

    def at_destination(self, *, is_matched: bool) -> None:
        """Count an event that another server has sent here; ``is_matched`` tells whether a subscription gets it."""
        self._count("destination", is_sent=is_matched)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row for each phase."""
        for phase in PHASES:
            yield {"phase": phase, "examined": self._examined[phase], "held_back": self._held_back[phase]}

    def _count(self, phase: str, *, is_sent: bool) -> None:
        self._examined[phase] += 1
        self._held_back[phase] += not is_sent
