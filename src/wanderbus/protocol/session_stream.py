"""The numbered stream of a session, as its broker has described it last to an agent or a server (decision 0108)."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from wanderbus.epochs import EPOCHS_MAX, Epochs, epoch_of, in_common
from wanderbus.errors import EventError
from wanderbus.event import EventId, Position
from wanderbus.protocol import Attachment
from wanderbus.subscription import Subscription

SEEN_MAX: Final = 8
"""Most ids that an attachment names."""


class SessionStream:
    """Epochs of the session's numbers, and what its reader knows of the log: the evidence if that is rolled back."""

    def __init__(self) -> None:
        self._epochs: Epochs = ()
        self.received = 0
        """Highest number that has arrived."""
        self._seen: dict[str, EventId] = {}
        """Highest id that each server has confirmed."""

    @property
    def is_known(self) -> bool:
        """Return whether the broker has described the stream."""
        return bool(self._epochs)

    @property
    def last(self) -> Position | None:
        """Return the position of the highest number that has arrived."""
        return self.position(self.received) if self.received else None

    @property
    def seen(self) -> tuple[EventId, ...]:
        """Return the highest id that each server has confirmed."""
        return tuple(self._seen.values())

    def position(self, number: int) -> Position:
        """Return the position of a number."""
        return Position(epoch_of(self._epochs, number), number)

    def number(self, position: Position | None) -> int:
        """Return the highest number up to ``position`` that is the same in this stream; 0 without a position."""
        if position is None or not self._epochs:
            return 0
        return in_common(self._epochs, position.epoch, position.number)

    def arrived(self, number: int) -> None:
        """Note that a number has arrived."""
        self.received = max(self.received, number)

    def confirmed(self, identity: EventId) -> None:
        """Note that a server has confirmed an event."""
        known = self._seen.get(identity.origin)
        if identity.origin and (known is None or known < identity):
            self._seen.pop(identity.origin, None)
            self._seen[identity.origin] = identity
            if len(self._seen) > SEEN_MAX:
                del self._seen[next(iter(self._seen))]

    def subscribed(self, subscription: Subscription) -> None:
        """Note that the broker has confirmed a subscription."""
        with suppress(EventError):  # a broker may name them as it likes
            self.confirmed(EventId.parse(subscription.id))

    def replaced_by(self, attachment: Attachment) -> Former:
        """Take over the stream that the broker describes now; return the one before."""
        former = Former(self._epochs, self)
        self._epochs = (*attachment.earlier, (attachment.epoch, attachment.first))[-EPOCHS_MAX:]
        self.received = former.in_common(self.received)
        return former


class Former:
    """The stream before the present one."""

    def __init__(self, epochs: Epochs, present: SessionStream) -> None:
        self._epochs = epochs
        self._present = present

    def in_common(self, number: int) -> int:
        """Return the highest number up to ``number`` that means the same in both streams."""
        if not number or not self._epochs:
            return 0
        return self._present.number(Position(epoch_of(self._epochs, number), number))
