"""Truth about devices: who is a member of which session, and what the operator's hook decides."""

from __future__ import annotations

from dataclasses import dataclass

from wanderbus import records
from wanderbus.records import AnyRecord
from wanderbus.simulation.weeks.account import Account, Member
from wanderbus.simulation.weeks.hook import GRACE_S, STALE_S, treatment_of
from wanderbus.simulation.weeks.session_truth import SessionTruth


@dataclass
class DeviceTruth:
    """Follows the devices, and checks why each leaves."""

    account: Account
    sessions: SessionTruth
    _due: type[records.Dropped | records.Left] | None = None
    """Latest decision of the operator's hook, which the next record contains."""
    _treated: tuple[str, str] | None = None
    """User and session of the device that the hook decided about."""

    def take_treated(self, offset: int, record: AnyRecord) -> tuple[str, str] | None:
        """Return the user and session that the hook has just decided about; check that its decision is this record."""
        is_due = isinstance(record, records.Dropped | records.Left) and record.reason == "hook"
        if self._due and not isinstance(record, records.Started) and not (is_due and isinstance(record, self._due)):
            self.account.wrong(offset, f"the hook wanted {self._due.__name__} next")
        treated, self._treated, self._due = self._treated, None, None
        return treated

    def started(self, at_us: int) -> None:
        """Let every device be away, from then on if it was not yet."""
        for member in self.account.devices.values():
            member.away_since_us = at_us if member.away_since_us is None else member.away_since_us

    def status_changed(self, offset: int, record: records.StatusChanged) -> None:
        """Process a status change, about which the hook may have decided (SPEC G-24)."""
        member = self._member(record)
        away_s = 0.0 if member.away_since_us is None else (record.at_us - member.away_since_us) / 1e6
        is_gone = record.status == "DISCONNECTED"
        member.away_since_us = record.at_us if is_gone else None
        member.grace_s = record.grace_s
        treatment = treatment_of(record.user, record.device) if member.session else "always"
        if record.grace_s != (GRACE_S if is_gone and treatment == "grace" else None):
            self.account.wrong(offset, f"the grace of {record.device} is {record.grace_s}, for {treatment}")
        stream = self.account.stream(record.user, member.session)
        if treatment == "leave" and is_gone and not self.account.is_away(record.user):
            self._treated, self._due = (record.user, member.session), records.Left
        if treatment == "drop" and (is_gone or away_s > STALE_S):
            self._treated = record.user, member.session
            self._due = records.Dropped if stream.members == [record.device] and stream.queued else None

    def _member(self, record: records.StatusChanged | records.Attached) -> Member:
        return self.account.devices.setdefault((record.user, record.device), Member(away_since_us=record.at_us))

    def attached(self, record: records.Attached) -> None:
        """Let a device be a member of a session, to which everything is owed that waits there."""
        self.account.gone.discard((record.user, record.device))
        member = self._member(record)
        stream = self.account.stream(record.user, record.session)
        if member.session != record.session:
            self._leave(record.user, member.session, record.device)
        elif (record.user, record.device, record.epoch) not in self.account.begun:
            self.account.begun[record.user, record.device, record.epoch] = {}
        if not stream.exists:
            past = self.account.past.get(record.user)
            stream.begin(1 if past is None else past.next)
        if record.device not in stream.members:
            stream.join(record.device)
            self.account.joined.add((record.user, record.device, record.epoch))
            self.account.begun.setdefault((record.user, record.device, record.epoch), dict(stream.taken))
            self.account.owed[record.user, record.device] = {
                (identity, entry.number)
                for entry in stream.queue()
                for identity in entry.waiting
                if entry.matches[identity] in (None, record.device)
                and (entry.matches[identity] or entry.number > stream.taken.get(identity, 0))
            }
        member.session = record.session
        member.discards = (record.user, record.device, record.epoch) in self.account.happened.discarding

    def left(self, offset: int, record: records.Left, treated: tuple[str, str] | None) -> None:
        """Check why a device left its session."""
        key = (record.user, record.device)
        if record.reason == "hook" and treated != (record.user, record.session):
            self.account.wrong(offset, f"{record.device} had to leave, which the hook does not want")
        if record.reason.endswith("_max"):
            self.sessions.gives_way(offset, record)
        member = self.account.devices.pop(key)
        stream = self.account.streams.get((record.user, record.session))
        if record.reason == "asked":
            self.account.gone.add(key)
        if record.reason == "asked" and key not in self.account.happened.left:
            self.account.wrong(offset, f"{record.device} left without having asked to")
        if record.reason == "kicked" and record.user not in self.account.happened.kickers:
            self.account.wrong(offset, f"{record.device} was kicked, which nobody had asked for")
        if record.reason == "grace":
            if not self.account.is_overdue(member, record.at_us):
                self.account.wrong(offset, f"{record.device} has left before the end of its grace")
            if stream and stream.members == [record.device] and self.account.holds_something(stream):
                self.account.wrong(offset, f"the last device {record.device} has left by grace")
        self._leave(record.user, record.session, record.device)

    def _leave(self, user: str, session: str, device: str) -> None:
        stream = self.account.streams.get((user, session))
        if stream:
            stream.leave(device)
            self.account.owed.pop((user, device), None)
