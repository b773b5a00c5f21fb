"""Truth about patterns of sessions that move: the matches among the events in all logs (SPEC L-01, T-07)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from wanderbus.broker.state.replays import is_read
from wanderbus.event import Event, EventId
from wanderbus.protocol import decode_event
from wanderbus.records import (
    AnyRecord,
    Arrived,
    Cut,
    Detected,
    Published,
    Replayed,
    SessionAwaited,
    SessionFenced,
    SessionImported,
    Subscribed,
    Unsubscribed,
)
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.domains.past_checkers import FOREVER
from wanderbus.simulation.handover.checkers import HandoverTruth
from wanderbus.simulation.handover.device import HandoverDevice
from wanderbus.subscription import PATTERN, Subscription


class Taken(NamedTuple):
    """An event as a pattern takes it: its time by the clocks of its servers, in order, its id and its attributes."""

    at_us: int
    id: EventId
    event: Event


class KnownPattern(NamedTuple):
    """A pattern, and the definition of its matches, which is not that of the automaton."""

    text: str
    takes: Callable[[Event], bool]
    matches: Callable[[Sequence[Taken]], Iterator[tuple[Taken, ...]]]


def _is(event: Event, subject: str, low: int = 0, high: int = 99) -> bool:
    x = event["x"]
    return event.subject == subject and isinstance(x, int) and low <= x < high


def _within(taken: Sequence[Taken], place: int, span_s: int) -> Sequence[Taken]:
    """Return the events behind a place whose time is at most ``span_s`` later."""
    return [each for each in taken[place + 1 :] if each.at_us <= taken[place].at_us + span_s * 1_000_000]


def _pairs(taken: Sequence[Taken]) -> Iterator[tuple[Taken, ...]]:
    for place, first in enumerate(taken):
        if _is(first.event, "A", 10):
            yield from ((first, each) for each in _within(taken, place, 2) if _is(each.event, "B"))


def _undisturbed(taken: Sequence[Taken]) -> Iterator[tuple[Taken, ...]]:
    for key in range(3):
        own = [each for each in taken if each.event["y"] == key]
        for place, first in enumerate(own):
            for each in _within(own, place, 3) if _is(first.event, "A", 0, 3) else ():
                if _is(each.event, "B", 0, 6):
                    yield first, each
                if _is(each.event, "C"):
                    break


def _unanswered(taken: Sequence[Taken]) -> Iterator[tuple[Taken, ...]]:
    for place, first in enumerate(taken):
        if _is(first.event, "C", 0, 5) and not any(_is(each.event, "D") for each in _within(taken, place, 1)):
            yield (first,)


KNOWN_PATTERNS: Final = (
    KnownPattern(
        "pattern pairs match p: A (x >= 10) then q: B within 2 seconds select every emit pairs with Uid = q.Uid",
        lambda event: _is(event, "A", 10) or _is(event, "B"),
        _pairs,
    ),
    KnownPattern(
        "pattern undisturbed by y match p: A (x < 3) then not r: C then q: B (x < 6) within 3 seconds select every "
        "emit undisturbed with Uid = q.Uid",
        lambda event: _is(event, "A", 0, 3) or _is(event, "C") or _is(event, "B", 0, 6),
        _undisturbed,
    ),
    KnownPattern(
        "pattern unanswered match p: C (x < 5) then not q: D within 1 second emit unanswered with Uid = p.Uid",
        lambda event: _is(event, "C", 0, 5) or _is(event, "D"),
        _unanswered,
    ),
)
_BY_TEXT: Final = {each.text: each for each in KNOWN_PATTERNS}


class _Stay:
    """The time of a session at one server: the offsets of its log from ``first`` on, up to the fence."""

    def __init__(self, server: str, first: int) -> None:
        self.server, self.first = server, first
        self.end = FOREVER
        self.cuts: tuple[Cut, ...] = ()
        self.watermark_us = 0
        """Time up to which the pattern had been matched when it ended."""


class MovedPattern:
    """A subscription to a pattern over all its servers."""

    def __init__(self, subscription: Subscription, stay: _Stay) -> None:
        self.subscription = subscription
        self.known = _BY_TEXT[subscription.expression]
        self.has_ended = False
        self.notified: dict[int, EventId] = {}
        self.found: list[tuple[str, ...]] = []
        """Ids of the events of each detection."""
        self.stays = [stay]


class PatternHandoverTruth(HandoverTruth):
    """All logs, and what the devices have received, with the patterns."""

    def __init__(self, nodes: Mapping[str, DomainNode], devices: Sequence[HandoverDevice]) -> None:
        super().__init__(nodes, devices)
        self.patterns: dict[str, MovedPattern] = {}
        self.stepped = 0
        """Events that patterns have read in the log."""
        self._awaited: dict[tuple[str, str, str, int], int] = {}
        records = [
            (nodes[name].moments[offset], name, offset, record)
            for name, several in self._logs.items()
            for offset, record in enumerate(several)
        ]
        for _, name, offset, record in sorted(records, key=itemgetter(0)):
            self._follow_patterns(name, offset, record)
        for followed in self.patterns.values():
            self.problems += self._check_detections(followed)
            self.problems += self._check_received(followed)
            self.problems += self._check_held_back(followed)

    def _follow_patterns(self, name: str, offset: int, record: AnyRecord) -> None:
        match record:
            case Subscribed(subscription=wanted) if wanted.language == PATTERN:
                self.patterns[wanted.id] = MovedPattern(wanted, _Stay(name, offset))
            case SessionAwaited(user=user, session=session, owner_epoch=epoch):
                self._awaited.setdefault((name, user, session, epoch), offset)
            case SessionImported(user=user, session=session, owner_epoch=epoch):
                for followed in self._in_session(user, session):
                    followed.stays.append(_Stay(name, self._awaited[name, user, session, epoch]))
            case SessionFenced(user=user, session=session, cuts=cuts):
                for followed in self._in_session(user, session):
                    followed.stays[-1].end, followed.stays[-1].cuts = offset, cuts
            case Unsubscribed(subscription=identity) if identity in self.patterns:
                self.patterns[identity].has_ended = True
            case Detected(subscription=identity):
                self._detect(self.patterns[identity], record)
            case Replayed(stepped=stepped):
                self.stepped += len(stepped)

    def _in_session(self, user: str, session: str) -> Iterator[MovedPattern]:
        for followed in self.patterns.values():
            wanted = followed.subscription
            if (wanted.owner, wanted.session) == (user, session) and not followed.has_ended:
                yield followed

    def _detect(self, followed: MovedPattern, record: Detected) -> None:
        stay = followed.stays[-1]
        stay.watermark_us = max(stay.watermark_us, record.watermark_us)
        for each in record.events:
            followed.found.append(tuple(map(str, decode_event(bytes(each.event)).get_all("events"))))
            followed.notified |= {notified.number: each.id for notified in each.notified}

    def _check_detections(self, followed: MovedPattern) -> Iterator[str]:
        """Check that each match was detected, once, and nothing else."""
        identity, taken = followed.subscription.id, list(self._taken(followed))
        expected = [tuple(str(each.id) for each in match) for match in followed.known.matches(taken)]
        found, text = followed.found, f"{identity} of {followed.subscription.owner}"
        if len(set(found)) < len(found):
            yield f"{text} has detected twice: {sorted({each for each in found if found.count(each) > 1})}"
        if wrong := set(found) - set(expected):
            yield f"{text} has detected {sorted(wrong)}, which is no match"
        if not followed.has_ended and (missed := set(expected) - set(found)):
            yield f"{text} has not detected {sorted(missed)}"
        moment, has = self._counted(identity), {each.id for each in taken}
        for event, (content, accepted) in self.published.items():
            due = moment is not None and accepted > moment and followed.known.takes(content)
            if due and event not in has and not followed.has_ended:
                yield f"{text} has missed {event}"

    def _taken(self, followed: MovedPattern) -> Iterator[Taken]:
        """Yield the events of a pattern in the order of their arrival: each at the first server that had it for it."""
        counted = self._counted(followed.subscription.id)
        has, cuts, latest_us = set[EventId](), list[Cut](), 0
        for stay in followed.stays:
            for offset, record in enumerate(self._logs[stay.server][: stay.end]):
                if not isinstance(record, Published | Arrived):
                    continue
                event = record.acceptance.id if isinstance(record, Published) else record.arrival.id
                is_early = counted is None or self.published[event][1] <= counted
                # What was accepted before the subscription counted may or may not be for it: the cuts say it.
                passed = is_early and is_read(event, cuts, decentralised=self._is_decentralised(event))
                if offset >= stay.first and event not in has and not passed and followed.known.takes(record.event):
                    latest_us = max(latest_us, record.at_us)
                    yield Taken(latest_us, event, record.event)
                has.add(event)
            cuts += stay.cuts
            latest_us = max(latest_us, stay.watermark_us)

    def _check_held_back(self, followed: MovedPattern) -> Iterator[str]:
        """Check that no device held back an event that a pattern wants."""
        moment = self._counted(followed.subscription.id)
        for device in self._devices:
            for uid, offered in device.published.items():
                is_wanted = moment is not None and moment < offered.moment and followed.known.takes(offered.event)
                if is_wanted and offered.held_back and uid not in self._uids and not followed.has_ended:
                    yield f"{uid} was held back, and {followed.subscription.id} wants it"
