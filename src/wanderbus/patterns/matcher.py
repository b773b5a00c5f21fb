"""Matching of one key's events, in order of time and offset, against the tables of an automaton (SPEC T-07).

A partial match that an event continues stays as it is too: it may take a later event instead. Only a repetition never
skips an event that it could take. Where one match for each first event is wanted, partial matches with the same future
are reduced to the one that precedes the others in the order of matches.

Order of matches: by the events in turn, an earlier event first, a longer match before its own beginning.
"""

from __future__ import annotations

from collections.abc import Iterable

from wanderbus.patterns.automaton import LOOP, Effect, MatchNode, Seen, Transition, node_after
from wanderbus.patterns.bounds import Bounds
from wanderbus.patterns.costs import COMPARE, ENTRY, EVENT, LOOK, REDUCE
from wanderbus.patterns.reactions import Tables
from wanderbus.patterns.state import NEVER_US, Counts, KeyState, Order, PartialMatch, PatternState, order_of
from wanderbus.patterns.tree import Selection
from wanderbus.patterns.turns import Turn

Ended = tuple[int, MatchNode]
"""Time at which a match was complete, and its last event."""


class PatternMatcher:
    """The automaton of one pattern with its bounds; it has no state of its own."""

    def __init__(self, tables: Tables, within_us: int, selection: Selection, bounds: Bounds) -> None:
        self._tables = tables
        self._within_us = within_us
        self._selection = selection
        self._partial_max = bounds.partial_matches_max
        self._events_max = bounds.events_per_match_max
        self._work_max = bounds.work_per_event_max

    def advance(self, key: KeyState, watermark_us: int, counts: Counts) -> list[Ended]:
        """Process the waiting events below the watermark and end partial matches whose time ended below it."""
        complete: list[Ended] = []
        for seen in self._ready(key, watermark_us):
            if key.expires_us < seen.time_us:
                self._expire(key, seen.time_us, complete)
            # Without conditions on earlier events, the bound on partial matches bounds the work.
            if not self._tables.uses or self.work(key, seen) <= self._work_max:
                self._take(key, seen, counts, complete)
                counts.events += 1
            else:
                counts.left_out += 1
        if key.expires_us < watermark_us:
            self._expire(key, watermark_us, complete)
        self.settle(key, min((time_us for time_us, _ in key.waiting), default=NEVER_US))
        return complete

    def step(self, key: KeyState, place: tuple[int, int], state: PatternState, turn: Turn) -> list[Ended]:
        """Process the first waiting event of a key, which is at ``place``, unless the turn leaves it out."""
        seen, counts = key.take(place), state.counts
        complete: list[Ended] = []
        units, made = 0, self._tables.made
        if turn.counts_work:
            units = self.work(key, seen)
            turn.spend(ENTRY * (self._tables.made - made))
        if turn.takes(seen, units, state.kept):
            self._take(key, seen, counts, complete)
            counts.events += 1
        else:
            counts.left_out += 1
        return complete

    def end(self, key: KeyState, turn: Turn) -> list[Ended]:
        """End the partial matches of a key whose time ends next."""
        complete: list[Ended] = []
        if turn.counts_work:
            turn.spend(EVENT + LOOK * len(key.runs))
        self._expire(key, key.expires_us + 1, complete)
        return complete

    def settle(self, key: KeyState, first_us: int) -> None:
        """Set the time at which a key is due, after its events; ``first_us`` is that of the first one that waits."""
        key.expires_us = _first_deadline(key.runs)
        key.due_us = min(first_us, key.expires_us)

    def work(self, key: KeyState, seen: Seen) -> int:
        """Return the most units of work that an event takes at the partial matches of its key."""
        reaction, leaves, runs = self._tables.reaction, seen.leaves, key.runs
        units, are_several = EVENT + LOOK * len(runs), len(runs) > 1 and self._selection != "every"
        is_continued = False
        for run in runs:
            found = reaction(run.stage, leaves)
            if found is not None and found.concerned & run.open:
                is_continued = True
                fixed, each = found.cost
                units += fixed + each * run.node.units
        if is_continued and are_several:
            units += REDUCE * len(runs) + (COMPARE * (key.kept - key.waiting_units) if self._tables.uses else 0)
        return units

    def _ready(self, key: KeyState, watermark_us: int) -> list[Seen]:
        """Remove the events below the watermark from those that wait; return them in order."""
        waiting = key.waiting
        places = sorted(place for place in waiting if place[0] < watermark_us)
        if len(places) == len(waiting):
            ready = [waiting[place] for place in places]
            waiting.clear()
            key.waiting_units = 0
            return ready
        return [key.take(place) for place in places]

    # One event --------------------------------------------------------------------------------------------------------

    def _take(self, key: KeyState, seen: Seen, counts: Counts, complete: list[Ended]) -> None:
        made: list[PartialMatch] = []
        done: list[MatchNode] = []
        if key.runs:
            tables, leaves = self._tables, seen.leaves
            kept = []
            for run in key.runs:
                reaction = tables.reaction(run.stage, leaves)
                if reaction is None or self._react(run, reaction, seen, made, done, counts):
                    kept.append(run)
            if made and self._selection != "every" and len(kept) + len(made) > 1:
                kept, made = self._reduced(kept, made)
            key.runs = kept
        for target in self._tables.firsts(seen.leaves):
            node = node_after(None, target.step, seen)
            if target.where is None or target.where(node) is True:
                self._reach(target, node, seen, 1, seen.time_us + self._within_us, made, done)
        if done:
            made = self._finish(key, made, done, seen.time_us, complete)
        if made:
            self._keep(key, made, counts)

    def _react(
        self,
        run: PartialMatch,
        reaction: Effect,
        seen: Seen,
        made: list[PartialMatch],
        done: list[MatchNode],
        counts: Counts,
    ) -> bool:
        """Continue a partial match with an event where it can; return whether it stays too."""
        targets, loop, closes, denials, *_ = reaction
        edges = run.open
        before = run.node
        if before.length >= self._events_max and (targets or loop):
            counts.long += 1
            targets, loop = (), None
        for target in targets:
            if edges & target.bits:
                node = node_after(before, target.step, seen)
                if target.where is None or target.where(node) is True:
                    self._reach(target, node, run.start, 1, run.deadline_us, made, done)
        if loop is not None and edges & LOOP:
            node = node_after(before, loop.step, seen)
            if loop.where is None or loop.where(node) is True:
                self._reach(loop, node, run.start, run.count + 1, run.deadline_us, made, done)
                edges &= ~LOOP
        edges &= ~closes
        for denial in denials:
            if edges & denial.bits and denial.where(MatchNode(before, denial.step, seen, 0, 0)) is True:
                edges &= ~denial.bits
        run.open = edges
        return edges != 0

    def _reach(
        self,
        target: Transition,
        node: MatchNode,
        start: Seen,
        count: int,
        deadline_us: int,
        made: list[PartialMatch],
        done: list[MatchNode],
    ) -> None:
        """Put a partial match at a stage that it has reached with its latest event."""
        place = target.stage
        if self._tables.is_end(place, count):
            done.append(node)
        edges = self._tables.open_edges(place, count)
        if edges:
            made.append(PartialMatch(node, start, place, count, edges, deadline_us))

    def _keep(self, key: KeyState, made: list[PartialMatch], counts: Counts) -> None:
        room = self._partial_max - len(key.runs)
        if len(made) > room:
            counts.partial_full += len(made) - room
            del made[room:]
        key.runs += made
        for run in made:
            key.expires_us = min(key.expires_us, run.deadline_us)

    def _reduced(
        self, kept: list[PartialMatch], made: list[PartialMatch]
    ) -> tuple[list[PartialMatch], list[PartialMatch]]:
        """Return the partial matches without those that have the same future as one that precedes them."""
        best: dict[tuple[object, ...], PartialMatch] = {}
        for run in (*kept, *made):
            future = self._future(run)
            other = best.get(future)
            if other is None or order_of(run.node) < order_of(other.node):
                best[future] = run
        left = {id(run) for run in best.values()}
        return [run for run in kept if id(run) in left], [run for run in made if id(run) in left]

    def _future(self, run: PartialMatch) -> tuple[object, ...]:
        """Return all that decides about the events that a partial match can still take."""
        stage = self._tables.stages[run.stage]
        count = min(run.count, stage.least) if stage.most is None else run.count
        uses = stage.uses
        used = [(step, *place) for *place, step in order_of(run.node)[:-1] if step in uses] if uses else ()
        return (run.start.time_us, run.start.offset, run.stage, count, run.open, *used)

    # Complete matches -------------------------------------------------------------------------------------------------

    def _finish(
        self, key: KeyState, made: list[PartialMatch], done: Iterable[MatchNode], at_us: int, complete: list[Ended]
    ) -> list[PartialMatch]:
        """Detect the matches that are complete at once, as far as the pattern selects them.

        Return the partial matches of ``made`` that go on; remove those of the key that do not.
        """
        ordered = _in_order(done)
        if self._selection == "past":
            del ordered[1:]
            key.runs = made = []
        elif self._selection == "first":
            firsts = {_start_of(order): (order, node) for order, node in reversed(ordered)}
            ordered = sorted(firsts.values(), key=_order_alone)
            key.runs = [run for run in key.runs if (run.start.time_us, run.start.offset) not in firsts]
            made = [run for run in made if (run.start.time_us, run.start.offset) not in firsts]
        complete += [(at_us, node) for _, node in ordered]
        if not key.runs:
            key.expires_us = NEVER_US
        return made

    def _expire(self, key: KeyState, before_us: int, complete: list[Ended]) -> None:
        """End the partial matches whose time ends before ``before_us``; those that wait for an absence are complete."""
        ended = [run for run in key.runs if run.deadline_us < before_us]
        key.runs = [run for run in key.runs if run.deadline_us >= before_us]
        waited = [run for run in ended if run.open & self._tables.end_edges[run.stage]]
        if waited:
            self._finish_at_deadlines(key, waited, complete)
        key.expires_us = _first_deadline(key.runs)

    def _finish_at_deadlines(self, key: KeyState, waited: list[PartialMatch], complete: list[Ended]) -> None:
        deadlines = {id(run.node): run.deadline_us for run in waited}
        ordered = _in_order(run.node for run in waited)
        last: tuple[int, int] | None = None
        for order, node in sorted(ordered, key=lambda each: (deadlines[id(each[1])], each[0])):
            start = _start_of(order)
            if last is not None and (start == last if self._selection == "first" else start <= last):
                continue
            complete.append((deadlines[id(node)], node))
            if self._selection == "first":
                last = start
            elif self._selection == "past":
                last = (node.seen.time_us, node.seen.offset)
        if self._selection == "past" and last is not None:
            key.runs = [run for run in key.runs if (run.start.time_us, run.start.offset) > last]


def _first_deadline(runs: list[PartialMatch]) -> int:
    return min([run.deadline_us for run in runs], default=NEVER_US)


def _start_of(order: Order) -> tuple[int, int]:
    time_us, offset, _ = order[0]
    return time_us, offset


def _order_alone(match: tuple[Order, MatchNode]) -> Order:
    return match[0]


def _in_order(nodes: Iterable[MatchNode]) -> list[tuple[Order, MatchNode]]:
    """Return matches in order, each once: with ``and`` two ways can lead to the same one."""
    found = {tuple(order): (order, node) for node in nodes if (order := order_of(node))}
    return [found[order] for order in sorted(found)]
