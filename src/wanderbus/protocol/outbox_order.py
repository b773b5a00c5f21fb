"""Order of outboxes: no event is accepted before an earlier one that was refused temporarily (SPEC X25, M-01).

A number counts as a repeat once a higher one was accepted. Agents and servers follow the rule, each for what it has
seen refused. The gateways of a foreign domain publish as outboxes do.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable
from operator import attrgetter
from typing import Final, Generic, TypeVar

from wanderbus.protocol import NUMBER_USED, PublishFor

OUT_OF_TURN: Final = "an earlier event of the outbox must be accepted first"
"""Reason for which an event is refused that would overtake another."""

REFUSED_MAX: Final = 1_024
"""Refused events of one outbox that are kept apart: more than agents send ahead of the answers, or servers forward."""

_LATER: Final = (
    NUMBER_USED,
    "disk_full",
    "forwarded_bytes_max",
    "routes_unknown",
    "advertisement_pending",
    "user_filter_work_per_s",
)
"""Limits of temporary refusals, besides those of queues."""

Outbox = TypeVar("Outbox", bound=Hashable)
Refusal = TypeVar("Refusal")


def is_temporary(limit: str | None) -> bool:
    """Return whether an agent sends an event again that was refused for ``limit``, before any later one.

    There was no space on disk, in a queue or on the way to its server; its server did not know its destinations yet;
    its advertisement did not count yet; or it could not be compared with the advertisements yet. An event whose number
    was used is accepted in another epoch.
    """
    return limit is not None and (limit in _LATER or "queue" in limit)


class _Refused(Generic[Refusal]):
    """Refused events of an outbox in one epoch: their numbers in order, the highest, and the refusal of the first."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.numbers: list[int] = []
        self.last = 0
        self.refusal: Refusal

    def add(self, number: int, refusal: Refusal) -> None:
        """Add an event; beyond the bound only the highest number is kept."""
        place = bisect_left(self.numbers, number)
        if place == 0:
            self.refusal = refusal
        if self.numbers[place : place + 1] != [number]:
            self.numbers.insert(place, number)
            del self.numbers[REFUSED_MAX:]
        self.last = max(self.last, number)


class OutboxOrder(Generic[Outbox, Refusal]):
    """The events of each outbox that were refused temporarily.

    A refused event may be accepted over another link. Then the next refused one comes first, and not what may still be
    on its way behind it: so all refused numbers are kept. An outbox waits in its latest epoch alone.

    :param outboxes_max: outboxes with refused events; the first is forgotten beyond
    """

    def __init__(self, *, outboxes_max: int | None = None) -> None:
        self._refused: dict[Outbox, _Refused[Refusal]] = {}
        self._outboxes_max = outboxes_max

    def __len__(self) -> int:
        """Return the number of outboxes with an event that waits until it is sent again."""
        return len(self._refused)

    def has(self, outbox: Outbox) -> bool:
        """Return whether an event of an outbox waits until it is sent again."""
        return outbox in self._refused

    def refused(self, outbox: Outbox, number: int, refusal: Refusal, *, epoch: int = 0) -> None:
        """Note that an event was refused temporarily."""
        if (found := self._of(outbox, epoch)) is None:
            found = self._refused[outbox] = _Refused(epoch)
        found.add(number, refusal)
        if self._outboxes_max is not None and len(self._refused) > self._outboxes_max:
            del self._refused[next(iter(self._refused))]

    def before(self, outbox: Outbox, number: int, *, epoch: int = 0) -> Refusal | None:
        """Return the refusal of an event that has to be accepted before ``number``, None if there is none."""
        found = self._of(outbox, epoch)
        return None if found is None or number <= found.numbers[0] else found.refusal

    def passed(self, outbox: Outbox, accepted: int, *, epoch: int = 0) -> None:
        """Forget the events up to number ``accepted``: they were accepted over another link, or never will be."""
        if (found := self._of(outbox, epoch)) is not None:
            place = bisect_right(found.numbers, accepted)
            if accepted >= found.last:
                del self._refused[outbox]
            elif place < len(found.numbers):  # else the next one is not known: all of them have to be accepted
                del found.numbers[:place]

    def sent_again(self, outbox: Outbox, number: int, *, epoch: int = 0) -> None:
        """Let the events behind ``number`` follow it, if it is the first that they wait for."""
        if (found := self._of(outbox, epoch)) is not None and found.numbers[0] == number:
            del self._refused[outbox]

    def _of(self, outbox: Outbox, epoch: int) -> _Refused[Refusal] | None:
        found = self._refused.get(outbox)
        return found if found is not None and found.epoch == epoch else None


def in_turn(publishes: Iterable[PublishFor]) -> list[PublishFor]:
    """Return forwarded events by request, except that none is behind a later one of its publisher.

    A device repeats an event that was refused temporarily, or whose answer was lost with a link. That request is later
    than those of events which the leader has not answered, and may know none of, as one that was replaced or restored.
    """
    places: dict[int, tuple[int, int]] = {}
    earliest: dict[Hashable, int] = {}
    found = list(publishes)
    for each in sorted(found, key=attrgetter("number"), reverse=True):
        publisher = each.user, each.device, each.is_outbox, each.epoch
        earliest[publisher] = min(each.request, earliest.get(publisher, each.request))
        places[each.request] = earliest[publisher], each.number
    return sorted(found, key=lambda each: places[each.request])
