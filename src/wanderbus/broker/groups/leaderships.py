"""Leaders of a channel in the order of their epochs, and where each has its events (SPEC J-08, decision 0156).

The order of a channel is that of the epochs, and in each of them that of the offsets in the leader's log.
"""

from __future__ import annotations

from wanderbus.broker.state.rows import GroupRow, LedRange
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.epochs import Leadership
from wanderbus.errors import Refused
from wanderbus.subscription import EVERY_SUBJECT


class Leaderships:
    """Lookup of the leaders of a channel.

    A single server has one without an epoch, and so has ``*``, which is no channel.

    :param channels: the channels of the domain; None if this server is alone
    """

    def __init__(self, state: BrokerState, channels: OwnChannels | None) -> None:
        self._state = state
        self._channels = channels

    def of(self, subject: str) -> tuple[Leadership, ...]:
        """Return all known leaders of the channel of ``subject``; the last one is the present one."""
        if self._channels is None:
            return (Leadership(0, self._state.server),)
        if subject == EVERY_SUBJECT:
            return tuple(Leadership(0, each) for each in self._channels.leaders([subject]))
        place = self._channels.directory.lookup(subject)
        return (*self._row(subject).earlier, Leadership(place.epoch, place.server))

    def under(self, subject: str, epoch: int) -> Leadership | None:
        """Return the leader under ``epoch``, None if it is unknown."""
        return next((each for each in self.of(subject) if each.epoch == epoch), None)

    def before(self, subject: str, epoch: int) -> Leadership | None:
        """Return the last known leader before ``epoch``."""
        return next((each for each in reversed(self.of(subject)) if each.epoch < epoch), None)

    def after(self, subject: str, epoch: int) -> Leadership | None:
        """Return the first known leader after ``epoch``."""
        return next((each for each in self.of(subject) if each.epoch > epoch), None)

    def range_of(self, subject: str, epoch: int) -> LedRange | None:
        """Return where this server has its events of a channel that it led under ``epoch``, None if it did not."""
        row = self._row(subject)
        present = self.of(subject)[-1]
        if (present.epoch, present.server) == (epoch, self._state.server):
            return LedRange(epoch, row.since if row.leader else 0, None)
        return next((each for each in row.led if each.epoch == epoch), None)

    def epoch_at(self, subject: str, offset: int) -> int:
        """Return the last epoch in which this server led a channel that began before ``offset`` of its log.

        It is the first one if none did, and 0 if the server has never led the channel.
        """
        found = [each for led in self.of(subject) if (each := self.range_of(subject, led.epoch)) is not None]
        if not found:
            return 0
        begun = [each for each in found if each.first < offset] or found[:1]
        return begun[-1].epoch

    def check_past(self, subject: str) -> None:
        """Raise :class:`Refused` if a subscription to ``subject`` cannot begin in the past."""
        if (channels := self._channels) is None:
            return
        if channels.decentralised is not None and channels.decentralised.concerns(subject):
            raise Refused(f"since: the earlier events of {subject!r} are in the logs of all servers; subscribe live")
        if subject != EVERY_SUBJECT:
            return
        leaders = channels.leaders([subject])
        if len(leaders) > 1 or channels.have_moved([subject]):
            names = " and ".join(sorted(leaders)) if len(leaders) > 1 else "several servers"
            raise Refused(
                f"since: the earlier events of {subject!r} are in the logs of {names}, without a common order; "
                "subscribe to one subject, or live"
            )

    def _row(self, subject: str) -> GroupRow:
        if self._channels is None or subject == EVERY_SUBJECT:
            return GroupRow()
        return self._state.groups.row(self._channels.directory.groups.group_of(subject))
