"""Order of outboxes: no event is accepted before an earlier one that was refused temporarily (SPEC X25).

A number counts as a repeat once a higher one was accepted. Agents and servers follow the rule, each for what it has
seen refused: a refusal and the events behind it may be on different links.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from operator import attrgetter
from typing import Final, Generic, TypeVar

from wanderbus.protocol import PublishFor

OUT_OF_TURN: Final = "an earlier event of the outbox must be accepted first"
"""Reason for which an event is refused that would overtake another."""

Outbox = TypeVar("Outbox", bound=Hashable)
Refusal = TypeVar("Refusal")


class OutboxOrder(Generic[Outbox, Refusal]):
    """The earliest event of each outbox that was refused temporarily, with its refusal."""

    def __init__(self) -> None:
        self._earliest: dict[Outbox, tuple[int, Refusal]] = {}

    def __len__(self) -> int:
        """Return the number of outboxes with an event that waits until it is sent again."""
        return len(self._earliest)

    def refused(self, outbox: Outbox, number: int, refusal: Refusal) -> None:
        """Note that an event was refused temporarily."""
        if number < self._earliest.get(outbox, (number + 1,))[0]:
            self._earliest[outbox] = number, refusal

    def before(self, outbox: Outbox, number: int) -> Refusal | None:
        """Return the refusal of an event that has to be accepted before ``number``, None if there is none."""
        earliest = self._earliest.get(outbox)
        return None if earliest is None or number <= earliest[0] else earliest[1]

    def has(self, outbox: Outbox) -> bool:
        """Return whether an event of an outbox waits until it is sent again."""
        return outbox in self._earliest

    def sent_again(self, outbox: Outbox, number: int) -> None:
        """Let the events behind ``number`` follow it, if it is the one that they wait for."""
        if self._earliest.get(outbox, (None,))[0] == number:
            del self._earliest[outbox]


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
