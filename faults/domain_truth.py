"""Comparison of what the agents of a domain run received with what they were due.

It uses their journals alone. Causes are those that the agents could see: an event is caused by what its publisher
received from decentralised channels, or published there, earlier. Vector clocks over the publishers represent this; no
server knows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.agents import INTERESTS
from faults.domain_journal import AgentRole, Entry, Name, Reader
from faults.verdict import Verdict
from wanderbus.event import EventId

Clock = NDArray[np.int64]

_NOTIFIED: Final = ("took", "heard")
_NEVER: Final = np.iinfo(np.int64).max


class Stream(NamedTuple):
    """Notifications of one iteration of an agent, and the events that were due to it; ``others`` may come too."""

    user: str
    taken: Sequence[Entry]
    due: Sequence[Name]
    others: frozenset[Name]


class Truth:
    """The events of a run and everything that was due; ``journals`` has the entries of each agent in their order."""

    def __init__(
        self,
        roles: Sequence[AgentRole],
        journals: Sequence[Sequence[Entry]],
        decentralised: frozenset[str],
        verdict: Verdict,
    ) -> None:
        self._roles = roles
        self._journals = journals
        self._decentralised = decentralised
        self._verdict = verdict
        everything = [entry for entries in journals for entry in entries]
        self._sent = {each.event: each for each in everything if each.kind == "sent"}
        self.acknowledged = {each.event: each.text for each in everything if each.kind == "acknowledged"}
        """Ids of the acknowledged events; empty of those that were stored in an outbox."""
        self.refused = {each.event: each.text for each in everything if each.kind == "refused"}
        self.accepted = self.acknowledged.keys() | {each.event for each in everything if each.kind in _NOTIFIED}
        """Events that must reach everybody who is due: an event without an answer may have been accepted."""
        self.subscriptions = sum(each.kind == "began" for each in everything)
        """Number of subscriptions that began during the run."""
        self._of_subject: dict[str, list[Name]] = {}
        for event in sorted(self.accepted & self._sent.keys()):
            self._of_subject.setdefault(self._sent[event].subject, []).append(event)
        pairs = zip(roles, journals, strict=True)
        self._streams = [stream for role, entries in pairs for stream in self._streams_of(role, entries)]
        self.causal_pairs = 0
        """Number of notifications that followed a cause of another agent, of which the same iteration was due."""

    def _streams_of(self, role: AgentRole, entries: Sequence[Entry]) -> Iterator[Stream]:
        """Return the merged iteration of an agent, and each subscription that began during the run."""
        due = [event for each in role.subscriptions for event in self._matching(each)]
        yield Stream(role.user, [each for each in entries if each.kind == "took"], due, frozenset())
        began: Entry | None = None
        heard: list[Entry] = []
        for entry in entries:
            if entry.kind == "heard":
                heard.append(entry)
            elif entry.kind in ("began", "ended"):
                if began is not None:
                    yield self._visit(role, began, heard, is_over=True)
                began, heard = (entry if entry.kind == "began" else None), []
        if began is not None:
            yield self._visit(role, began, heard, is_over=False)

    def _visit(self, role: AgentRole, began: Entry, heard: Sequence[Entry], *, is_over: bool) -> Stream:
        """Return the stream of a subscription: what is published after its begin is due, what was before may come.

        Of one that is over, only what it has returned is known: more may have been on its way.
        """
        matching = self._matching(Reader(began.subject, began.text))
        due = [event for event in matching if not is_over and self._sent[event].at_ns > began.at_ns]
        return Stream(f"{role.user}, subscribed to {began.subject},", heard, due, frozenset(matching))

    def _matching(self, reader: Reader) -> list[Name]:
        """Return the accepted events that a subscription matches, those of each publisher in their order."""
        matches = INTERESTS[reader.interest].matches
        return [event for event in self._of_subject.get(reader.subject, ()) if matches(event.n)]

    @property
    def unanswered(self) -> list[Name]:
        """Return the events whose publisher never got an answer."""
        return sorted(self._sent.keys() - self.acknowledged.keys() - self.refused.keys())

    @property
    def missing(self) -> int:
        """Return how many notifications are due and have not been received."""
        return sum(len(set(each.due) - {entry.event for entry in each.taken}) for each in self._streams)

    @property
    def deliveries(self) -> int:
        """Return the number of notifications that the agents have received."""
        return sum(len(each.taken) for each in self._streams)

    def check(self, *, is_settled: bool = True) -> None:
        """Compare everything; differences go to the verdict.

        Unless ``is_settled``, the run ended in the middle: what is missing was not lost, it had no time.
        """
        for stream in self._streams:
            self._check_once(stream)
            if is_settled:
                self._check_complete(stream)
        for role, entries in zip(self._roles, self._journals, strict=True):
            for gap in (each for each in entries if each.kind == "gap"):
                self._verdict.broken("lost", f"{role.user} received a gap: {gap.text}")
        if false := sorted(self.refused.keys() & self.accepted):
            self._verdict.broken("integrity_errors", f"{false[:3]} were refused, and accepted", len(false))
        if is_settled and (unanswered := self.unanswered):
            words = f"{len(unanswered)} publishes were never answered: {unanswered[:3]}"
            self._verdict.broken("integrity_errors", words, len(unanswered))
        self._check_orders()
        clocks = self._clocks()
        for stream in self._streams:
            self._check_causes(stream, clocks)

    def _check_once(self, stream: Stream) -> None:
        counted, user = Counter(each.event for each in stream.taken), stream.user
        if strange := sorted(counted.keys() - set(stream.due) - stream.others):
            self._verdict.broken("integrity_errors", f"{strange[:3]} were never due to {user}", len(strange))
        if twice := [event for event, count in counted.items() if count > 1]:
            self._verdict.broken("repeated", f"{user} received {twice[:3]} more than once", len(twice))

    def _check_complete(self, stream: Stream) -> None:
        taken = {each.event for each in stream.taken}
        if lacking := [event for event in stream.due if event not in taken]:
            shown = [(*event, self._sent[event].subject) for event in lacking[:3]]
            self._verdict.broken("lost", f"{stream.user} lacks {len(lacking)} events: {shown}", len(lacking))

    # Order ------------------------------------------------------------------------------------------------------------

    def _check_orders(self) -> None:
        """Check that each publisher's order is kept, and in ordered channels that of each log and one order for all."""
        ids = {event: text for event, text in self.acknowledged.items() if text}
        orders: dict[str, list[list[Name]]] = {}
        for stream in self._streams:
            last: dict[tuple[str, object], int] = {}
            received: dict[str, list[Name]] = {}
            for each in _first_of_each(stream.taken):
                if ids.setdefault(each.event, each.text) != each.text:
                    words = f"{each.event} is {ids[each.event]} and, for {stream.user} {each.text}"
                    self._verdict.broken("integrity_errors", words)
                numbers: dict[object, int] = {each.event.by: each.event.n}
                if each.subject not in self._decentralised:
                    received.setdefault(each.subject, []).append(each.event)
                    place = EventId.parse(each.text)
                    numbers[place.origin, place.incarnation] = place.number
                if any(number < last.get((each.subject, key), number) for key, number in numbers.items()):
                    words = f"{stream.user} received {each.event} of {each.subject}, {each.text}, after a later one"
                    self._verdict.broken("out_of_order", words)
                for key, number in numbers.items():
                    last[each.subject, key] = max(number, last.get((each.subject, key), number))
            for subject, events in received.items():
                orders.setdefault(subject, []).append(events)
        for subject, several in orders.items():
            self._check_agreement(subject, several)

    def _check_agreement(self, subject: str, orders: Sequence[Sequence[Name]]) -> None:
        """Check that one order has all ``orders`` in it: the numbers of two leaders' logs say nothing of each other."""
        sorter: TopologicalSorter[Name] = TopologicalSorter()
        for order in orders:
            for before, after in pairwise(order):
                sorter.add(after, before)
        try:
            sorter.prepare()
        except CycleError as error:
            events = error.args[1]
            words = f"subscribers of {subject} received {len(events) - 1} events in different orders: {events[:4]}"
            self._verdict.broken("out_of_order", words)

    # Causes -----------------------------------------------------------------------------------------------------------

    def _check_causes(self, stream: Stream, clocks: Mapping[Name, Clock]) -> None:
        """Check that each event of decentralised channels comes after those of its causes that come at all."""
        taken = [each.event for each in stream.taken if each.subject in self._decentralised]
        waiting: dict[int, list[int]] = {}
        for by, n in sorted(set(taken), reverse=True):
            waiting.setdefault(by, []).append(n)
        first = np.full(len(self._roles), _NEVER)
        begin = np.full(len(self._roles), _NEVER)
        for by, numbers in waiting.items():
            first[by] = begin[by] = numbers[-1]
        seen: set[Name] = set()
        for event in taken:
            if event in seen or event not in clocks:
                continue  # repeated or unknown, which is counted elsewhere
            seen.add(event)
            if np.any(clocks[event] >= first):
                self._verdict.broken("causal_violations", f"{stream.user} received {event} before a cause")
            others = clocks[event] >= begin
            self.causal_pairs += int(others.sum() - others[event.by]) > 0
            numbers = waiting.get(event.by, [])
            while numbers and Name(event.by, numbers[-1]) in seen:
                numbers.pop()
            first[event.by] = numbers[-1] if numbers else _NEVER

    def _clocks(self) -> dict[Name, Clock]:
        """Return the causes of each event of decentralised channels: the highest number of each publisher."""
        clocks: dict[Name, Clock] = {}
        now = [np.zeros(len(self._roles), np.int64) for _ in self._roles]
        places = [0] * len(self._roles)
        has_moved = True
        while has_moved:
            has_moved = False
            for agent, entries in enumerate(self._journals):
                begin = places[agent]
                places[agent] = self._advance(agent, entries, begin, now[agent], clocks)
                has_moved = has_moved or places[agent] > begin
        if left := [role.user for role, place in zip(self._roles, places, strict=True) if place < self._end(role)]:
            self._verdict.broken("integrity_errors", f"{left[:5]} received what nobody had sent", len(left))
        return clocks

    def _end(self, role: AgentRole) -> int:
        return len(self._journals[self._roles.index(role)])

    def _advance(self, agent: int, entries: Sequence[Entry], place: int, now: Clock, clocks: dict[Name, Clock]) -> int:
        """Follow an agent from ``place`` until it receives an event whose causes are not known yet."""
        while place < len(entries):
            entry = entries[place]
            if entry.subject in self._decentralised:
                if entry.kind == "sent":
                    clocks[entry.event] = now.copy()
                    now[agent] = entry.event.n
                elif entry.kind in _NOTIFIED:
                    if (causes := clocks.get(entry.event)) is None:
                        break
                    np.maximum(now, causes, out=now)
                    now[entry.event.by] = max(int(now[entry.event.by]), entry.event.n)
            place += 1
        return place


def _first_of_each(taken: Sequence[Entry]) -> list[Entry]:
    """Return the notifications without repeats."""
    found: dict[Name, Entry] = {}
    for each in taken:
        found.setdefault(each.event, each)
    return list(found.values())
