"""Truth about the events that a matching engine matches: each belongs to the subscriptions of its own moment (T-06)."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from wanderbus.records import Delivery, Matched, MatchedEvent, Published, Unsubscribed
from wanderbus.simulation.weeks.account import Account
from wanderbus.simulation.weeks.deliveries import decisions, deliver, matching
from wanderbus.simulation.weeks.stream import NotifiedEvent, name_of
from wanderbus.subscription import Restriction


@dataclass
class Unmatched:
    """An event that waits for the engine."""

    record: Published
    wall_us: int
    matches: dict[str, str]
    """Subscriptions that were live and matched when it was accepted, each with the device that has given it up."""
    restrictions: dict[str, tuple[Restriction, ...]]
    """Their restrictions then."""


@dataclass
class EngineTruth:
    """Follows what the engine has to match, and checks what is delivered of it."""

    account: Account
    unmatched: dict[int, Unmatched] = field(default_factory=dict)
    """Events that wait, by offset."""
    _next: int = 0

    def is_for_engine(self, subject: str) -> bool:
        """Return whether the engine matches the events of a subject."""
        return any(fnmatchcase(subject, pattern) for pattern in self.account.config.spark_subjects)

    def accept(self, offset: int, record: Published) -> None:
        """Remember which subscriptions get an accepted event, whenever the engine will match it."""
        if record.delivery != Delivery():
            self.account.wrong(offset, f"event {name_of(record.event)} is for the engine, and yet delivered at once")
        matches = dict.fromkeys(matching(self.account, record.event, record.at_us), "")
        restrictions = {each: self.account.known[each].subscription.restrictions for each in matches}
        self.unmatched[offset] = Unmatched(record, self.account.happened.walls_us[offset], matches, restrictions)

    def end(self, record: Unsubscribed) -> None:
        """Let the device that has given up an ended subscription not get its events; others still do (SPEC X20)."""
        account, device = self.account, record.abandoned_by
        if not device:
            return
        wanted = account.known[record.subscription].subscription
        is_alone = account.stream(wanted.owner, wanted.session).members == [device] or wanted.device == device
        for each in self.unmatched.values():
            for identity in [s for s in each.matches if account.present(s) == record.subscription]:
                if is_alone:
                    del each.matches[identity]
                else:
                    each.matches[identity] = device

    def waits_for(self, subscription: str) -> list[int]:
        """Return the offsets of events that the engine has yet to match for a subscription."""
        return [offset for offset, each in self.unmatched.items() if subscription in each.matches]

    def matched(self, offset: int, record: Matched) -> None:
        """Check that all events below the watermark are delivered as of their own moment, in order."""
        if not self._next <= record.next <= offset:
            self.account.wrong(offset, f"the watermark of the engine goes from {self._next} to {record.next}")
        self._next = record.next
        numbers = [each.id.number for each in record.events]
        if numbers != sorted(set(numbers)):
            self.account.wrong(offset, f"the engine's events {numbers} are not in order")
        delivered = {each.id.number: each for each in record.events}
        for place in [place for place in self.unmatched if place < record.next]:
            self._deliver(offset, self.unmatched.pop(place), delivered.pop(place, None))
        for place in delivered:
            self.account.wrong(offset, f"event {place} was delivered again, or is not for the engine")

    def _deliver(self, offset: int, waited: Unmatched, delivered: MatchedEvent | None) -> None:
        account, record = self.account, waited.record
        left = {s: device for s, device in waited.matches.items() if not account.known[s].forgotten_us}
        successors = {account.present(s): device for s, device in left.items()}
        held = {account.present(s): waited.restrictions[s] for s in left}
        expected = decisions(account, successors, record.event, at_us=record.at_us, wall_us=waited.wall_us, held=held)
        source = NotifiedEvent.of(record, offset)
        notified, restricted = (delivered.notified, delivered.restricted) if delivered else ((), ())
        if delivered and (delivered.id, delivered.at_us, bytes(delivered.event)) != (
            *(source.id, source.at_us, bytes(record.acceptance.event)),
        ):
            account.wrong(offset, f"event {source.name} was changed to {delivered}")
        for each in notified:
            for identity in each.subscriptions:
                if device := successors.get(identity):
                    account.given_up.add((each.user, device, identity, each.number))
        deliver(account, source, notified, restricted, expected)

    def finish(self) -> None:
        """Check at the end of the log that no event still waits for the engine."""
        for offset, each in self.unmatched.items():
            if left := [s for s in each.matches if not self.account.known[s].forgotten_us]:
                self.account.wrong(offset, f"the engine never matched event {name_of(each.record.event)} for {left}")
