"""Reference model of a log of records for Alice's session: what the log means, and whether it is valid.

It keeps one list of numbers for each subscription. It uses only the records of the broker and none of its code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tests.broker.desk import ALICE
from wanderbus import records
from wanderbus.broker.state.drops import drops_of
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import AnyRecord
from wanderbus.subscription import Frequency, QueuePolicy, Subscription

SECOND_US = 1_000_000


class Model:
    def __init__(self, config: BrokerConfig, log: Iterable[AnyRecord]) -> None:
        self.config = config
        self.known: dict[str, Subscription] = {}
        self.live: dict[str, None] = {}
        self.holders: dict[str, tuple[str, ...]] = {}
        """Devices of each subscription that is not kept: it ends with the last of them."""
        self.last_us: dict[str, int] = {}
        """Time of the last generated notification, by subscription."""
        self.coming: dict[int, tuple[records.Published, set[str]]] = {}
        """Events that the engine has not matched, with the subscriptions that are to get them, by offset."""
        self.members: list[str] = []
        self.cursors: dict[tuple[str, str], int] = {}
        """Highest number that a member has taken, by subscription and member."""
        self.taken: dict[str, int] = {}
        """Highest number that any device has taken, by subscription."""
        self.meant: dict[int, set[str]] = {}
        """Subscriptions that a number was meant for, by number, for all numbers so far."""
        self.published: dict[int, tuple[object, int]] = {}
        """The event's N and its time of publication, by number."""
        self.waiting: dict[str, list[int]] = {}
        """The waiting numbers, by subscription."""
        self.successors: dict[str, str] = {}
        """The successor of each ended subscription that has one."""
        self.exists = False
        """True while there is a session: from the first device until it is over."""
        self.is_due = False
        """True if the session has to end now, since its last device has left and it holds nothing."""
        self.generated = self.delivered = self.restricted = 0
        self.dropped: Counter[str] = Counter()
        self.past: Counter[str] = Counter()
        """Sum of these counters in the sessions that are over; those of drops by reason."""
        for offset, record in enumerate(log):
            self.apply(offset, record)

    def apply(self, offset: int, record: AnyRecord) -> None:
        match record:
            case records.Subscribed(subscription=subscription, inherits=inherits):
                self.known[subscription.id], self.live[subscription.id] = subscription, None
                self.waiting[subscription.id] = []
                if record.holder:
                    assert record.holder in self.members
                    self.holders[subscription.id] = (record.holder,)
                if inherits is not None:
                    self.inherit(inherits, subscription.id)
            case records.Changed(subscription=subscription) if subscription.id not in self.live:
                self.revive(subscription.id, record.holders or ())
            case records.Changed(subscription=subscription) if record.holders is not None:
                self.change_holders(subscription.id, record.holders)
            case records.Unsubscribed(subscription=identity, abandoned_by=device):
                del self.live[identity]
                holders = self.holders.pop(identity, ())
                if record.reason == "left_behind":
                    self.leave_behind(holders, record)
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
            case records.Attached(user=user) if user == ALICE:
                self.attach(record)
            case records.Acknowledged(user=user) if user == ALICE:
                self.take(record)
            case records.Left(user=user, device=device, reason=reason) if user == ALICE:
                if device in self.members:
                    self.members.remove(device)
                self.cursors = {key: number for key, number in self.cursors.items() if key[1] != device}
                self.trim()
                # The broker cannot know that what it has not matched is for nobody.
                self.is_due = reason == "asked" and self.is_over() and not self.coming
            case records.Forgotten(sessions=sessions) if (ALICE, "default") in sessions:
                self.end()
            case records.Started():
                self.is_due = False  # it may have stopped in between; then the session ends with its subscriptions
        for drop in drops_of(record):
            self.drop(drop)

    def attach(self, record: records.Attached) -> None:
        """Let a new member begin behind what any device has taken; a bound subscription has one device (SPEC G-07)."""
        self.exists = True
        if record.device not in self.members:
            self.members.append(record.device)
            given = dict(record.taken)
            for identity, waiting in self.waiting.items():
                taken = self.taken.get(identity, 0) if self.known[identity].device is None else 0
                assert [n > taken for n in waiting] == [n > given.get(identity, 0) for n in waiting]
                self.cursors[identity, record.device] = taken
        else:
            assert not record.taken
        self.trim()

    def revive(self, identity: str, holders: tuple[str, ...]) -> None:
        """An ended subscription lives again, unless an equal one lives or has its queue (SPEC X21)."""
        assert self.present(identity) == identity
        wanted = self.known[identity]
        alike = [self.known[each] for each in self.live if self.known[each].expression == wanted.expression]
        assert wanted.device not in [each.device for each in alike]
        self.live[identity] = None
        if holders:
            self.holders[identity] = holders

    def change_holders(self, identity: str, holders: tuple[str, ...]) -> None:
        """Another device holds a subscription too, one of several holders has gone, or it is kept from now on."""
        before = self.holders.pop(identity, ())
        assert before, "one that is kept stays so"
        gone = [each for each in before if each not in self.members]
        assert set(holders) - set(before) <= set(self.members)
        assert not gone or holders == tuple(each for each in before if each not in gone)
        if holders:
            self.holders[identity] = holders

    def leave_behind(self, holders: tuple[str, ...], record: records.Unsubscribed) -> None:
        """The last holder is no member any more, or the last member and away; it abandons what it will not read."""
        (holder,) = holders
        if holder in self.members:
            assert self.members == [holder]
            assert record.abandoned_by == ""
        else:
            assert record.abandoned_by == holder

    def left_behind(self) -> list[str]:
        """The subscriptions that have to end, since none of their holders is a member."""
        return [each for each, holders in self.holders.items() if not set(holders) & set(self.members)]

    def is_over(self) -> bool:
        """Return whether nobody is there, and nothing waits or can come (SPEC J-05)."""
        coming = any(wanted for _, wanted in self.coming.values())
        return not (self.members or self.live or self.entries() or coming)

    def end(self) -> None:
        """End the session; the next one counts from 0, and its numbers continue."""
        assert self.exists
        assert self.is_over()
        counts = {"generated": self.generated, "delivered": self.delivered, "restricted": self.restricted}
        self.past += Counter(self.dropped, **counts)
        self.generated = self.delivered = self.restricted = 0
        self.dropped.clear()
        self.exists = self.is_due = False

    def inherit(self, ended: str, successor: str) -> None:
        assert ended not in self.live
        old, new = self.known[ended], self.known[successor]
        assert (old.expression, old.device, old.queue) == (new.expression, new.device, new.queue)
        self.waiting[successor], self.waiting[ended] = self.waiting[ended], []
        for member in self.members:
            if (number := self.cursors.pop((ended, member), None)) is not None:
                self.cursors[successor, member] = number
        if (number := self.taken.pop(ended, None)) is not None:
            self.taken[successor] = number
        self.successors[ended] = successor

    def take(self, record: records.Acknowledged) -> None:
        assert record.device in self.members
        for identity in record.subscriptions or self.waiting:
            before = self.cursors.get((identity, record.device), 0)
            self.cursors[identity, record.device] = max(before, record.number)
            self.taken[identity] = max(self.taken.get(identity, 0), record.number)
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
        while subscription in self.successors:
            subscription = self.successors[subscription]
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
        self.generated += len(notified.subscriptions)
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
