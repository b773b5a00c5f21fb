"""Truth about positions: a device acknowledges only what its application has consumed, or has given up."""

from __future__ import annotations

from dataclasses import dataclass, field

from wanderbus import records
from wanderbus.simulation.weeks.account import Account


@dataclass
class PositionTruth:
    """Follows the positions of the devices in their subscriptions."""

    account: Account
    _acknowledgements: list[tuple[int, records.Acknowledged, str, int]] = field(default_factory=list)
    """Offset, record, subscription, and the earlier position of the device in it."""

    def acknowledged(self, offset: int, record: records.Acknowledged) -> None:
        """Move the position of a device in the named subscriptions, or in all for which something waits."""
        stream = self.account.stream(record.user, record.session)
        if record.device not in stream.members:
            self.account.wrong(offset, f"{record.device} acknowledged a subscription of which it is not a member")
            return
        waiting = {identity: None for entry in stream.queue() for identity in entry.waiting}
        discards = self.account.devices[record.user, record.device].discards
        owed = self.account.owed.setdefault((record.user, record.device), set())
        for identity in record.subscriptions or waiting:
            place = stream.places.get((identity, record.device), 0)
            given_up = discards or (record.user, record.device, identity, record.number) in self.account.given_up
            if given_up:
                owed -= {(s, number) for s, number in owed if s == identity and number <= record.number}
            elif identity not in self.account.happened.unsubscribed:
                self._acknowledgements.append((offset, record, identity, place))
            stream.places[identity, record.device] = max(place, record.number)
            if identity in waiting and self.account.known[identity].subscription.device is None:
                stream.taken[identity] = max(stream.taken.get(identity, 0), record.number)
        if discards:
            owed -= {(s, number) for s, number in owed if self._is_for(s, record) and number <= record.number}
        stream.trim()

    def _is_for(self, identity: str, record: records.Acknowledged) -> bool:
        subscription = self.account.known[identity].subscription
        named = not record.subscriptions or identity in record.subscriptions
        return named and subscription.session == record.session

    def finish(self) -> None:
        """Check that applications consumed what was acknowledged; by now all successors are known."""
        for offset, record, identity, place in self._acknowledgements:
            stream = self.account.stream(record.user, record.session)
            taken = self.account.has_taken(record.user, record.device, identity)
            for number in range(max(place, taken) + 1, min(record.number, stream.next - 1) + 1):
                entry = stream.entries.get(number)  # other sessions of the user may have used the number
                if entry is not None and identity in entry.subscriptions_on(record.device):
                    self.account.wrong(
                        offset, f"{record.device} did not consume {number} of {identity}, which was acknowledged"
                    )
