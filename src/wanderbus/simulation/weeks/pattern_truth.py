"""Truth about compound events: each pattern is matched again, on the events in the log alone (SPEC T-07)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from wanderbus import protocol
from wanderbus.event import EventId
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.patterns import Pattern, PatternState, compile_pattern
from wanderbus.patterns.state import BEFORE_ALL_US
from wanderbus.patterns.turns import RecordedTurn
from wanderbus.records import Detected, Published
from wanderbus.simulation.weeks.account import Account
from wanderbus.simulation.weeks.deliveries import Decisions, decisions, deliver
from wanderbus.simulation.weeks.stream import NotifiedEvent, name_of
from wanderbus.subscription import PATTERN, Subscription

_AMPLE: Final = BrokerConfig()
"""Bounds that the patterns of the people in a simulation never meet."""

_LATE_US: Final = 5_000_000
"""Time after which a detection must be in the log."""


@dataclass
class FollowedPattern:
    """A pattern since its subscription began to live, matched in memory: nothing of it is ever stored or restored."""

    pattern: Pattern
    state: PatternState
    latest_us: int = BEFORE_ALL_US
    """Latest time of one of its events, not later than the receipt of that event."""

    def watermark_us(self, now_us: int) -> int:
        """Return the time below which no event will come, at ``now_us`` of the broker's clock."""
        is_receipt = self.pattern.declaration.time_source == "receipt"
        return self.pattern.watermark_us(now_us if is_receipt else self.latest_us)

    def take(self, offset: int, record: Published, leaves: int) -> None:
        """Take part of an event."""
        event, at_us, identity = record.event, record.at_us, str(record.acceptance.id)
        if self.pattern.declaration.time_source == "receipt":
            # After a move to a server whose clock is behind, the time of the pattern stands still for a while.
            at_us = max(at_us, self.latest_us, self.state.watermark_us)
        seen = self.pattern.seen(leaves, event.attributes, offset, identity, at_us, event.published_us)
        if seen is not None:
            late_below_us = self.watermark_us(at_us)
            self.state = self.pattern.add(self.state, (seen,), BEFORE_ALL_US, late_below_us=late_below_us)
            self.latest_us = max(self.latest_us, min(seen.time_us, at_us))


@dataclass
class PatternTruth:
    """Follows the patterns of all live subscriptions, and checks what is detected."""

    account: Account
    followed: dict[str, FollowedPattern] = field(default_factory=dict)

    def begin(self, offset: int, subscription: Subscription) -> None:
        """Follow a subscription that begins to live; what it has seen before its end is forgotten."""
        if subscription.language != PATTERN:
            return
        pattern = compile_pattern(subscription.expression)
        self.followed[subscription.id] = FollowedPattern(pattern, pattern.start())
        of_engine = self.account.config.spark_subjects
        for leaf in pattern.leaves:
            if any(fnmatchcase(leaf.subject, each) for each in of_engine):
                self.account.wrong(offset, f"{subscription.id} has a step of {leaf.subject}, which the engine matches")

    def end(self, offset: int, subscription: str, at_us: int) -> None:
        """Check that everything before the end of a subscription was matched."""
        if subscription in self.followed:
            self._check_matched(offset, subscription, at_us + 1)
            del self.followed[subscription]

    def take(self, offset: int, record: Published) -> Iterator[str]:
        """Process an event; yield the patterns that could not take it, which get a gap."""
        steps = dict(record.delivery.steps)
        kept = self._kept()
        for identity, followed in self.followed.items():
            wanted = self.account.known[identity].subscription
            leaves = followed.pattern.leaves_of(record.event.subject, record.event.attributes)
            if not leaves or (wanted.expires_us is not None and wanted.expires_us <= record.at_us):
                continue
            if kept[wanted.owner] >= self.account.config.user_pattern_events_max:
                yield identity
                continue
            if steps.pop(identity, 0) != leaves:
                self.account.wrong(offset, f"the steps are {record.delivery.steps}, those of {identity} {leaves}")
            followed.take(offset, record, leaves)
        if steps:
            self.account.wrong(offset, f"event {name_of(record.event)} has steps {steps}, which it does not match")

    def _kept(self) -> dict[str, int]:
        kept: dict[str, int] = {}
        for identity, followed in self.followed.items():
            owner = self.account.known[identity].subscription.owner
            kept[owner] = kept.get(owner, 0) + followed.state.kept
        return kept

    def detected(self, offset: int, record: Detected) -> int:
        """Check that a pattern was matched as far as its watermark allows, and the delivery of what it detected.

        Return the number of gaps that the record causes.
        """
        account, identity = self.account, record.subscription
        followed = self.followed.get(identity)
        if followed is None:
            account.wrong(offset, f"{identity} has no pattern, or has ended")
            return 0
        if record.watermark_us not in (followed.watermark_us(record.at_us), followed.watermark_us(record.at_us + 1)):
            account.wrong(offset, f"the watermark of {identity} is {record.watermark_us}, too low or too high")
        if record.left_out and not self._may_leave_out:
            account.wrong(offset, f"{identity} had work and room for its events, {record.left_out} were left out")
        wanted = account.known[identity].subscription
        followed.state = followed.pattern.add(followed.state, (), record.watermark_us)
        turn = RecordedTurn(record.steps, record.taken, record.left_out)
        matches = followed.pattern.match(followed.state, turn)
        until_us = wanted.expires_us
        in_time = [each for each in matches if until_us is None or each.at_us < until_us]
        gaps = len(record.events) - len(in_time)
        if not len(record.left_out) <= gaps <= len(record.left_out) + (record.steps is not None and self._may_be_late):
            account.wrong(offset, f"{identity} detected {len(record.events)} times, it should {len(in_time)} times")
        for place, given in enumerate(record.events):
            server = given.id.origin.partition("#")[0]
            due = EventId(f"{server}#{place}" if place else server, given.id.incarnation, offset)
            if (given.id, given.at_us) != (due, record.at_us):
                account.wrong(offset, f"{identity} detected {given}, it should be {due}")
            event, name = protocol.decode_event(bytes(given.event)), f"{offset}#{place}"
            expected: Decisions = ({(wanted.owner, wanted.session): [identity]}, {})
            if place < len(in_time):
                if followed.pattern.detection_work(in_time[place]) <= account.config.pattern_work_max:
                    event = followed.pattern.detection(in_time[place]).to_event()
                    name = str(event["detection"])
                    wall_us = account.happened.walls_us[offset]
                    expected = decisions(account, [identity], event, at_us=record.at_us, wall_us=wall_us)
                    if bytes(given.event) != protocol.encode_event(event):
                        account.wrong(offset, f"{identity} detected {given}, it should {event}")
                else:
                    gaps += 1
            source = NotifiedEvent(due, name, offset, record.at_us, len(bytes(given.event)), event)
            deliver(account, source, given.notified, given.restricted, expected)
        return gaps

    @property
    def _may_leave_out(self) -> bool:
        config = self.account.config
        bounds = (config.pattern_work_max, config.user_pattern_events_max)
        return bounds != (_AMPLE.pattern_work_max, _AMPLE.user_pattern_events_max)

    @property
    def _may_be_late(self) -> bool:
        return self.account.config.user_pattern_work_per_s < _AMPLE.user_pattern_work_per_s

    def finish(self, offset: int, now_us: int) -> None:
        """Check at the end of the log, at ``now_us`` of the broker's clock, that everything was matched in time."""
        for identity in self.followed:
            self._check_matched(offset, identity, now_us - _LATE_US)

    def _check_matched(self, offset: int, identity: str, now_us: int) -> None:
        followed = self.followed[identity]
        if self._may_be_late:
            return
        if (due_us := followed.state.due_us) < followed.watermark_us(now_us):
            self.account.wrong(offset, f"{identity} has not been matched up to {now_us}, though {due_us} is certain")
