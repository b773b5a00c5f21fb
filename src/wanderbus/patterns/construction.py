"""Construction of the automaton from the tree, by the method of Glushkov: no empty transitions.

A fragment of the pattern has the stages at which it can begin and end, each with the joint between the fragment's edge
and that stage, and the joints of the ways through it that take no event. A negated step is a fragment without
stages; so is the other way through an optional step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import Final, NoReturn

from wanderbus.errors import PatternError
from wanderbus.patterns.automaton import Automaton, Edge, Fragment, Joint, Stage
from wanderbus.patterns.tree import (
    Absent,
    Aggregate,
    Both,
    Constant,
    Count,
    Declaration,
    Either,
    Expression,
    Part,
    Series,
    Take,
    Then,
)
from wanderbus.work import WorkBudget, WorkExceeded

STAGES_MAX: Final = 500
"""Stages of one automaton; ``and`` of n parts needs n! orders."""

BOTH_MAX: Final = 5
"""Parts that one ``and`` joins."""

EDGES_MAX: Final = 60
"""Edges from one stage."""

CONSTRUCTION_WORK_MAX: Final = 3_000_000
"""Units of work to construct one automaton, about 30 ms: ways through optional and negated parts multiply."""

_WAY: Final = 150
"""Units of work of one way from one step to another."""


def construct(declaration: Declaration) -> Automaton:
    """Return the automaton; raise :class:`PatternError` for a pattern that cannot be one."""
    return _Construction(declaration, WorkBudget(CONSTRUCTION_WORK_MAX)).automaton()


def uses_of(expression: Expression | None) -> frozenset[int]:
    """Return the steps to which an expression refers."""
    match expression:
        case None | Constant():
            return frozenset()
        case Series(step=step) | Count(step=step) | Aggregate(series=Series(step=step)):
            return frozenset({step})
        case _:
            return frozenset().union(*map(uses_of, expression.operands))


class _Construction:
    """The stages and edges made so far."""

    def __init__(self, declaration: Declaration, budget: WorkBudget) -> None:
        self._declaration = declaration
        self._budget = budget
        self._steps: list[int] = []
        self._edges: dict[int, dict[int, dict[Joint, None]]] = {}

    def automaton(self) -> Automaton:
        try:
            return self._automaton()
        except WorkExceeded:
            self._fail(0, "there are too many ways through optional and negated steps; simplify the pattern")

    def _automaton(self) -> Automaton:
        whole = self._fragment(self._declaration.root)
        self._check_ends(whole)
        self._check_references()
        ends: dict[int, dict[Joint, None]] = {}
        for place, joint in whole.lasts:
            ends.setdefault(place, {})[Joint(False, joint.absent)] = None
        self._check_edges()
        uses = self._uses(ends)
        stages = tuple(self._position(place, ends.get(place, ()), uses[place]) for place in range(len(self._steps)))
        return Automaton(stages, tuple(sorted({place for _, place in whole.firsts})))

    def _check_edges(self) -> None:
        for place, targets in self._edges.items():
            if sum(map(len, targets.values())) > EDGES_MAX:
                self._fail(self._steps[place], f"more than {EDGES_MAX} steps can follow this one; simplify the pattern")

    def _position(self, place: int, ends: Iterable[Joint], uses: frozenset[int]) -> Stage:
        step = self._declaration.steps[self._steps[place]]
        targets = sorted(self._edges[place].items())
        edges = tuple(Edge(target, joint) for target, joints in targets for joint in joints)
        return Stage(place, self._steps[place], max(step.least, 1), step.most, edges, tuple(ends), uses)

    def _fragment(self, part: Part) -> Fragment:
        match part:
            case Take(step=step):
                place = self._new_place(step)
                empties = [Joint()] if self._declaration.steps[step].least == 0 else []
                return Fragment([(Joint(), place)], [(place, Joint())], empties)
            case Absent(step=step):
                return Fragment([], [], [Joint(absent=(step,))])
            case Then(parts=parts, is_next=is_next):
                found = self._fragment(parts[0])
                for following, joint in zip(parts[1:], is_next, strict=True):
                    found = self._joined(found, Joint(joint), self._fragment(following))
                return found
            case Either(parts=parts):
                return _union([self._fragment(each) for each in parts])
            case Both(parts=parts):
                return self._in_any_order(parts)

    def _in_any_order(self, parts: Sequence[Part]) -> Fragment:
        if len(parts) > BOTH_MAX:
            self._fail(0, f"'and' joins at most {BOTH_MAX} parts")
        for part in parts:
            _Construction(self._declaration, self._budget)._check_part_of_both(part)
        return _union(
            [self._fragment(Then(order, (False,) * (len(order) - 1))) for order in permutations(tuple(parts))]
        )

    def _new_place(self, step: int) -> int:
        if len(self._steps) == STAGES_MAX:
            self._fail(step, f"the automaton has more than {STAGES_MAX} stages; join fewer parts with 'and'")
        self._steps.append(step)
        self._edges[len(self._steps) - 1] = {}
        return len(self._steps) - 1

    def _joined(self, one: Fragment, joint: Joint, other: Fragment) -> Fragment:
        befores, afters = len(one.lasts) + len(one.empties), len(other.firsts) + len(other.empties)
        self._budget.spend(_WAY * befores * afters)
        for place, before in one.lasts:
            for after, target in other.firsts:
                self._edges[place].setdefault(target, {})[_sum(before, joint, after)] = None
        firsts = one.firsts + [
            (_sum(empty, joint, after), target) for empty in one.empties for after, target in other.firsts
        ]
        lasts = other.lasts + [
            (place, _sum(before, joint, empty)) for empty in other.empties for place, before in one.lasts
        ]
        empties = [_sum(before, joint, after) for before in one.empties for after in other.empties]
        return Fragment(firsts, lasts, _distinct(empties))

    def _uses(self, ends: dict[int, dict[Joint, None]]) -> list[frozenset[int]]:
        """Return for each stage the steps to which conditions refer that are evaluated after it."""
        steps = self._declaration.steps
        own: list[frozenset[int]] = []
        for place, step in enumerate(self._steps):
            joints = [joint for several in self._edges[place].values() for joint in several]
            joints += ends.get(place, ())
            conditions = [steps[absent].where for joint in joints for absent in joint.absent]
            conditions += [steps[self._steps[target]].where for target in self._edges[place]]
            conditions += [steps[step].where] if steps[step].most != 1 else []
            own.append(frozenset().union(*map(uses_of, conditions)))
        while True:
            self._budget.spend(sum(map(len, self._edges.values())) * _WAY)
            wider = [uses.union(*(own[target] for target in self._edges[place])) for place, uses in enumerate(own)]
            if wider == own:
                return own
            own = wider

    # Checks -----------------------------------------------------------------------------------------------------------

    def _check_ends(self, whole: Fragment) -> None:
        for joint, _ in whole.firsts:
            if joint.absent:
                self._fail(joint.absent[0], "a match cannot begin with 'not': put a step before it")
        if whole.empties:
            absent = whole.empties[0].absent
            reason = (
                "a match cannot begin with 'not': put a step before it" if absent else "one step must take an event"
            )
            self._fail(absent[0] if absent else 0, reason)

    def _check_part_of_both(self, part: Part) -> None:
        """Check that a part of ``and`` takes events of its own, so that a match shows the order of the parts."""
        found = self._fragment(part)
        for joint in (*found.empties, *(joint for joint, _ in found.firsts), *(joint for _, joint in found.lasts)):
            if joint.absent:
                self._fail(joint.absent[0], "within 'and', 'not' stands between two steps of one part")
        if found.empties:
            self._fail(self._steps[0], "every part of 'and' must take an event: begin its repetition at 1")

    def _check_references(self) -> None:
        steps = self._declaration.steps
        before = self._steps_before()
        for reference in self._declaration.references:
            name, owner = steps[reference.step].name, reference.owner
            if owner == reference.step:
                continue
            if steps[reference.step].is_negated:
                self._fail_at(reference.position, f"'{name}' stands behind 'not': a match has no event of it")
            if owner is not None and not steps[owner].is_negated and reference.step not in before[owner]:
                self._fail_at(reference.position, f"'{name}' never comes before '{steps[owner].name}'")

    def _steps_before(self) -> dict[int, set[int]]:
        """Return for each step the steps that a match can have taken before it."""
        before: list[set[int]] = [set() for _ in self._steps]
        changed = True
        while changed:
            changed = False
            self._budget.spend(sum(map(len, self._edges.values())) * _WAY)
            for place, targets in self._edges.items():
                known = before[place] | {self._steps[place]}
                for target in targets:
                    changed |= not known <= before[target]
                    before[target] |= known
        found: dict[int, set[int]] = {}
        for place, step in enumerate(self._steps):
            found.setdefault(step, set()).update(before[place])
        return found

    def _fail(self, step: int, reason: str) -> NoReturn:
        self._fail_at(self._declaration.positions[step], reason)

    def _fail_at(self, position: int, reason: str) -> NoReturn:
        raise PatternError(reason, self._declaration.text, position)


def _union(fragments: Sequence[Fragment]) -> Fragment:
    firsts = [first for each in fragments for first in each.firsts]
    lasts = [last for each in fragments for last in each.lasts]
    return Fragment(firsts, lasts, _distinct([empty for each in fragments for empty in each.empties]))


def _sum(*joints: Joint) -> Joint:
    absent = dict.fromkeys(step for joint in joints for step in joint.absent)
    return Joint(any(joint.is_next for joint in joints), tuple(absent))


def _distinct(joints: Iterable[Joint]) -> list[Joint]:
    return list(dict.fromkeys(joints))
