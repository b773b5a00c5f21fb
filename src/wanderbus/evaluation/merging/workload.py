"""Schemas, subscriptions and events of one replication, all drawn from one seed.

A range of values is a list of places in order, and a constraint is the set of places for which it holds: so the meaning
of a filter is known here without evaluating it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from random import Random
from string import ascii_lowercase
from typing import Final

import msgspec

from wanderbus.evaluation.merging.mixes import Events, Mix, Operator, Structures, Type, Values
from wanderbus.event import Event

SCHEMAS: Final = 10
SUBSCRIPTIONS: Final = 200
STRINGS: Final = 100
NUMBER_RANGE: Final = 1_000
"""Exclusive upper bound of numbers, which start at 0."""

NAMES: Final = 100
"""Random attribute names that schemas draw from; the paper does not say how many there were."""

SUBJECT: Final = "Merging"

_HUNDREDTHS: Final = 100
"""Resolution of doubles: whole hundredths."""

_COARSE_PLACES: Final = 10

Places = tuple[range, ...]
"""Ranges of places: disjoint, ascending, none of them empty."""


class SchemaAttribute(msgspec.Struct, frozen=True):
    """One tuple of a schema: a name, a type, and the values of that type in order."""

    name: str
    type: Type
    values: Sequence[str | int | float | bool]


class Constraint(msgspec.Struct, frozen=True):
    """Constraint of a subscription on one attribute, as an expression, and the places of values that satisfy it."""

    text: str
    places: Places


class WorkloadSubscription(msgspec.Struct, frozen=True):
    """A constraint for each attribute of a schema."""

    schema: int
    constraints: tuple[Constraint, ...]

    @property
    def text(self) -> str:
        """Return the expression of interest."""
        return " and ".join(constraint.text for constraint in self.constraints)


class Trial(msgspec.Struct, frozen=True):
    """An event of a schema."""

    schema: int
    event: Event


class Workload(msgspec.Struct, frozen=True):
    """A replication."""

    mix: Mix
    schemas: tuple[tuple[SchemaAttribute, ...], ...]
    subscriptions: tuple[WorkloadSubscription, ...]

    def first(self, count: int) -> Workload:
        """Return the same with only the first ``count`` subscriptions."""
        return msgspec.structs.replace(self, subscriptions=self.subscriptions[:count])

    def trials(self, count: int, random: Random) -> list[Trial]:
        """Return ``count`` events, of the kind that the mix specifies; only of schemas with subscriptions."""
        ranges = {number: self._ranges(number) for number in {each.schema for each in self.subscriptions}}
        choice = sorted(ranges)
        return [self._trial(number, ranges[number], random) for number in random.choices(choice, k=count)]

    def _trial(self, schema: int, ranges: list[Places], random: Random) -> Trial:
        attributes = zip(self.schemas[schema], ranges, strict=True)
        return Trial(
            schema, Event(SUBJECT, {each.name: each.values[one_of(places, random)] for each, places in attributes})
        )

    def _ranges(self, schema: int) -> list[Places]:
        """Return, for each attribute of the schema, the places that its values are drawn from."""
        attributes = self.schemas[schema]
        if self.mix.events is Events.UNIFORM:
            return [(range(len(each.values)),) for each in attributes]
        own = [each.constraints for each in self.subscriptions if each.schema == schema]
        return [union(asked[number].places for asked in own) for number in range(len(attributes))]


def workload(mix: Mix, tuples: int, seed: int, subscriptions: int = SUBSCRIPTIONS) -> Workload:
    """Return the replication of ``seed``, with schemas of ``tuples`` tuples."""
    random = Random(f"{mix.name}/{tuples}/{seed}")
    own = mix.structures is Structures.OWN
    schemas = _schemas(mix, tuples, subscriptions if own else SCHEMAS, random)
    made = []
    for number in range(subscriptions):
        drawn = mix.structures is Structures.DRAWN
        schema = random.randrange(len(schemas)) if drawn else number % len(schemas)
        made.append(WorkloadSubscription(schema, tuple(_constraint(mix, each, random) for each in schemas[schema])))
    return Workload(mix, schemas, tuple(made))


def union(all_places: Iterable[Places]) -> Places:
    """Return the places that are in some of ``all_places``."""
    merged: list[range] = []
    for each in sorted((one for places in all_places for one in places), key=lambda one: one.start):
        if merged and each.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, each.stop))
        else:
            merged.append(each)
    return tuple(merged)


def one_of(places: Places, random: Random) -> int:
    """Return one of ``places``, drawn uniformly."""
    left = random.randrange(sum(map(len, places)))
    for each in places:
        if left < len(each):
            return each[left]
        left -= len(each)
    raise AssertionError("the number of positions equals the sum of lengths")


def _schemas(mix: Mix, tuples: int, count: int, random: Random) -> tuple[tuple[SchemaAttribute, ...], ...]:
    """Return schemas of random names and types, with different names unless each subscription has its own schema."""
    names, strings = (sorted(_random_strings(random, size)) for size in (NAMES, STRINGS))
    values: dict[Type, Sequence[str | int | float | bool]] = {
        "integer": range(NUMBER_RANGE),
        "double": [place / _HUNDREDTHS for place in range(NUMBER_RANGE * _HUNDREDTHS)],
        "boolean": (False, True),
        "string": strings,
    }
    schemas: list[tuple[SchemaAttribute, ...]] = []
    taken: set[frozenset[str]] = set()
    while len(schemas) < count:
        chosen = random.sample(names, tuples)
        if mix.structures is not Structures.OWN and frozenset(chosen) in taken:
            continue
        taken.add(frozenset(chosen))
        types = random.choices(mix.types, k=tuples)
        schemas.append(
            tuple(
                SchemaAttribute(name.capitalize(), type_, values[type_])
                for name, type_ in zip(chosen, types, strict=True)
            )
        )
    return tuple(schemas)


def _random_strings(random: Random, count: int) -> set[str]:
    found: set[str] = set()
    while len(found) < count:
        found.add("".join(random.choices(ascii_lowercase, k=random.randint(4, 10))))
    return found


def _constraint(mix: Mix, attribute: SchemaAttribute, random: Random) -> Constraint:
    """Return a constraint that some value satisfies; unsatisfiable ones are drawn again."""
    operators: tuple[Operator, ...]
    match attribute.type:
        case "boolean":
            operators = ("==",)
        case "string":
            operators = mix.strings
        case _:
            operators = mix.numbers
    while True:
        first, second = sorted(_draw(mix.values, len(attribute.values), random) for _ in range(2))
        operator = random.choice(operators)
        place = random.choice((first, second))
        if operator == "between":
            constraint = _between(attribute, first, second)
        elif operator == "prefix":
            constraint = _prefix(attribute, place)
        else:
            constraint = _comparison(attribute, operator, place)
        if constraint.places:
            return constraint


def _draw(values: Values, count: int, random: Random) -> int:
    match values:
        case Values.UNIFORM:
            return random.randrange(count)
        case Values.CLUSTERED:
            return int(sum(random.random() for _ in range(3)) / 3 * count)
        case Values.COARSE:
            return int((random.randrange(_COARSE_PLACES) + 0.5) / _COARSE_PLACES * count)


def _between(attribute: SchemaAttribute, first: int, last: int) -> Constraint:
    low, high = (_literal(attribute.values[place]) for place in (first, last))
    return Constraint(f"({attribute.name} >= {low} and {attribute.name} <= {high})", (range(first, last + 1),))


def _prefix(attribute: SchemaAttribute, place: int) -> Constraint:
    """Return the constraint that a string begins with the same letter as the one at ``place``."""
    strings = attribute.values
    assert isinstance(strings, list)
    letter = strings[place][0]
    places = range(bisect_left(strings, letter), bisect_left(strings, chr(ord(letter) + 1)))
    return Constraint(f"{attribute.name} prefix {_literal(letter)}", (places,))


def _comparison(attribute: SchemaAttribute, operator: Operator, place: int) -> Constraint:
    count = len(attribute.values)
    places = {
        "==": (range(place, place + 1),),
        "!=": (range(place), range(place + 1, count)),
        "<": (range(place),),
        "<=": (range(place + 1),),
        ">": (range(place + 1, count),),
        ">=": (range(place, count),),
    }[operator]
    text = f"{attribute.name} {operator} {_literal(attribute.values[place])}"
    return Constraint(text, tuple(each for each in places if each))


def _literal(value: str | int | float | bool) -> str:
    return msgspec.json.encode(value).decode()
