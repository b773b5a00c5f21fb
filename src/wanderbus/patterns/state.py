"""State of a pattern between two batches, and the detections that come out (SPEC T-07).

Times are integers: microseconds since the Unix epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from wanderbus.event import Event
from wanderbus.patterns.automaton import MatchNode, Seen, node_after

NEVER_US: Final = 2**63 - 1
"""Time after every event."""

BEFORE_ALL_US: Final = -(2**63)
"""Time before every event."""


class PartialMatch(msgspec.Struct, gc=False):
    """A partial match: its last event, its first one, its stage, and the edges that are still open."""

    node: MatchNode
    start: Seen
    stage: int
    count: int
    """Events that the current step has taken."""
    open: int
    deadline_us: int


class KeyState(msgspec.Struct):
    """All that is kept for one key."""

    waiting: dict[tuple[int, int], Seen]
    """Events at or above the watermark, by time and offset."""
    runs: list[PartialMatch]
    due_us: int = NEVER_US
    """Earliest time at which something happens: that of a waiting event, or of a partial match's end."""
    expires_us: int = NEVER_US
    """Earliest end of a partial match."""
    kept: int = 0
    """Its part of :attr:`PatternState.kept`."""
    waiting_units: int = 0
    """Size of the events that wait."""

    def wait(self, place: tuple[int, int], seen: Seen) -> int:
        """Let an event wait; return its size."""
        self.waiting[place] = seen
        units = seen.units
        self.waiting_units += units
        self.kept += units
        return units

    def take(self, place: tuple[int, int]) -> Seen:
        """Remove an event from those that wait, to be processed."""
        seen = self.waiting.pop(place)
        self.waiting_units -= seen.units
        return seen

    def count(self) -> int:
        """Count what is kept again; return the change."""
        before, self.kept = self.kept, self.waiting_units + sum([run.node.units for run in self.runs])
        return self.kept - before


class Counts(msgspec.Struct):
    """Counts since the beginning of the state; all but ``events`` and ``detections`` count what was refused."""

    events: int = 0
    """Events that were processed."""
    detections: int = 0
    late: int = 0
    """Events whose time was below the watermark when they came; repeats of earlier events among them."""
    repeated: int = 0
    """Events that were waiting already."""
    waiting_full: int = 0
    """Events refused because too many of their key waited for the watermark."""
    partial_full: int = 0
    """Partial matches refused because their key had too many."""
    long: int = 0
    """Partial matches that were not continued because they had too many events."""
    left_out: int = 0
    """Events left out because they would have taken too much work, or because too much was kept."""


class Complete(NamedTuple):
    """A match that is complete: when it became so, its last event, and its key."""

    at_us: int
    node: MatchNode
    key: str


class PatternState(msgspec.Struct):
    """State of one pattern, for any number of keys."""

    watermark_us: int = BEFORE_ALL_US
    keys: dict[str, KeyState] = msgspec.field(default_factory=dict)
    timers: list[tuple[int, str]] = msgspec.field(default_factory=list)
    """Heap of the times at which a key is due; one of a key whose time has changed is skipped."""
    counts: Counts = msgspec.field(default_factory=Counts)
    kept: int = 0
    """Events that wait, and events of matches, those of each match counted for itself, in units of size."""
    complete: deque[Complete] = msgspec.field(default_factory=deque)
    """Matches that are complete, in order, and that no turn has taken as detections yet."""
    steps: int = 0
    """Steps since everything below a watermark was matched for the last time (:mod:`wanderbus.patterns.turns`)."""
    taken: int = 0
    """Detections taken since then."""

    @property
    def due_us(self) -> int:
        """Earliest time at which something happens; a watermark up to it changes nothing. :data:`NEVER_US` if idle."""
        if self.complete:
            return self.complete[0].at_us
        return self.timers[0][0] if self.timers else NEVER_US

    @property
    def partial_matches(self) -> int:
        """Number of partial matches that are kept."""
        return sum(len(key.runs) for key in self.keys.values())

    @property
    def events_waiting(self) -> int:
        """Number of events that wait for the watermark."""
        return sum(len(key.waiting) for key in self.keys.values())


class StepEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event of a detection: the step that took it, the event's offset and its id."""

    step: str
    offset: int
    id: str


class Detection(msgspec.Struct, frozen=True):
    """A compound event that was found.

    ``at_us`` is the time at which it was complete: that of its last event, or the end of its time if the pattern waits
    for an absence. ``attributes`` are those that ``emit`` names; an unknown one is absent.
    """

    pattern: str
    key: str
    at_us: int
    events: tuple[StepEvent, ...]
    subject: str
    attributes: dict[str, Any]

    @property
    def id(self) -> str:
        """Name of the detection: the same events of the same pattern have the same one, in every run."""
        taken = "".join(f" {each.step}@{each.offset}:{each.id}" for each in self.events)
        return f"{self.pattern}:{blake2b((self.pattern + taken).encode(), digest_size=12).hexdigest()}"

    def to_event(self) -> Event:
        """Return the detection as an event: its attributes, its id as ``detection`` and its events' ids as ``events``.

        An attribute that ``emit`` gives has precedence. An event without an id is named by its offset.
        """
        names = [each.id or str(each.offset) for each in self.events]
        return Event(self.subject, {"detection": self.id, "events": names, **self.attributes}, self.at_us)


class _SavedRun(msgspec.Struct, frozen=True, array_like=True):
    node: int
    start: int
    stage: int
    count: int
    open: int
    deadline_us: int


class _SavedKey(msgspec.Struct, frozen=True, array_like=True):
    """State of a key, in which each event and each node is stored once."""

    events: list[Seen]
    nodes: list[tuple[int, int, int]]
    """Place of the node before, or -1; the step; the place of the event."""
    runs: list[_SavedRun]
    waiting: list[Seen]
    complete: list[tuple[int, int]] = []
    """Time and last node of each match that no turn has taken yet."""


class _Saved(msgspec.Struct, frozen=True):
    pattern: str
    watermark_us: int
    counts: Counts
    keys: dict[str, _SavedKey]
    steps: int = 0
    taken: int = 0


Order = list[tuple[int, int, int]]
"""Time, offset and step of each event, and a sentinel at the end."""

_SENTINEL: Final = (NEVER_US, NEVER_US, NEVER_US)


def order_of(node: MatchNode) -> Order:
    """Return the events of a match as matches are ordered."""
    order = [_SENTINEL]
    last: MatchNode | None = node
    while last is not None:
        order.append((last.seen.time_us, last.seen.offset, last.step))
        last = last.before
    order.reverse()
    return order


def in_order(match: Complete) -> tuple[int, Order]:
    """Return the place of a complete match among others."""
    return match.at_us, order_of(match.node)


class OtherPattern(ValueError):
    """The bytes are the state of another pattern, or no state."""


def save(state: PatternState, pattern: str) -> bytes:
    """Return the state of the pattern with the fingerprint ``pattern`` as bytes."""
    complete: dict[str, list[Complete]] = {}
    for each in state.complete:
        complete.setdefault(each.key, []).append(each)
    names = dict.fromkeys((*state.keys, *complete))
    keys = {name: _saved_key(state.keys.get(name) or KeyState({}, []), complete.get(name, ())) for name in names}
    return _ENCODER.encode(_Saved(pattern, state.watermark_us, state.counts, keys, state.steps, state.taken))


def load(data: bytes, pattern: str) -> PatternState:
    """Return the state that was saved; raise :class:`OtherPattern` if it is not that of ``pattern``."""
    try:
        saved = _DECODER.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise OtherPattern(f"the bytes are no state of a pattern: {error}") from None
    if saved.pattern != pattern:
        raise OtherPattern("the state is that of another pattern; begin with an empty one")
    keys: dict[str, KeyState] = {}
    complete: list[Complete] = []
    for name, each in saved.keys.items():
        key, ended = _loaded_key(each)
        complete += [Complete(at_us, node, name) for at_us, node in ended]
        if key.due_us != NEVER_US:
            keys[name] = key
    timers = sorted((each.due_us, key) for key, each in keys.items())
    kept = sum(key.kept for key in keys.values()) + sum(each.node.units for each in complete)
    complete.sort(key=in_order)
    return PatternState(saved.watermark_us, keys, timers, saved.counts, kept, deque(complete), saved.steps, saved.taken)


def of_former_log(data: bytes) -> bytes:
    """Return a saved state for another log: its events get negative offsets, in their order.

    So they precede the events of that log at the same time, and none of these is taken for one of them.
    """
    saved = _DECODER.decode(data)
    offsets = {seen.offset for key in saved.keys.values() for seen in (*key.events, *key.waiting)}
    places = {offset: place - len(offsets) for place, offset in enumerate(sorted(offsets))}

    def moved(several: list[Seen]) -> list[Seen]:
        return [msgspec.structs.replace(seen, offset=places[seen.offset]) for seen in several]

    keys = {
        name: msgspec.structs.replace(key, events=moved(key.events), waiting=moved(key.waiting))
        for name, key in saved.keys.items()
    }
    return _ENCODER.encode(msgspec.structs.replace(saved, keys=keys))


def _saved_key(key: KeyState, complete: Iterable[Complete]) -> _SavedKey:
    events: dict[tuple[int, int], int] = {}
    seen: list[Seen] = []
    nodes: dict[int, int] = {}
    rows: list[tuple[int, int, int]] = []

    def place_of_event(event: Seen) -> int:
        place = events.setdefault((event.time_us, event.offset), len(seen))
        if place == len(seen):
            seen.append(event)
        return place

    def place_of_node(node: MatchNode) -> int:
        chain: list[MatchNode] = []
        last: MatchNode | None = node
        while last is not None and id(last) not in nodes:
            chain.append(last)
            last = last.before
        place = -1 if last is None else nodes[id(last)]
        for each in reversed(chain):
            rows.append((place, each.step, place_of_event(each.seen)))
            place = nodes[id(each)] = len(rows) - 1
        return place

    runs = [
        _SavedRun(
            *(place_of_node(run.node), place_of_event(run.start), run.stage, run.count, run.open, run.deadline_us)
        )
        for run in key.runs
    ]
    ended = [(each.at_us, place_of_node(each.node)) for each in complete]
    return _SavedKey(seen, rows, runs, list(key.waiting.values()), ended)


def _loaded_key(saved: _SavedKey) -> tuple[KeyState, list[tuple[int, MatchNode]]]:
    nodes: list[MatchNode] = []
    for before, step, event in saved.nodes:
        previous = None if before < 0 else nodes[before]
        nodes.append(node_after(previous, step, saved.events[event]))
    runs = [
        PartialMatch(nodes[run.node], saved.events[run.start], run.stage, run.count, run.open, run.deadline_us)
        for run in saved.runs
    ]
    waiting = {(seen.time_us, seen.offset): seen for seen in saved.waiting}
    expires_us = min((run.deadline_us for run in runs), default=NEVER_US)
    due_us = min((time_us for time_us, _ in waiting), default=NEVER_US)
    key = KeyState(waiting, runs, min(due_us, expires_us), expires_us)
    key.waiting_units = sum([seen.units for seen in saved.waiting])
    key.count()
    return key, [(at_us, nodes[place]) for at_us, place in saved.complete]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Saved)
