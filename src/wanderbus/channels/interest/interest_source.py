"""Interest of an access server in one channel group: local filters in, operations out (SPEC J-10, J-11, B-10).

The same machine announces what the server's publishers send: advertisements are filters too (SPEC A-17, K-07).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.channels.interest.interest_set import InterestMode, InterestSet, Wanted
from wanderbus.channels.interest.measured_precision import MeasuredPrecision
from wanderbus.channels.interest.messages import Stream
from wanderbus.channels.interest.multicast import Multicast
from wanderbus.channels.interest.outgoing_stream import OutgoingStream, Selects
from wanderbus.filters.merging import PRECISION_MIN
from wanderbus.machine import Output

TURN_S: Final = 0.01
"""Pause between two turns of a change that takes several: others are served meanwhile."""


class InterestSource:
    """Local filters by id, and the stream that carries what they need.

    The caller passes links and messages of receivers to ``outgoing``. The bound ``precision_min`` is of adaptive
    merging alone.
    """

    def __init__(
        self,
        stream: Stream,
        incarnation: int,
        mode: InterestMode = "perfect",
        *,
        precision_min: float = PRECISION_MIN,
        selects: Selects = lambda server, interest: True,
        multicast: Multicast | None = None,
    ) -> None:
        """Begin empty. Raises :class:`ConfigurationError` for another mode or a precision outside 0 to 1."""
        self.outgoing = OutgoingStream(stream, incarnation, selects, multicast)
        self.interests = InterestSet(mode, precision_min=precision_min)
        self._bound = precision_min if mode == "adaptive" else None
        self._measured: dict[str, MeasuredPrecision] = {}
        self._go_on_at: float | None = None
        """Time of the next turn in which interests are placed again; None if there is nothing to do."""

    def update(
        self, added: Mapping[Hashable, Wanted], removed: Iterable[Hashable], now: float
    ) -> tuple[int, list[Output]]:
        """Remove and add filters at once; return the version from which this counts, and the outputs.

        :attr:`OutgoingStream.effective` is the version that counts at every receiver that is alive. Raises
        :class:`KeyError` for an unknown removed id.
        """
        outputs = self._send(self.interests.update(added, removed), now)
        self._plan(now)
        return self.outgoing.version, outputs

    def event_arrived(self, subject: str, *, matched: bool, now: float) -> list[Output]:
        """Count an event that a receiver sent because of this interest, and whether a local filter matched it."""
        if self._bound is None:
            return []
        measured = self._measured.setdefault(subject, MeasuredPrecision(self._bound))
        if not measured.count(matched=matched):
            return []
        outputs = self._send(self.interests.set_precision((subject, None), measured.estimate), now)
        self._plan(now)
        return outputs

    def repeat(self, now: float) -> list[Output]:
        """Go on with a change that takes several turns, and repeat what has not been confirmed in time."""
        outputs: list[Output] = []
        if self._go_on_at is not None and self._go_on_at <= now:
            outputs = self._send(self.interests.go_on(), now)
            self._go_on_at = None
            self._plan(now)
        return outputs + self.outgoing.repeat(now)

    def repeat_at(self) -> float | None:
        """Return when :meth:`repeat` is due; None if everything is done and confirmed."""
        times = (self.outgoing.repeat_at(), self._go_on_at)
        return min((each for each in times if each is not None), default=None)

    def _plan(self, now: float) -> None:
        if self.interests.is_settled:
            self._go_on_at = None
        elif self._go_on_at is None:
            self._go_on_at = now + TURN_S

    def _send(self, change: InterestChange, now: float) -> list[Output]:
        return self.outgoing.change(change, now)
