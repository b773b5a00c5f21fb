"""Tables of an automaton at run time: the effect of an event on a partial match, by stage and leaves.

An event is known by the bits of the leaves that it matches, so each table is filled once and then looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wanderbus.patterns.automaton import EDGE_SHIFT, LOOP, Automaton, Denial, Effect, Joint, Stage, Transition
from wanderbus.patterns.costs import cost_of, reaction_cost
from wanderbus.patterns.evaluation import compile_expression
from wanderbus.patterns.tree import Step

KNOWN_MAX: Final = 8_192
"""Targets in the tables together; with more, they are filled again. Publishers choose the leaves of their events."""


class Tables:
    """The reactions of an automaton's stages, and the edges that are open at each."""

    def __init__(self, automaton: Automaton, steps: Sequence[Step], attributes: Mapping[str, int]) -> None:
        self.stages = automaton.stages
        self.starts = automaton.starts
        self.uses = any(stage.uses for stage in automaton.stages)
        """True if a condition refers to earlier events."""
        self._where = [None if step.where is None else compile_expression(step.where, attributes) for step in steps]
        self._conditions = [cost_of(step.where) for step in steps]
        self._reactions: list[dict[int, Effect | None]] = [{} for _ in automaton.stages]
        self._firsts: dict[int, tuple[Transition, ...]] = {}
        self._known = 0
        self.made = 0
        """Entries made so far, in units of their size."""
        self.end_edges = [
            sum(bit for bit, _ in _ends_of(stage)) if stage.waits_for_end else 0 for stage in automaton.stages
        ]
        """Edges of each stage to the end of the pattern that wait for an absence."""

    def reaction(self, stage: int, leaves: int) -> Effect | None:
        """Return the effect of an event with ``leaves`` at ``stage``; None for no effect."""
        known = self._reactions[stage]
        if leaves not in known:
            made = self._make(self.stages[stage], leaves)
            self._bound(1 if made is None else 1 + len(made.targets))
            known[leaves] = made
        return known[leaves]

    def firsts(self, leaves: int) -> tuple[Transition, ...]:
        """Return the stages at which an event with ``leaves`` may begin a match."""
        found = self._firsts.get(leaves)
        if found is None:
            found = tuple(self._target(0, place) for place in self.starts if self._takes(place, leaves))
            self._bound(1 + len(found))
            self._firsts[leaves] = found
        return found

    def _bound(self, more: int) -> None:
        """Count an entry that is added, and forget all others first if they would be too many."""
        self.made += more
        self._known += more
        if self._known > KNOWN_MAX:
            self._known = more
            for each in self._reactions:
                each.clear()
            self._firsts.clear()

    def open_edges(self, place: int, count: int) -> int:
        """Return the edges that are open after the ``count``-th event at a stage."""
        stage = self.stages[place]
        if count < stage.least:
            return LOOP
        edges: int = ((1 << len(stage.edges)) - 1) << EDGE_SHIFT
        if stage.most is None or count < stage.most:
            edges |= LOOP
        return edges | self.end_edges[place]

    def is_end(self, place: int, count: int) -> bool:
        """Return whether a match ends at once with the ``count``-th event at a stage."""
        stage = self.stages[place]
        return count >= stage.least and stage.ends_at_once

    def _takes(self, place: int, leaves: int) -> bool:
        return bool(leaves >> self.stages[place].step & 1)

    def _target(self, bits: int, place: int) -> Transition:
        step = self.stages[place].step
        return Transition(bits, place, step, self._where[step])

    def _make(self, stage: Stage, leaves: int) -> Effect | None:
        bits: dict[int, int] = {}
        closes = 0
        denied: dict[int, int] = {}
        joints = [(1 << number + EDGE_SHIFT, edge.joint) for number, edge in enumerate(stage.edges)]
        for number, edge in enumerate(stage.edges):
            if self._takes(edge.target, leaves):
                bits[edge.target] = bits.get(edge.target, 0) | 1 << number + EDGE_SHIFT
        if stage.waits_for_end:
            joints += _ends_of(stage)
        for bit, joint in joints:
            closes |= bit if joint.is_next else 0
            for step in joint.absent:
                if leaves >> step & 1:
                    denied[step] = denied.get(step, 0) | bit
        denials = []
        for step, edges in denied.items():
            where = self._where[step]
            if where is None:
                closes |= edges
            else:
                denials.append(Denial(edges, step, where))
        loops = stage.most != 1 and self._takes(stage.place, leaves)
        if not (bits or closes or denials or loops):
            return None
        targets = tuple(self._target(edges, place) for place, edges in bits.items())
        loop = self._target(LOOP, stage.place) if loops else None
        several = [*targets, loop] if loop is not None else targets
        cost = reaction_cost([each.step for each in several], [each.step for each in denials], self._conditions)
        concerned = LOOP if loops else 0
        for edges in (*bits.values(), *denied.values()):
            concerned |= edges
        return Effect(targets, loop, closes, tuple(denials), concerned, cost)


def _ends_of(stage: Stage) -> list[tuple[int, Joint]]:
    """Return the bit of each end of the pattern at a stage, behind those of its edges."""
    first = len(stage.edges) + EDGE_SHIFT
    return [(1 << first + number, joint) for number, joint in enumerate(stage.ends)]
