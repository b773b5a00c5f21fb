"""Reference model of a log of records for Alice's session: what the log means, and whether it is valid.

It keeps one list of numbers for each subscription. It uses only the records of the broker and none of its code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tests.broker.desk import ALICE
from wanderbus import records
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import AnyRecord
from wanderbus.subscription import Frequency, QueuePolicy, Subscription

SECOND_US = 1_000_000


class Model:
    def __init__(self, config: BrokerConfig, log: Iterable[AnyRecord]) -> None:
        self.config = config
        self.known: dict[str, Subscription] = {}
        self.live: dict[str, None] = {}
        self.last_us: dict[str, int] = {}
        """Time of the last generated notification, by subscription."""
        self.coming: dict[int, tuple[records.Published, set[str]]] = {}
        """Events that the engine has not matched, with the subscriptions that are to get them, by offset."""
        self.members: list[str] = []
        self.cursors: dict[tuple[str, str], int] = {}
        """Highest number that a member has taken, by subscription and member."""
        self.meant: dict[int, set[str]] = {}
        """Subscriptions that a number was meant for, by number, for all numbers so far."""
        self.published: dict[int, tuple[object, int]] = {}
        """The event's N and its time of publication, by number."""
        self.waiting: dict[str, list[int]] = {}
        """The waiting numbers, by subscription."""
        self.heirs: dict[str, str] = {}
        """The heir of each ended subscription that has one."""
        self.delivered = self.restricted = 0
        self.dropped: Counter[str] = Counter()
        for offset, record in enumerate(log):
            self.apply(offset, record)

    def apply(self, offset: int, record: AnyRecord) -> None:
        match record:
            case records.Subscribed(subscription=subscription, inherits=inherits):
                self.known[subscription.id], self.live[subscription.id] = subscription, None
                self.waiting[subscription.id] = []
                if inherits is not None:
                    self.inherit(inherits, subscription.id)
            case records.Unsubscribed(subscription=identity, abandoned_by=device):
                del self.live[identity]
                if device and (self.members == [device] or self.known[identity].device == device):
                    for _, wanted in self.coming.values():
                        wanted -= {each for each in wanted if self.present(each) == identity}
            case records.Published() if record.engine:
                assert record.delivery == records.Delivery()
                self.coming[offset] = record, self.matched(record)
            case records.Published():
                self.generate(record, self.matched(record), record.delivery)
            case records.Matched():
                self.match(record)
            case records.Dropped():
                self.drop(record)
            case records.Attached(user=user, device=device) if user == ALICE:
                if device not in self.members:
                    self.members.append(device)
                self.trim()
            case records.Acknowledged(user=user) if user == ALICE:
                self.take(record)
            case records.Left(user=user, device=device) if user == ALICE:
                if device in self.members:
                    self.members.remove(device)
                self.cursors = {key: number for key, number in self.cursors.items() if key[1] != device}
                self.trim()

    def inherit(self, ended: str, heir: str) -> None:
        assert ended not in self.live
        old, new = self.known[ended], self.known[heir]
        assert (old.expression, old.device, old.queue) == (new.expression, new.device, new.queue)
        self.waiting[heir], self.waiting[ended] = self.waiting[ended], []
        for member in self.members:
            if (number := self.cursors.pop((ended, member), None)) is not None:
                self.cursors[heir, member] = number
        self.heirs[ended] = heir

    def take(self, record: records.Acknowledged) -> None:
        assert record.device in self.members
        for identity in record.subscriptions or self.waiting:
            before = self.cursors.get((identity, record.device), 0)
            self.cursors[identity, record.device] = max(before, record.number)
        self.trim()

    def matched(self, record: records.Published) -> set[str]:
        """The live subscriptions that an event matches."""
        return {s for s in self.live if self.known[s].expression.split()[0] in record.event.attributes}

    def match(self, record: records.Matched) -> None:
        """The engine has matched all events below an offset; some of them were for nobody (SPEC T-06)."""
        named = {each.id.number: each for each in record.events}
        assert list(named) == sorted(named)
        assert named.keys() <= self.coming.keys(), "an event is matched once"
        for offset in [each for each in self.coming if each < record.next]:
            published, matched = self.coming.pop(offset)
            each = named.get(offset)
            delivery = records.Delivery(each.notified, each.restricted) if each is not None else records.Delivery()
            self.generate(published, {self.present(identity) for identity in matched}, delivery)
        assert not named.keys() & self.coming.keys(), "it is below the watermark"

    def present(self, subscription: str) -> str:
        """The subscription that inherited the queue of ``subscription``, or ``subscription`` itself."""
        while subscription in self.heirs:
            subscription = self.heirs[subscription]
        return subscription

    def generate(self, record: records.Published, matched: set[str], delivery: records.Delivery) -> None:
        """Restrictions decide, and time counts from the last notification that was generated (SPEC H-11)."""
        restricted = {s for s in matched if self.too_soon(s, record.at_us)}
        assert {s for s, _ in delivery.restricted} == restricted
        self.restricted += len(restricted)
        if not matched - restricted:
            assert delivery.notified == ()
            return
        (notified,) = delivery.notified
        assert notified.number == len(self.meant) + 1
        assert set(notified.subscriptions) == matched - restricted
        self.meant[notified.number] = set(notified.subscriptions)
        for identity in notified.subscriptions:
            self.waiting[identity].append(notified.number)
        self.published[notified.number] = record.event["N"], record.at_us
        self.last_us |= dict.fromkeys(notified.subscriptions, record.at_us)
        self.trim()

    def too_soon(self, subscription: str, now_us: int) -> bool:
        last_us = self.last_us.get(subscription)
        periods_us = [r.period_s * 1e6 for r in self.known[subscription].restrictions if isinstance(r, Frequency)]
        return last_us is not None and any(now_us - last_us < period_us for period_us in periods_us)

    def entries(self) -> set[int]:
        """The numbers that wait for anybody."""
        return {number for waiting in self.waiting.values() for number in waiting}

    def drop(self, record: records.Dropped) -> None:
        of = list(record.subscriptions or self.known)
        gone = {s: [n for n in self.waiting[s] if record.first <= n <= record.last] for s in of}
        assert any(gone.values()), "a drop drops something"
        self.justify(record, {s: numbers for s, numbers in gone.items() if numbers})
        for identity, numbers in gone.items():
            self.dropped[record.reason] += len(numbers)
            self.waiting[identity] = [n for n in self.waiting[identity] if n not in numbers]

    def justify(self, record: records.Dropped, gone: Mapping[str, Sequence[int]]) -> None:
        """A bound was met, and the right one gives way for it (SPEC G-15 to G-18, G-25, U-02)."""
        reason = record.reason.removeprefix("subscription.")
        for identity, numbers in gone.items():
            own = reason != record.reason
            policy = self.known[identity].queue if own else self.config.queue
            waiting = self.waiting[identity]
            newest = ((policy.when_full if own else None) or self.config.queue.when_full) == "drop_newest"
            match reason:
                case "queue.notifications_max":
                    assert policy.notifications_max is not None
                    assert (len(waiting) if own else len(self.entries())) > policy.notifications_max
                    longest = max(self.waiting.values(), key=len)
                    ends = {s: self.waiting[s][-1 if newest else 0] for s in gone}
                    right = [identity] if own else [s for s in gone if len(self.waiting[s]) == len(longest)]
                    assert any(numbers == [ends[s]] for s in right), "it is the end of a longest queue that gives way"
                    assert own or 2 * len(waiting) >= len(longest), "a short queue does not give way to a long one"
                case "queue.age_max_s":
                    assert numbers[0] == waiting[0]
                    assert all(self.too_old(policy, number, record.at_us) for number in numbers)
                case "discarded" | "unsubscribed":
                    assert numbers == waiting
                case _:
                    raise AssertionError(record.reason)

    def too_old(self, policy: QueuePolicy, number: int, now_us: int) -> bool:
        return policy.age_max_s is not None and now_us - self.published[number][1] > policy.age_max_s * SECOND_US

    def trim(self) -> None:
        """Count a number as delivered once all its members have taken it; count it as dropped once no member can take
        it.
        """
        for identity, waiting in self.waiting.items():
            bound_to = self.known[identity].device
            concerned = [member for member in self.members if bound_to in (None, member)]
            if self.members and not concerned:
                self.dropped["device_left"] += len(waiting)
                self.waiting[identity] = []
            elif concerned:
                taken = min(self.cursors.get((identity, member), 0) for member in concerned)
                self.delivered += sum(number <= taken for number in waiting)
                self.waiting[identity] = [number for number in waiting if number > taken]

    def is_for(self, number: int, device: str) -> set[str]:
        """Subscriptions that a number was meant for, among those that concern a device (SPEC E-05)."""
        return {s for s in self.meant[number] if self.known[s].device in (None, device)}
