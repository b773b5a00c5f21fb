"""Fuzzing of the meaning of filters under all transformations (SPEC A-13 to A-16, B-02, B-03; DESIGN 7.1 to 7.3).

An input is a seed, of two filters and of events drawn from the values in them and their neighbours. The reference is
evaluation of the original trees. Compared with it: the normal form and the tree made of it, covering both ways,
counterexamples, and the texts of every language. If both filters are conjunctions without suffixes, contained texts and
residuals, covering has to be complete too: a filter that is not covered has a counterexample.

An input is accepted if the first filter matches one of its events; a third of all do.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from fuzz.target_runs import Broken, Target
from tests.filters.trees import random_clause, random_event, random_node
from wanderbus.errors import EventError
from wanderbus.event import Event, check_event, unencodable
from wanderbus.filters import cesql, eci, xml
from wanderbus.filters.ast import And, Exists, Node, Not, Or, Predicate, Quantified, Residual
from wanderbus.filters.counterexamples import counterexample
from wanderbus.filters.covering import covers
from wanderbus.filters.evaluate import evaluate
from wanderbus.filters.normal import NormalForm
from wanderbus.filters.normalising import normal_form, to_node

EVENTS: Final = 4
NAMES: Final = ("a", "b", "c")
_CESQL_LITERALS: Final = ("0", "1", "2", "-1", "'x'", "'xy'", "''", "'1'", "TRUE", "FALSE")
_CESQL_PATTERNS: Final = ("'x%'", "'%x'", "'%y%'", "'x_'", "'%'", "'xy'", "'x%y'", r"'\\%x'")
_CESQL_VALUES: Final = ("", "x", "xy", "yx", "xyx", "1", "true", "%x", 0, 1, 2, -1, 2**40, True, False, 0.5, 1.0)


def make(random: Random) -> bytes:
    """Return the seed of an input."""
    return b"%d" % random.getrandbits(64)


def handle_trees(data: bytes) -> bool:
    """Compare two trees on some events."""
    random = _random_of(data)
    one, other = _pair(random, residuals=random.random() < 0.2)
    events = [random_event(random, random.choice((one, other)), NAMES) for _ in range(EVENTS)]
    return _judge(one, other, events)


def examine_trees(data: bytes) -> None:
    """Write two trees, and those of their normal forms, in every language that has them, and read them."""
    for node in _pair(_random_of(data), residuals=False):
        _judge_texts(node)
        _judge_texts(to_node(normal_form(node)))


def handle_cesql(data: bytes) -> bool:
    """Compare the meaning of two CESQL texts with the trees that they parse to, and these with each other."""
    random = _random_of(data)
    texts = [_cesql(random, 2), _cesql(random, 2)]
    drawn = (Event("S", dict(_cesql_attributes(random))) for _ in range(EVENTS))
    events = [each for each in drawn if _is_publishable(each)]
    for text in texts:
        node, again = cesql.read(text), cesql.read(cesql.canonical(text))
        if node != again:
            raise Broken(f"the canonical text of {text} means something else")
        for event in events:
            if (evaluate(node, event) is True) != _is_true(text, event):
                raise Broken(f"the tree of {text} differs from it for {dict(event.attributes)}")
            if isinstance(node, Residual) and _is_true(text, event) and evaluate(node.needed, event) is not True:
                raise Broken(f"{text} is true without what it needs for {dict(event.attributes)}")
    one, other = (cesql.read(text) for text in texts)
    return _judge(one, random.choice((other, And((one, other)), And((other, random_node(random, 1))))), events)


def examine_cesql(data: bytes) -> None:
    """Write the tree of a text of CESQL in the other languages, and read it."""
    _judge_texts(cesql.read(_cesql(_random_of(data), 2)))


def _judge_texts(node: Node) -> None:
    for language in (eci, xml):
        text = language.write(node)
        if language.read(text) != node:
            raise Broken(f"not read as it was written: {text}")


def _random_of(data: bytes) -> Random:
    return Random(data.decode(errors="replace"))


def _pair(random: Random, residuals: bool) -> tuple[Node, Node]:
    """Return two filters, often related, and often both conjunctions."""
    if random.random() < 0.4:
        one, other = _conjunction(random), _conjunction(random)
    else:
        one, other = (random_node(random, 2, NAMES, residuals=residuals) for _ in range(2))
    match random.randrange(5):
        case 0:
            other = And((one, other))
        case 1:
            other = Or((one, other))
        case 2 if isinstance(one, And) and one.operands:
            other = And((*one.operands[1:], other))
    return (one, other) if random.random() < 0.5 else (other, one)


def _conjunction(random: Random) -> Node:
    return And(tuple(_question(random) for _ in range(random.choice((1, 1, 2, 3)))))


def _question(random: Random) -> Node:
    name = random.choice(NAMES)
    if random.random() < 0.1:
        return Exists(name) if random.random() < 0.5 else Not(Exists(name))
    return Quantified(random.choice(("any", "any", "all")), name, random_clause(random))


def _judge(one: Node, other: Node, events: list[Event]) -> bool:
    """Raise :class:`Broken` if a claim contradicts evaluation; return whether ``one`` matched."""
    forms = normal_form(one), normal_form(other)
    matched = False
    for event in filter(_is_publishable, events):
        truths = evaluate(one, event) is True, evaluate(other, event) is True
        for node, form, truth in zip((one, other), forms, truths, strict=True):
            if (evaluate(to_node(form), event) is True) != truth:
                raise Broken(f"the normal form differs: {_shown(node, event)}")
        _judge_covering(one, other, forms, event, truths)
        matched |= truths[0]
    for mine, its, form_pair in ((one, other, forms), (other, one, forms[::-1])):
        _judge_counterexample(mine, its, form_pair)
    return matched


def _judge_covering(
    one: Node, other: Node, forms: tuple[NormalForm, NormalForm], event: Event, truths: tuple[bool, bool]
) -> None:
    if truths == (False, True) and covers(*forms):
        raise Broken(f"unsound: {_shown(one, other, event)}")
    if truths == (True, False) and covers(*forms[::-1]):
        raise Broken(f"unsound: {_shown(other, one, event)}")


def _judge_counterexample(one: Node, other: Node, forms: tuple[NormalForm, ...]) -> None:
    found = counterexample(one, other)
    covered = covers(forms[0], forms[1])
    if found is not None and (covered or evaluate(other, found) is not True or evaluate(one, found) is True):
        raise Broken(f"no counterexample: {_shown(one, other, found)}")
    if found is None and not covered and all(_is_promised(node) for node in (one, other)) and len(forms[0]) <= 1:
        raise Broken(f"neither covered nor a counterexample: {_shown(one, other)}")


def _is_promised(node: Any) -> bool:
    """Return whether covering is complete for ``node``, if it is a conjunction."""
    match node:
        case Predicate(operator=operator):
            return operator not in ("suffix", "contains")
        case Quantified(clause=clause):
            return _is_promised(clause)
        case Not(operand=operand):
            return _is_promised(operand)
        case And(operands=operands) | Or(operands=operands):
            return all(map(_is_promised, operands))
        case _:
            return isinstance(node, Exists)


def _is_publishable(event: Event) -> bool:
    try:
        return check_event(event) is event and unencodable(event) is None
    except EventError:
        return False


def _shown(*parts: Node | Event) -> str:
    texts = (f"event {dict(part.attributes)!r}" if isinstance(part, Event) else repr(part) for part in parts)
    return " | ".join(texts)


# CESQL --------------------------------------------------------------------------------------------------------------


def _is_true(text: str, event: Event) -> bool:
    value, error = cesql.evaluate(text, event.attributes)
    return value is True and error is None


def _cesql(random: Random, depth: int) -> str:
    shape = random.random() if depth else random.random() * 0.6
    name, literal = random.choice(NAMES), random.choice(_CESQL_LITERALS)
    if shape < 0.3:
        return f"{name} {random.choice(('=', '!=', '<', '<=', '>', '>=', '<>'))} {literal}"
    if shape < 0.4:
        return f"{name} {random.choice(('', 'NOT '))}LIKE {random.choice(_CESQL_PATTERNS)}"
    if shape < 0.5:
        return f"{name} {random.choice(('', 'NOT '))}IN ({literal}, {random.choice(_CESQL_LITERALS)})"
    if shape < 0.55:
        return f"EXISTS {name}"
    if shape < 0.6:
        return f"{name} {random.choice('+-*/%')} {literal} = {random.choice(_CESQL_LITERALS)}"
    if shape < 0.7:
        return f"NOT ({_cesql(random, depth - 1)})"
    joint = random.choice(("AND", "AND", "OR", "OR", "XOR"))
    return f"({_cesql(random, depth - 1)}) {joint} ({_cesql(random, depth - 1)})"


def _cesql_attributes(random: Random) -> Iterator[tuple[str, Any]]:
    for name in NAMES:
        chance = random.random()
        if chance < 0.1:
            yield name, [random.choice(_CESQL_VALUES) for _ in range(random.randrange(4))]
        elif chance < 0.85:
            yield name, random.choice(_CESQL_VALUES)


TARGETS: Final = (
    Target("meaning-trees", make, handle_trees, examine_trees),
    Target("meaning-cesql", make, handle_cesql, examine_cesql),
)
