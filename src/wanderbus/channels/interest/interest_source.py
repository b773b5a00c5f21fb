"""Interest of an access server in one channel group: local filters in, operations out (SPEC J-10, J-11, B-10).

The same machine announces what the server's publishers send: advertisements are filters too (SPEC A-17, K-07).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.channels.interest.interest_set import InterestMode, InterestSet, Wanted
from wanderbus.channels.interest.measured_precision import MeasuredPrecision
from wanderbus.channels.interest.messages import Stream
from wanderbus.channels.interest.multicast import Multicast
from wanderbus.channels.interest.outgoing_stream import OutgoingStream, Selects
from wanderbus.filters.merging import PRECISION_MIN
from wanderbus.machine import Output


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

    def update(
        self, added: Mapping[Hashable, Wanted], removed: Iterable[Hashable], now: float
    ) -> tuple[int, list[Output]]:
        """Remove and add filters at once; return the version from which this counts, and the outputs.

        :meth:`OutgoingStream.is_effective` returns whether that version counts at every receiver that is alive. Raises
        :class:`KeyError` for an unknown removed id.
        """
        outputs = self._send(self.interests.update(added, removed), now)
        return self.outgoing.version, outputs

    def event_arrived(self, subject: str, *, matched: bool, now: float) -> list[Output]:
        """Count an event that a receiver sent because of this interest, and whether a local filter matched it."""
        if self._bound is None:
            return []
        measured = self._measured.setdefault(subject, MeasuredPrecision(self._bound))
        if not measured.count(matched=matched):
            return []
        outputs = self._send(self.interests.set_precision(subject, measured.estimate), now)
        return outputs + self._send(self.interests.set_precision(None, measured.estimate), now)

    def _send(self, change: InterestChange, now: float) -> list[Output]:
        return self.outgoing.change(change, now)
