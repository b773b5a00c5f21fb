"""Inputs and outputs of the broker about foreign domains as a whole (SPEC M-01)."""

from __future__ import annotations

from wanderbus.machine import Input, Output


class DomainEventsLost(Input, frozen=True):
    """Events of the foreign ``domain`` are lost; subscriptions to one of the ``subjects`` may have matched them."""

    domain: str
    subjects: frozenset[str]


class ForeignInterestAsked(Output, frozen=True):
    """Report by :class:`ForeignInterestEffective` when all that was reported so far counts in other domains."""

    name: str


class ForeignInterestEffective(Input, frozen=True):
    """The interest that these names were asked about counts in all domains that can be reached, or is given up."""

    names: tuple[str, ...]
