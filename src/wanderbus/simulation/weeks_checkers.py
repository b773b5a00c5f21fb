"""What must hold in every history of weeks: each match delivered, waiting, or told of as lost; nothing else said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from wanderbus.broker import protocol
from wanderbus.broker.queue import LOSSES_MAX, Hole
from wanderbus.event import Gap, Loss, Notification
from wanderbus.records import AnyRecord, Attached, Published, decode_record
from wanderbus.simulation.weeks_device import Heard, Life, WeeksDevice
from wanderbus.simulation.weeks_server import WeeksServer
from wanderbus.simulation.weeks_stream import Stream, name_of
from wanderbus.simulation.weeks_truth import Happened, Truth

_NEWS_US: Final = 5_000_000
"""What was decided so long before the end may still be on its way."""

_HELD_S: Final = 1.0
"""A notification decided upon waits for the disk for less than this before it goes out."""


def check_weeks(server: WeeksServer, devices: Sequence[WeeksDevice]) -> list[str]:
    """Return one line for every broken promise in the finished world."""
    log = [decode_record(payload) for _, _, payload in server.disk.log]
    truth = Truth(server.config, _happened(server, devices))
    truth.fold(log)
    problems = [*server.problems, *server.watch.problems, *truth.problems, *server.check_rows()]
    problems += _check_counters(server, truth)
    problems += _check_growth(server, truth)
    problems += _check_said(server, truth, log)
    for device in devices:
        found = [*device.problems, *_check_publishes(device, log, truth), *_check_streams(server, device, log, truth)]
        problems += [f"{device.user} {device.name}: {problem}" for problem in found]
    return problems


def _happened(server: WeeksServer, devices: Sequence[WeeksDevice]) -> Happened:
    anew = {(d.user, d.name, life.epoch) for d in devices for life in d.lives if not life.keep}
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
    return Happened(server.walls_us, anew, taken, left, purgers, kickers, unsubscribed, refused)


# The broker ----------------------------------------------------------------------------------------------------


def _check_counters(server: WeeksServer, truth: Truth) -> Iterator[str]:
    """What the broker counts is what the log tells (SPEC G-21)."""
    assert server.broker is not None
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
        members = sorted(stream.cursors)
        if sorted(row.devices) != members:
            yield f"{row.key} has the members {row.devices}, the log tells {members}"
    live = {identity for identity, known in truth.known.items() if known.live}
    if live != set(dict(state.subscriptions.items())):
        yield f"live are {sorted(dict(state.subscriptions.items()))}, the log tells {sorted(live)}"
    for identity, kept in state.subscriptions.items():
        waiting = truth.stream(kept.subscription.owner, kept.subscription.session).waiting_for(identity)
        known = truth.known[identity]
        if (kept.subscription, kept.last_us, kept.waiting) != (known.subscription, known.last_us, len(waiting)):
            yield f"{identity} is {kept}, the log tells {known} and {len(waiting)} waiting"


def _check_growth(server: WeeksServer, truth: Truth) -> Iterator[str]:
    """Nothing is kept for longer than somebody may ask for it."""
    assert server.broker is not None
    state, config = server.broker.state, server.config
    waiting = [entry for row in state.sessions.values() for entry in state.queue[row.key]]
    events = {entry.event.offset for entry in waiting if not isinstance(entry, Hole)}
    if set(state.events.rows) != events:
        yield f"{len(state.events.rows)} events are kept, {len(events)} of them wait"
    holes = sum(isinstance(entry, Hole) for entry in waiting)
    if holes > len(waiting) - holes + len(state.sessions):
        yield f"{holes} gaps are kept among {len(waiting)} entries"
    for key, _ in state.publishers.items():
        user, _, device = key.removesuffix("/outbox").rpartition("/")
        if (user, device) in truth.gone:
            yield f"the publisher {key} is kept, its device has left for good"
    if config.sweep_s is not None:
        late_us = 1.2 * config.sweep_s * 1e6
        for identity, tombstone in state.tombstones.items():
            kept_s = config.tombstone_s
            if age_max_s := tombstone.subscription.queue.age_max_s:
                kept_s = max(
                    kept_s, age_max_s + config.sweep_s
                )  # for what it has left queued; then another sweep looks
            if state.wall_us > tombstone.ended_us + kept_s * 1e6 + late_us:
                yield f"{identity} ended at {tombstone.ended_us} and is not forgotten"
        for identity, row in state.subscriptions.items():
            expires_us = row.subscription.expires_us
            if expires_us is not None and state.wall_us > expires_us + late_us:
                yield f"{identity} expired at {expires_us} and has not ended"


def _check_said(server: WeeksServer, truth: Truth, log: Sequence[AnyRecord]) -> Iterator[str]:
    """Nothing went out that had waited for too long (SPEC G-17)."""
    for said in server.said:
        matched = [truth.known[identity] for identity in said.notify.subscriptions]
        policies = [each.subscription.queue for each in matched if said.at_us <= (each.forgotten_us or said.at_us)]
        ages_s = [each.age_max_s for each in (server.config.queue, *policies) if each.age_max_s is not None]
        age_s = (said.at_us - log[said.notify.id.offset].at_us) / 1e6
        if ages_s and age_s > min(ages_s) + _HELD_S:
            yield f"{said.user} {said.device} heard of {said.notify.id} after {age_s:.0f} s, {min(ages_s)} at most"


# A device ------------------------------------------------------------------------------------------------------


def _check_publishes(device: WeeksDevice, log: Sequence[AnyRecord], truth: Truth) -> Iterator[str]:
    """What was acknowledged is in the log under the id that was told; what was refused for want of room is not."""
    for uid, identity in device.accepted.items():
        record = log[identity.offset]
        if not isinstance(record, Published) or name_of(record.event) != uid:
            yield f"event {uid} was acknowledged as {identity} but is not there"
    for uid, refusal in device.refused.items():
        if refusal.limit is not None and uid in truth.events:
            yield f"event {uid} was refused ({refusal.limit}) and is in the log"


def _check_streams(server: WeeksServer, device: WeeksDevice, log: Sequence[AnyRecord], truth: Truth) -> Iterator[str]:
    """The application saw every number that concerns its device once and in order, or a gap that says what was lost."""
    pasts: dict[str, _Past] = {}
    for life in device.lives:
        past = pasts.setdefault(life.session, _Past())
        listener = _Listener(server, device, life, log, truth, past)
        for heard in life.heard:
            yield from listener.hear(heard)
        numbers = [item.position.number for item in life.processed]
        if numbers != sorted(set(numbers)):
            yield f"life {life.epoch} took {numbers}"
        past.seen.update(item.position.number for item in life.processed if isinstance(item, Notification))
        past.taken = max([past.taken, *numbers])
        if life is device.lives[-1] and device.alive and device.settled and device.reachable:
            yield from listener.finish()
            yield from _check_ends(server, device, life, truth)


def _check_ends(server: WeeksServer, device: WeeksDevice, life: Life, truth: Truth) -> Iterator[str]:
    """Whoever asked for a subscription has learnt that it is over, and what stands for it (SPEC G-10 to G-12, X21)."""
    assert server.broker is not None
    told = {over.subscription.id for over in life.over}
    for identity in life.wanted:
        known = truth.known[identity]
        is_news = known.ended_us > server.broker.state.wall_us - _NEWS_US
        if not known.live and not is_news and known.reason != "asked" and identity not in told:
            yield f"{identity} has ended ({known.reason}), which nobody told"
    for over in life.over:
        if over.successor is not None and device.habits.on_ended == "ignore":
            yield f"{over.successor.id} follows {over.subscription.id}, which nobody had asked for"
        if over.successor is not None and over.successor.id not in truth.known:
            yield f"{over.successor.id} is said to follow {over.subscription.id}, nobody knows it"


@dataclass
class _Past:
    """What earlier lives of a device had of a session since they joined it."""

    seen: set[int] = field(default_factory=set)
    taken: int = 0
    begun: int = -1
    """Offset up to which it is known when the device joined, or began anew."""


class _Listener:
    """Follows one life's stream."""

    def __init__(
        self,
        server: WeeksServer,
        device: WeeksDevice,
        life: Life,
        log: Sequence[AnyRecord],
        truth: Truth,
        past: _Past,
    ) -> None:
        self._server = server
        self._device = device.name
        self._user = device.user
        self._resumes = device.habits.resumes
        self._life = life
        self._log = log
        self._truth = truth
        self._past = past
        self._received = life.resume.number if life.resume else 0
        self._stream: Stream = truth.stream(device.user, life.session)

    def hear(self, heard: Heard) -> Iterator[str]:
        """Yield what is wrong with a message, after all before it."""
        match heard.message:
            case protocol.Attachment(taken=taken):
                yield from self._attached(heard.link, taken)
            case protocol.Notify() as notify:
                yield from self._notified(notify, heard.items)
            case protocol.NotifyGap() as gap:
                yield from self._gap(gap, heard.items)

    def finish(self) -> Iterator[str]:
        """Yield what was never told of."""
        yield from self._passed_over(self._received, self._stream.next - 1, "in the end")

    def _attached(self, link: int, taken: int) -> Iterator[str]:
        offset = self._server.offsets[link]
        while not self._is_attachment(self._log[offset]):
            offset += 1
        past = self._past
        begins = [b for b in self._truth.begins.get((self._user, self._device), ()) if b.session == self._life.session]
        fresh = [begin.number for begin in begins if past.begun < begin.offset <= offset]
        if fresh:
            past.begun = offset
            past.taken = max(past.taken, *fresh)
            past.seen.clear()
        if self._life.keep:
            yield from self._passed_over(max(self._received, past.taken), taken, "by the attachment")
        self._received = max(self._received, taken)

    def _is_attachment(self, record: AnyRecord) -> bool:
        names = (self._user, self._device, self._life.epoch)
        return isinstance(record, Attached) and (record.user, record.device, record.epoch) == names

    def _passed_over(self, after: int, through: int, how: str) -> Iterator[str]:
        numbers = [n for n in range(after + 1, through + 1) if self._stream.entries[n].concerns(self._device)]
        if numbers:
            yield f"life {self._life.epoch}: {numbers} were passed over {how}"

    def _notified(self, notify: protocol.Notify, items: Sequence[Notification | Gap]) -> Iterator[str]:
        number = notify.number
        entry = self._stream.entries[number]
        if [item.position.number for item in items] != [number] * (number > self._received):
            yield f"{number} came after {self._received}, the application saw {items}"
        yield from self._passed_over(self._received, number - 1, f"before {number}")
        self._received = max(self._received, number)
        if entry.offset != notify.id.offset:
            yield f"{number} is event {notify.id}, it should be {entry.offset}"
        lost = {loss.subscription: loss.reason for loss in notify.lost if loss.count == 1}
        told = {*notify.subscriptions, *lost}
        if told != entry.concerns(self._device).keys() or set(notify.subscriptions) & lost.keys():
            yield f"{number} is for {notify.subscriptions} and lost to {lost}, it should be {entry}"
        if any(entry.lost.get(subscription) != reason for subscription, reason in lost.items()):
            yield f"{number} is said to be lost to {lost}, it is to {entry.lost}"
        if number in self._past.seen and items:
            if self._resumes:
                yield f"{number} was seen in an earlier life, which told how far it had got"
            elif not notify.redelivered:
                yield f"{number} was seen in an earlier life and is not marked"

    def _gap(self, gap: protocol.NotifyGap, items: Sequence[Notification | Gap]) -> Iterator[str]:
        yield from self._passed_over(self._received, gap.first - 1, f"before the gap from {gap.first}")
        first = max(gap.first, self._received + 1)
        expected = [gap.last - first + 1] if first <= gap.last else []
        if [item.count for item in items if isinstance(item, Gap)] != expected:
            yield f"the gap {gap.first} to {gap.last} after {self._received} was passed on as {items}"
        yield from self._check_lost(gap.lost, gap.first, gap.last)
        # Of a gap that is known in part, the broker tells the losses of the whole: they cannot be parted here.
        if first == gap.first:
            for item in items:
                yield from self._check_lost(item.lost, first, gap.last)
        self._received = max(self._received, gap.last)

    def _check_lost(self, lost: Sequence[Loss], first: int, last: int) -> Iterator[str]:
        """A gap says how many matches were dropped, for which subscription and why (SPEC U-02)."""
        entries = [self._stream.entries[number] for number in range(first, last + 1)]
        pairs = [(s, e.lost.get(s, "nothing")) for e in entries for s in e.concerns(self._device)]
        told = Counter({(loss.subscription, loss.reason): loss.count for loss in lost})
        if told != Counter(pairs) and len(lost) < LOSSES_MAX:
            yield f"the gap {first} to {last} tells of {dict(told)}, it should of {dict(Counter(pairs))}"
