"""Readings of the paper's workload: constraints of subscriptions, and the events to evaluate them.

All follow what the paper states: 10 schemas, 200 subscriptions, 2 to 4 tuples, integer, double, Boolean and string
constraints, 100 random strings, a number range of 1000, everything uniform. A mix that deviates says so in its
description.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

import msgspec

from wanderbus.errors import ConfigurationError

Type = Literal["integer", "double", "boolean", "string"]
"""Types of an attribute; integer and double are one kind to filters, and so one structure."""

Operator = Literal["==", "!=", "<", "<=", ">", ">=", "between", "prefix"]
"""Operators of a constraint; ``between`` is two-sided, a ``>=`` and a ``<=``."""


class Structures(StrEnum):
    """Assignment of schemas to subscriptions."""

    IN_TURN = "in turn"
    """Every schema has equally many."""

    DRAWN = "drawn"
    """Each subscription draws its schema."""

    OWN = "own"
    """Each subscription has a random schema of its own (SPEC B-11)."""


class Values(StrEnum):
    """Distribution of the ends of constraints in their range."""

    UNIFORM = "uniform"

    CLUSTERED = "clustered"
    """Around the middle, as the mean of three uniform draws."""

    COARSE = "coarse"
    """Ten places of the range, so that subscribers often have equal constraints."""


class Events(StrEnum):
    """Events for counting precision; all draw their schema uniformly from those with subscriptions."""

    UNIFORM = "uniform"
    """Each value is drawn from its whole range."""

    WANTED = "wanted"
    """Each value is drawn from those that some subscription to the schema matches in that attribute: uniform events
    without those that no merging could let through. With constraints of equality, others hardly ever match.
    """


class Mix(msgspec.Struct, frozen=True):
    """One reading. Booleans are always compared by ``==``, their only simple constraint."""

    name: str
    about: str
    numbers: tuple[Operator, ...] = ("<", ">")
    strings: tuple[Operator, ...] = ("<", ">")
    types: tuple[Type, ...] = ("integer", "double", "boolean", "string")
    structures: Structures = Structures.IN_TURN
    values: Values = Values.UNIFORM
    events: Events = Events.UNIFORM

    @classmethod
    def named(cls, name: str) -> Mix:
        """Return the mix with this name; :class:`ConfigurationError` if there is none."""
        for mix in MIXES:
            if mix.name == name:
                return mix
        raise ConfigurationError(f"there is no mix {name!r}; mixes are {', '.join(mix.name for mix in MIXES)}")


_COMPARISONS: Final[tuple[Operator, ...]] = ("==", "!=", "<", "<=", ">", ">=")

REFERENCE: Final = Mix("one-sided", "< and > of numbers and strings, == of Booleans")
"""The most likely reading: every constraint holds for half the values."""

MIXES: Final = (
    REFERENCE,
    Mix("numeric", "one-sided, integers and doubles alone", types=("integer", "double")),
    Mix("drawn-schemas", "one-sided, each subscription draws its schema", structures=Structures.DRAWN),
    Mix("clustered", "one-sided, ends of constraints about the middle of the range", values=Values.CLUSTERED),
    Mix("coarse", "one-sided, ends of constraints from ten places of the range", values=Values.COARSE),
    Mix("two-sided", "numbers and strings between two ends", ("between",), ("between",)),
    Mix("string-equality", "one-sided numbers, == of strings and Booleans", strings=("==",)),
    Mix(
        "equality-rich",
        "half of numbers ==, else one-sided; strings ==",
        ("==", "==", "<", ">"),
        ("==",),
        events=Events.WANTED,
    ),
    Mix(
        "mixed",
        "== != < <= > >= evenly, of strings prefix too",
        _COMPARISONS,
        (*_COMPARISONS, "prefix"),
        events=Events.WANTED,
    ),
    Mix("random-structure", "one-sided, a random schema for each subscription", structures=Structures.OWN),
)
