"""What a log of records means for Alice's session, by the plainest reading of the words, and whether it may be so.

It keeps one list of subscriptions for each number. Of the broker it knows nothing but the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.broker.desk import ALICE
from wanderbus import records
from wanderbus.broker.config import BrokerConfig
from wanderbus.records import AnyRecord
from wanderbus.subscription import Frequency, QueuePolicy, Subscription

SECOND_US = 1_000_000


class Model:
    def __init__(self, config: BrokerConfig, log: Iterable[AnyRecord]) -> None:
        self.config = config
        self.known: dict[str, Subscription] = {}
        self.live: dict[str, int | None] = {}
        """Of each live subscription, when it last generated a notification."""
        self.cursors: dict[str, int] = {}
        """Of each member."""
        self.meant: dict[int, set[str]] = {}
        """Of every number there ever was: for whom it was."""
        self.published: dict[int, tuple[object, int]] = {}
        """Of every number: the event's N, and when."""
        self.waiting: dict[int, set[str]] = {}
        """Of every number still in the queue: for whom it waits; empty in a gap."""
        self.delivered = self.restricted = 0
        self.dropped: Counter[str] = Counter()
        for record in log:
            self.apply(record)

    def apply(self, record: AnyRecord) -> None:
        match record:
            case records.Subscribed(subscription=subscription):
                self.known[subscription.id], self.live[subscription.id] = subscription, None
            case records.Unsubscribed(subscription=identity):
                del self.live[identity]
            case records.Published():
                self.generate(record)
            case records.Dropped():
                self.drop(record)
            case records.Attached(user=user, device=device) if user == ALICE:
                self.cursors.setdefault(device, min(self.waiting, default=len(self.meant) + 1) - 1)
            case records.Took(user=user, device=device, number=number) if user == ALICE:
                self.cursors[device] = max(self.cursors[device], number)
                self.trim()
            case records.Left(user=user, device=device) if user == ALICE:
                self.cursors.pop(device, None)
                self.trim()

    def generate(self, record: records.Published) -> None:
        """Restrictions decide, and time counts from the last notification that was generated (SPEC H-11)."""
        matched = {s for s in self.live if self.known[s].expression.split()[0] in record.event.attributes}
        restricted = {s for s in matched if self.too_soon(s, record.at_us)}
        assert {s for s, _ in record.restricted} == restricted
        self.restricted += len(restricted)
        if not matched - restricted:
            assert record.notified == ()
            return
        (notified,) = record.notified
        assert notified.number == len(self.meant) + 1
        assert set(notified.subscriptions) == matched - restricted
        self.meant[notified.number] = set(notified.subscriptions)
        self.waiting[notified.number] = set(notified.subscriptions)
        self.published[notified.number] = record.event["N"], record.at_us
        self.live |= dict.fromkeys(notified.subscriptions, record.at_us)

    def too_soon(self, subscription: str, now_us: int) -> bool:
        last_us = self.live[subscription]
        periods_us = [r.period_s * 1e6 for r in self.known[subscription].restrictions if isinstance(r, Frequency)]
        return last_us is not None and any(now_us - last_us < period_us for period_us in periods_us)

    def drop(self, record: records.Dropped) -> None:
        numbers = [n for n in range(record.first, record.last + 1) if self.waiting.get(n)]
        of = set(record.subscriptions) or set(self.known)
        assert any(self.waiting[n] & of for n in numbers), "a drop drops something"
        self.justify(record, numbers, of)
        for number in numbers:
            self.dropped[record.reason] += len(self.waiting[number] & of)
            self.waiting[number] -= of

    def justify(self, record: records.Dropped, numbers: Sequence[int], of: set[str]) -> None:
        """A bound was met, and the right one gives way for it (SPEC G-15 to G-18, U-02)."""
        if record.reason.startswith("subscription."):
            for each in record.subscriptions:
                self.justify_by(self.known[each].queue, record, numbers, {each})
        else:
            self.justify_by(self.config.queue, record, numbers, of)

    def justify_by(self, policy: QueuePolicy, record: records.Dropped, numbers: Sequence[int], of: set[str]) -> None:
        bound = record.reason.rpartition(".")[2]
        concerned = [n for n, waiting in self.waiting.items() if waiting & of]
        match bound:
            case "notifications_max":
                assert policy.notifications_max is not None
                assert len(concerned) > policy.notifications_max
                newest = (policy.when_full or self.config.queue.when_full) == "drop_newest"
                assert numbers == [concerned[-1 if newest else 0]]
            case "age_max_s":
                assert record.first == concerned[0]
                for number in numbers:
                    assert not self.waiting[number] & of or self.too_old(policy, number, record.at_us)
            case "discarded":
                assert record.last == len(self.meant)
            case _:
                raise AssertionError(record.reason)

    def too_old(self, policy: QueuePolicy, number: int, now_us: int) -> bool:
        return policy.age_max_s is not None and now_us - self.published[number][1] > policy.age_max_s * SECOND_US

    def trim(self) -> None:
        """What every member has passed is gone; a gap goes as a whole."""
        taken = min(self.cursors.values(), default=0)
        while self.waiting:
            first = last = min(self.waiting)
            while not self.waiting[first] and self.waiting.get(last + 1) == set():
                last += 1
            if last > taken:
                return
            for number in range(first, last + 1):
                for subscription in self.waiting.pop(number):
                    if self.known[subscription].device in (None, *self.cursors):
                        self.delivered += 1
                    else:
                        self.dropped["device_left"] += 1

    def is_for(self, number: int, device: str) -> set[str]:
        """For whom a number was, of those that concern a device (SPEC E-05)."""
        return {s for s in self.meant[number] if self.known[s].device in (None, device)}
