"""Proposals of schemas from observed values (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from wanderbus.event import TYPE_NAMES, DeclaredAttribute, TypeName
from wanderbus.subject_schemas import WIDENINGS, widens

_NARROWEST_FIRST: Final = sorted(TYPE_NAMES, key=lambda name: name in WIDENINGS.values())


class Proposal(NamedTuple):
    """Attributes to declare, and the number of observed values that would not fit, by attribute.

    An attribute without a proposal is only in ``unfitting``.
    """

    attributes: tuple[DeclaredAttribute, ...]
    unfitting: Mapping[str, int]


def proposal(
    observed: Mapping[str, Mapping[str, int]], declared: Sequence[DeclaredAttribute] = (), fitting_min: float = 1.0
) -> Proposal:
    """Return a proposal for attributes whose values were ``observed``: a count for each type, by attribute.

    Words other than the names of types, such as ``List``, count values that fit no type. A new attribute is proposed if
    at least the share ``fitting_min`` of its values fits one type. ``declared`` attributes stay, and their types are
    widened if more values fit then; so the proposal is always a version that may follow.
    """
    known = {attribute.name: attribute for attribute in declared}
    attributes: list[DeclaredAttribute] = []
    unfitting: dict[str, int] = {}
    for name in [*known, *sorted(observed.keys() - known)]:
        counts = observed.get(name, {})
        values = sum(counts.values())
        old = known.get(name)
        narrowest_first = [each for each in _NARROWEST_FIRST if old is None or widens(old.type, each)]
        best = max(narrowest_first, key=lambda each: _fitting(counts, each))
        fitting = _fitting(counts, best)
        if old is not None:
            attributes.append(DeclaredAttribute(name, best, old.unit, old.meaning))
        elif fitting and fitting >= fitting_min * values:
            attributes.append(DeclaredAttribute(name, best))
        else:
            fitting = 0
        if values > fitting:
            unfitting[name] = values - fitting
    return Proposal(tuple(attributes), unfitting)


def _fitting(counts: Mapping[str, int], wide: TypeName) -> int:
    return sum(counts.get(each, 0) for each in TYPE_NAMES if widens(each, wide))
