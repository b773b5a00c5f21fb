"""Checks of every history of weeks: each match is delivered, waits, or is reported as lost; nothing else is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from wanderbus import protocol
from wanderbus.broker.state.rows import PastSessions, session_key
from wanderbus.event import Gap, Notification
from wanderbus.records import AnyRecord, Published
from wanderbus.simulation.weeks.account import Happened
from wanderbus.simulation.weeks.device import WeeksDevice
from wanderbus.simulation.weeks.life import ApplicationLife, Received
from wanderbus.simulation.weeks.server import WeeksServer
from wanderbus.simulation.weeks.stream import Stream, name_of
from wanderbus.simulation.weeks.truth import Truth

_NEWS_US: Final = 5_000_000
"""Age from which a decision must have arrived; a younger one may still be in flight at the end."""

_UNMARKED: Final = frozenset({"device_left", "forgotten"})
"""Reasons of drops that leave no gap: nobody is left to be notified."""

_UNREPORTED: Final = _UNMARKED | {"discarded", "unsubscribed"}
"""Reasons of drops of which a device need not be notified: it requested them, or could not be reached."""

Seen = dict[str, dict[int, set[str]]]
"""Names under which each number was consumed in earlier lives, by subscription."""

_HELD_S: Final = 1.0
"""Bound of the time that a notification waits for the disk before it is sent."""


def check_weeks(server: WeeksServer, devices: Sequence[WeeksDevice]) -> list[str]:
    """Return one line for every broken promise in the finished world."""
    log = server.disk.records()
    truth = Truth(server.config, _history(server, devices))
    truth.fold(log, server.broker.state.wall_us)
    problems = [*server.problems, *server.watch.problems, *truth.problems, *server.check_rows()]
    problems += _check_counters(server, truth)
    problems += _check_growth(server, truth)
    problems += _check_ages(server, truth, log)
    for device in devices:
        found = [*device.problems, *_check_publishes(device, log, truth), *_check_streams(server, device, log, truth)]
        problems += [f"{device.user} {device.name}: {problem}" for problem in found]
    return problems


def _history(server: WeeksServer, devices: Sequence[WeeksDevice]) -> Happened:
    fresh = {(d.user, d.name, life.epoch) for d in devices for life in d.lives if not life.keep}
    taken = {(d.user, d.name, session): number for d in devices for session, number in d.taken.items()}
    left = {(d.user, d.name) for d in devices if d.leaves}
    purgers = {d.user for d in devices if d.purges}
    kickers = {d.user for d in devices if d.kicks}
    unsubscribed = {identity for d in devices for identity in d.unsubscribed}
    refused = [
        (server.offered[uid], refusal.limit)
        for device in devices
        for uid, refusal in device.refused.items()
        if refusal.limit not in (None, "disk_full") and uid in server.offered
    ]
    return Happened(server.walls_us, fresh, taken, left, purgers, kickers, unsubscribed, refused)


# The broker ----------------------------------------------------------------------------------------------------


def _check_counters(server: WeeksServer, truth: Truth) -> Iterator[str]:
    """Check that the broker's counters equal those of the log (SPEC G-21)."""
    state = server.broker.state
    for row in state.sessions.values():
        stream = truth.stream(row.user, row.name)
        counted = (row.next, row.generated, row.delivered, row.queued, row.queued_bytes, row.restricted, row.dropped)
        expected = (
            *(stream.next, stream.generated, stream.delivered, stream.queued, stream.queued_bytes, stream.restricted),
            dict(stream.dropped),
        )
        if counted != expected:
            yield f"{row.key} counts {counted}, the log tells {expected}"
        members = sorted(stream.members)
        if sorted(row.devices) != members:
            yield f"{row.key} has the members {row.devices}, the log tells {members}"
    exist = {session_key(*key) for key, stream in truth.streams.items() if stream.exists}
    if exist != set(state.sessions):
        yield f"the sessions are {sorted(state.sessions)}, the log tells {sorted(exist)}"
    for user, past in truth.past.items():
        former = state.former.get(user)
        sums = PastSessions() if former is None or former.sessions is None else former.sessions
        kept_sums = (sums.next, sums.generated, sums.delivered, sums.restricted, sums.dropped)
        if kept_sums != (past.next, past.generated, past.delivered, past.restricted, past.dropped):
            yield f"{user} keeps {sums} of past sessions, the log tells {past}"
    live = {identity for identity, known in truth.known.items() if known.live}
    if live != set(dict(state.subscriptions.items())):
        yield f"live are {sorted(dict(state.subscriptions.items()))}, the log tells {sorted(live)}"
    for identity, kept in state.subscriptions.items():
        waiting = truth.stream(kept.subscription.owner, kept.subscription.session).waiting_for(identity)
        known = truth.known[identity]
        queue = state.queue.get(session_key(kept.subscription.owner, kept.subscription.session))
        its_own = None if queue is None else queue.queues.get(identity)
        kept_waiting = 0 if its_own is None else its_own.waiting
        if (kept.subscription, kept.last_us, kept_waiting) != (known.subscription, known.last_us, len(waiting)):
            yield f"{identity} is {kept}, the log tells {known} and {len(waiting)} waiting"


def _check_growth(server: WeeksServer, truth: Truth) -> Iterator[str]:
    """Check that nothing is kept for longer than somebody may request it."""
    state, config = server.broker.state, server.config
    queues = [its_own for _, queue in state.queue.waiting() for its_own in queue.queues.values()]
    events = {entry.event.id for _, queue in state.queue.waiting() for entry in queue}
    if set(state.events.rows) != events:
        yield f"{len(state.events.rows)} events are kept, {len(events)} of them wait"
    for its_own in queues:
        if its_own.gaps > its_own.waiting + 1:
            yield f"{its_own.gaps} gaps are kept among {len(its_own)} items of a subscription"
    for key, _ in state.publishers.items():
        user, _, device = key.removesuffix("/outbox").rpartition("/")
        if (user, device) in truth.gone:
            yield f"the publisher {key} is kept, its device has left for good"
    if config.sweep_s is not None:
        late_us = 1.2 * config.sweep_s * 1e6
        for identity, tombstone in state.tombstones.items():
            stream = truth.stream(tombstone.subscription.owner, tombstone.subscription.session)
            until_us = max(tombstone.ended_us + config.tombstone_s * 1e6, stream.settled_us.get(identity, 0))
            if not stream.waiting_for(identity) and state.wall_us > until_us + late_us:
                yield f"{identity} ended at {tombstone.ended_us} and is not forgotten"
        for identity, row in state.subscriptions.items():
            expires_us = row.subscription.expires_us
            if expires_us is not None and state.wall_us > expires_us + late_us:
                yield f"{identity} expired at {expires_us} and has not ended"


def _check_ages(server: WeeksServer, truth: Truth, log: Sequence[AnyRecord]) -> Iterator[str]:
    """Check that no notification was sent that had waited for too long (SPEC G-17)."""
    for sent in server.sent:
        matched = [truth.known[identity] for identity in sent.subscriptions]
        policies = [each.subscription.queue for each in matched if sent.at_us <= (each.forgotten_us or sent.at_us)]
        ages_s = [each.age_max_s for each in (server.config.queue, *policies) if each.age_max_s is not None]
        age_s = (sent.at_us - log[sent.notify.id.number].at_us) / 1e6
        if ages_s and age_s > min(ages_s) + _HELD_S:
            yield f"{sent.user} {sent.device} received {sent.notify.id} after {age_s:.0f} s, {min(ages_s)} at most"


# A device ------------------------------------------------------------------------------------------------------


def _check_publishes(device: WeeksDevice, log: Sequence[AnyRecord], truth: Truth) -> Iterator[str]:
    """Check that acknowledged events are in the log under the acknowledged id, and events refused for lack of room are
    not.
    """
    for uid, identity in device.accepted.items():
        record = log[identity.number]
        if not isinstance(record, Published) or name_of(record.event) != uid:
            yield f"event {uid} was acknowledged as {identity} but is not there"
    for uid, refusal in device.refused.items():
        if refusal.limit is not None and uid in truth.events:
            yield f"event {uid} was refused ({refusal.limit}) and is in the log"


def _check_streams(server: WeeksServer, device: WeeksDevice, log: Sequence[AnyRecord], truth: Truth) -> Iterator[str]:
    """Check that the application saw each match that concerns its device once and in order, or a gap with the loss."""
    seen: Seen = {}
    reported: dict[str, set[int]] = {}
    for life in device.lives:
        if (device.user, device.name, life.epoch) in truth.joined:
            seen.clear()
        listener = _Listener(device, life, truth, seen, reported)
        for received in life.received:
            yield from listener.receive(received)
        yield from _check_processed(life)
        for item, subscription in life.processed:
            if isinstance(item, Notification):
                names = seen.setdefault(truth.present(subscription), {}).setdefault(item.position.number, set())
                names.add(subscription)
        if life is device.lives[-1] and device.alive and device.settled and device.reachable:
            yield from _check_owed(device, life, truth, reported)
            yield from _check_ends(server, device, life, truth)


def _check_processed(life: ApplicationLife) -> Iterator[str]:
    numbers: dict[str, list[int]] = {}
    for item, subscription in life.processed:
        numbers.setdefault(subscription, []).append(item.position.number)
    for subscription, taken in numbers.items():
        if taken != sorted(set(taken)):
            yield f"life {life.epoch} took {taken} of {subscription}"


def _check_owed(
    device: WeeksDevice, life: ApplicationLife, truth: Truth, reported: dict[str, set[int]]
) -> Iterator[str]:
    """Check that at the end every match was received or reported, even if the device or the user leaves others unread
    (SPEC G-25).
    """
    stream = truth.stream(device.user, life.session)
    for subscription, number in sorted(truth.owed.get((device.user, device.name), ())):
        if truth.known[subscription].subscription.session != life.session:
            continue
        present = truth.present(subscription)
        lost = {reason for s, reason in stream.entries[number].lost.items() if truth.present(s) == present}
        if number in reported.get(present, ()) or lost & _UNREPORTED:
            continue
        if lost and truth.known[present].forgotten_us:
            continue  # nobody can request it any more
        if number > truth.has_taken(device.user, device.name, subscription):
            yield f"{number} of {subscription} was neither received nor reported ({lost or 'not lost'})"


def _check_ends(server: WeeksServer, device: WeeksDevice, life: ApplicationLife, truth: Truth) -> Iterator[str]:
    """Check that every subscriber was notified of the end of its subscription, and of its replacement (SPEC G-10 to
    G-12, X21).
    """
    notified = {over.subscription.id for over in life.over}
    for identity in life.wanted:
        known = truth.known[identity]
        is_news = known.ended_us > server.broker.state.wall_us - _NEWS_US
        if not known.live and not is_news and known.reason != "asked" and identity not in notified:
            yield f"{identity} has ended ({known.reason}) without a notification"
    for over in life.over:
        if over.successor is not None and device.habits.on_ended == "ignore":
            yield f"{over.successor.id} follows {over.subscription.id}, which nobody had asked for"
        if over.successor is not None and over.successor.id not in truth.known:
            yield f"{over.successor.id} replaces {over.subscription.id}, but does not exist"


class _Listener:
    """Follows one life's streams; collects the matches that a notification or a gap reported."""

    def __init__(
        self, device: WeeksDevice, life: ApplicationLife, truth: Truth, seen: Seen, reported: dict[str, set[int]]
    ) -> None:
        self._device = device
        self._life = life
        self._truth = truth
        self._seen = seen
        self._reported = reported
        self._received: dict[str, int] = {}
        self._begun = truth.begun.get((device.user, device.name, life.epoch), {})
        self._stream: Stream = truth.stream(device.user, life.session)

    def receive(self, received: Received) -> Iterator[str]:
        """Yield the problems with a message, after all messages before it."""
        match received.message:
            case protocol.Notify() as notify:
                yield from self._notified(notify, received)
            case protocol.NotifyGap() as gap:
                yield from self._gap(gap, received)

    def _present(self, subscriptions: Iterable[str]) -> set[str]:
        return {self._truth.present(each) for each in subscriptions}

    def _notified(self, notify: protocol.Notify, received: Received) -> Iterator[str]:
        number, entry = notify.number, self._stream.entries[notify.number]
        if entry.id != notify.id:
            yield f"{number} is event {notify.id}, it should be {entry.id}"
        concerned = self._present(entry.subscriptions_on(self._device.name))
        if not self._present(notify.subscriptions) <= concerned:
            yield f"{number} is for {notify.subscriptions}, it should be for {concerned}"
        for _, subscriptions in received.items:
            for subscription in subscriptions:
                if self._truth.present(subscription) not in concerned:
                    yield f"{number} was read as {subscription}, which it is not for"
                yield from self._received_now(subscription, number, notify)

    def _received_now(self, subscription: str, number: int, notify: protocol.Notify) -> Iterator[str]:
        if number <= self._received.get(subscription, 0):
            yield f"{number} of {subscription} came after {self._received[subscription]}"
        self._received[subscription] = number
        if number <= self._begun.get(subscription, 0):
            yield f"{number} of {subscription} was acknowledged by another device before this one was a member"
        present = self._truth.present(subscription)
        self._reported.setdefault(present, set()).add(number)
        if names := self._seen.get(present, {}).get(number):
            # An application cannot report a position of an ended subscription for a successor that it has not read.
            if self._device.habits.resumes and subscription in names:
                yield f"{number} of {present} was seen in an earlier life, which reported its position"
            elif not notify.redelivered:
                yield f"{number} of {present} was seen in an earlier life and is not marked"

    def _gap(self, gap: protocol.NotifyGap, received: Received) -> Iterator[str]:
        """Check a gap: how many matches were dropped, for which subscription and why (SPEC U-02)."""
        (present,) = self._present(loss.subscription for loss in gap.lost)
        lost: Counter[str] = Counter()
        numbers = set()
        for number in range(gap.first, gap.last + 1):
            for subscription, reason in self._stream.entries[number].lost.items():
                if self._truth.present(subscription) == present and reason not in _UNMARKED:
                    lost[reason] += 1
                    numbers.add(number)
        reported = Counter({loss.reason: loss.count for loss in gap.lost})
        if reported != lost:
            yield f"the gap {gap.first} to {gap.last} of {present} reports {dict(reported)} instead of {dict(lost)}"
        for item, _ in received.items:
            if not isinstance(item, Gap) or item.count > len(numbers):
                yield f"the gap {gap.first} to {gap.last} of {present} was passed on as {item}"
        for _, subscriptions in received.items:
            for subscription in subscriptions:
                self._received[subscription] = max(self._received.get(subscription, 0), gap.last)
        self._reported.setdefault(present, set()).update(numbers)
