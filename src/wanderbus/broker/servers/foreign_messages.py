"""Inputs and outputs of the broker about foreign domains as a whole (SPEC M-01)."""

from __future__ import annotations

from wanderbus.event import EventId
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


class OrderedDomains(Input, frozen=True):
    """The ``domains`` that this one asks for causal order with, and the server here that is the ``gateway``."""

    domains: tuple[str, ...]
    gateway: str


class CausesReached(Output, frozen=True):
    """All events of these servers up to these ids that had to come to this gateway have come.

    Servers are named ``DOMAIN/SERVER``, also those of the own domain.
    """

    ids: tuple[EventId, ...]
