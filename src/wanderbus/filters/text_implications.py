"""Implications between suffixes and contained texts (SPEC B-02).

Every string that ends in ``abc`` ends in ``bc`` and contains ``b``; a string that does not contain ``b`` does not
contain ``abc``. The rules are sound, and complete for two patterns; joint implications of more patterns may be missed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from wanderbus.filters.normal import TextPattern
from wanderbus.work import UNCOUNTED, WorkBudget

OPERATION: Final = 40
"""Units of the comparison of two short patterns."""

SOUGHT_MAX: Final = 64
"""Length of a sought text up to which each character of another text is compared more often."""


def fits(text: str, patterns: Iterable[TextPattern]) -> bool:
    """Return whether ``text`` fits every pattern."""
    return all(_occurs(pattern, text) == pattern.wanted for pattern in patterns)


def follows(pattern: TextPattern, prefix: str, known: Iterable[TextPattern], work: WorkBudget = UNCOUNTED) -> bool:
    """Return whether every string that begins with ``prefix`` and fits ``known`` is proved to fit ``pattern``."""
    work.spend(_units(pattern, prefix))
    if pattern.wanted and pattern.operator == "contains" and pattern.text in prefix:
        return True
    return any(_implies(other, pattern, work) for other in known)


def are_contradictory(prefix: str, patterns: tuple[TextPattern, ...], work: WorkBudget = UNCOUNTED) -> bool:
    """Return whether it is proved that no string begins with ``prefix`` and fits all of ``patterns``."""
    return any(follows(negated(pattern), prefix, patterns, work) for pattern in patterns)


def reduced(patterns: Collection[TextPattern], work: WorkBudget = UNCOUNTED) -> tuple[TextPattern, ...]:
    """Return ``patterns`` sorted, without those that follow from another one."""
    work.spend(OPERATION * len(patterns))
    left = sorted(set(patterns))
    if len(left) < 2:
        return tuple(left)
    return tuple(one for one in left if not follows(one, "", (other for other in left if other != one), work))


def _units(sought: TextPattern, text: str) -> int:
    """Return the units of looking for ``sought`` in ``text``."""
    return OPERATION + (len(text) * min(len(sought.text), SOUGHT_MAX) >> 6)


def _occurs(pattern: TextPattern, text: str) -> bool:
    return text.endswith(pattern.text) if pattern.operator == "suffix" else pattern.text in text


def negated(pattern: TextPattern) -> TextPattern:
    """Return the pattern of the strings that do not fit ``pattern``."""
    return TextPattern(pattern.operator, pattern.text, not pattern.wanted)


def _implies(known: TextPattern, asked: TextPattern, work: WorkBudget) -> bool:
    work.spend(_units(asked, known.text))
    if known == asked:
        return True
    if known.wanted and asked.wanted:
        return _occurs(asked, known.text) and (asked.operator == "contains" or known.operator == "suffix")
    if asked.wanted:
        return False
    if known.wanted:
        # A string ends in two texts only if one of the texts ends in the other.
        both = known.operator == asked.operator == "suffix"
        return both and not known.text.endswith(asked.text) and not asked.text.endswith(known.text)
    return _occurs(known, asked.text) and (known.operator == "contains" or asked.operator == "suffix")
