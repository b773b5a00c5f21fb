"""Truth about sessions that are over, and about devices that give way at a bound (SPEC J-05, X40)."""

from __future__ import annotations

from dataclasses import dataclass

from wanderbus import records
from wanderbus.simulation.weeks.account import Account, EndedSessions, Member
from wanderbus.simulation.weeks.engine_truth import EngineTruth
from wanderbus.simulation.weeks.stream import Stream


@dataclass
class SessionTruth:
    """Checks that a session is removed only when nobody uses it, and that the right devices give way."""

    account: Account
    engine: EngineTruth

    def forgotten(self, offset: int, record: records.Forgotten) -> None:
        """Check that what waits for a session that is removed, or may still come, is given up only at the bound."""
        for user, name in record.sessions:
            stream = self.account.stream(user, name)
            ended = [k.subscription.id for k in self.account.of_owner(user) if k.subscription.session == name]
            coming = [identity for identity in ended if self.engine.waits_for(identity)]
            if (coming or any(True for _ in stream.queue())) and not self._is_at_bound(user):
                self.account.wrong(offset, f"{user}/{name} is removed below the bound, which holds something")

    def over(self, offset: int, user: str, name: str) -> None:
        """Check a session that is removed, after its ended subscriptions; its counters are added to the user's."""
        stream = self.account.stream(user, name)
        if stream.members:
            self.account.wrong(offset, f"{user}/{name} is removed, {stream.members} are members")
        if self.account.holds_something(stream):
            self.account.wrong(offset, f"{user}/{name} is removed, which holds something")
        self.account.past.setdefault(user, EndedSessions()).add(stream)
        stream.exists = False

    def gives_way(self, offset: int, record: records.Left) -> None:
        """Check that a device gives way only at the bound, while it is away, and before those away for less long."""
        account, config = self.account, self.account.config
        stream = account.stream(record.user, record.session)
        away_us = self._member(record.user, record.device).away_since_us
        if away_us is None:
            account.wrong(offset, f"{record.device} gives way though it is connected")
            return
        match record.reason:
            case "devices_max":
                self._check_longest(offset, record, away_us, [stream])
                is_met = len(stream.members) >= config.devices_max
            case "user_devices_max":
                streams = [each for each in account.streams.values() if each.user == record.user]
                self._check_longest(offset, record, away_us, streams)
                is_met = sum(len(each.members) for each in streams) + 1 >= config.user_devices_max
            case _:
                is_met = self._is_at_bound(record.user)
                if account.holds_something(stream) and not self._is_overdue(stream, record.at_us):
                    account.wrong(offset, f"{stream.name} gives way, which holds something")
        if not is_met:
            account.wrong(offset, f"{record.device} gives way because of {record.reason}, which is not met")

    def _check_longest(self, offset: int, record: records.Left, away_us: int, streams: list[Stream]) -> None:
        for stream in streams:
            may_stay = len(stream.members) == 1 and (self.account.holds_something(stream) or self._may_get(stream))
            for device in stream.members:
                other_us = self._member(stream.user, device).away_since_us
                if other_us is not None and other_us < away_us and not may_stay:
                    self.account.wrong(offset, f"{record.device} gives way, {device} is away for longer")

    def _may_get(self, stream: Stream) -> bool:
        """Return whether the engine has events to match, and the session an ended subscription that they may match."""
        of_user = self.account.of_owner(stream.user)
        is_there = any(k.subscription.session == stream.name and not k.forgotten_us for k in of_user)
        return bool(self.engine.unmatched) and is_there

    def _is_at_bound(self, user: str) -> bool:
        of_user = [each for each in self.account.streams.values() if each.user == user and each.exists]
        return len(of_user) >= self.account.config.sessions_max

    def _is_overdue(self, stream: Stream, at_us: int) -> bool:
        return all(
            self.account.is_overdue(member, at_us)
            for member in (self._member(stream.user, device) for device in stream.members)
        )

    def _member(self, user: str, device: str) -> Member:
        return self.account.devices[user, device]
