"""Filters as in the published experiment on merging, scaled (EVALUATIONS E4): random schemas, uniform constraints.

A schema is 2, 3 or 4 attributes, each an integer, a double, a boolean or a string. A filter asks each attribute of a
random schema: a number below 1,000 with ``==``, ``<`` or ``>``, and one of 100 strings or a boolean with ``==``. All
draws are uniform. Published are 20 filters a schema; the bench also has a thousand, and one schema for them all.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from typing import Final

PER_SCHEMA: Final = 20
KINDS: Final = ("integer", "double", "boolean", "string")
RANGE: Final = 1_000
STRINGS: Final = 100

Schema = tuple[tuple[str, str], ...]


def texts(count: int, schemas: int, seed: int = 0) -> Iterator[str]:
    """Give ``count`` filters of so many schemas, as ECI expressions."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(string.ascii_lowercase, k=8)) for _ in range(STRINGS)]
    drawn = [schema(rng, number) for number in range(schemas)]
    for _ in range(count):
        yield " and ".join(f"{name} {_condition(rng, kind, words)}" for name, kind in rng.choice(drawn))


def schema(rng: random.Random, number: int) -> Schema:
    """Return the names and types of a random schema; no other schema has its names."""
    return tuple((f"a{number}.{place}", rng.choice(KINDS)) for place in range(rng.choice((2, 3, 4))))


def one_schema(count: int) -> Iterator[str]:
    """Give filters that are all of one structure, and of every type: what most of them differ in."""
    rng = random.Random(0)
    words = ["".join(rng.choices(string.ascii_lowercase, k=8)) for _ in range(STRINGS)]
    for _ in range(count):
        yield " and ".join(f"{kind} {_condition(rng, kind, words)}" for kind in KINDS)


def _condition(rng: random.Random, kind: str, words: list[str]) -> str:
    match kind:
        case "integer":
            return f"{rng.choice(('==', '<', '>'))} {rng.randrange(RANGE)}"
        case "double":
            return f"{rng.choice(('==', '<', '>'))} {rng.random() * RANGE}"
        case "boolean":
            return f"== {rng.choice(('true', 'false'))}"
        case _:
            return f"== {rng.choice(words)}"
