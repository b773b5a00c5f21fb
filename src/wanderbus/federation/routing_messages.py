"""Inputs and outputs of the routing of filters between domains, and what it knows about the others (SPEC M-01, M-05).

A *type* is the subject of events that cross domains. A *neighbour* is a foreign domain that the federation file names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

import msgspec

from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.machine import Input, Output, SetTimer, TimerFired

Method = Literal["multicast", "rendezvous", "tree"]
METHODS: Final[tuple[Method, ...]] = get_args(Method)


class Neighbour(msgspec.Struct, frozen=True):
    """A foreign domain: the types that are received from it and sent to it, and its distance.

    A domain of the backbone can be the rendezvous of a type.
    """

    receives: frozenset[str] = frozenset()
    """Types that this domain receives from it."""
    sends: frozenset[str] = frozenset()
    """Types that this domain sends to it."""
    distance: float = 1.0
    is_backbone: bool = True

    @property
    def shared(self) -> frozenset[str]:
        """Types that both domains may know of: others are neither asked nor told there."""
        return self.receives | self.sends


class RoutingSettings(msgspec.Struct, frozen=True):
    """Settings of the own domain ``name``: its neighbours and the method of each type, ``method`` for all others."""

    name: str
    neighbours: Mapping[str, Neighbour]
    method: Method = "multicast"
    methods: Mapping[str, Method] = {}
    is_backbone: bool = True

    def method_of(self, type: str) -> Method:
        """Return the method of a type."""
        return self.methods.get(type, self.method)

    def without_trees(self) -> RoutingSettings:
        """Return the settings for filters where links are routed along trees: each domain tells all others."""
        methods = {type: _directly(method) for type, method in self.methods.items()}
        return msgspec.structs.replace(self, method=_directly(self.method), methods=methods)

    def received(self) -> frozenset[str]:
        """Return the types that some neighbour sends."""
        return frozenset().union(*(each.receives for each in self.neighbours.values()))

    def shared(self) -> frozenset[str]:
        """Return the types that some neighbour sends or gets."""
        return frozenset().union(*(each.shared for each in self.neighbours.values()))


def _directly(method: Method) -> Method:
    return "multicast" if method == "tree" else method


class OwnInterestChanged(Input, frozen=True):
    """Change of what the own domain wants, merged; the subjects are types, or None for all of them."""

    change: InterestChange


class DomainLinked(Input, frozen=True):
    """A new link to ``domain``, on which messages arrive in order until it is lost."""

    domain: str


class DomainUnlinked(Input, frozen=True):
    """The link to ``domain`` is lost, and with it perhaps messages."""

    domain: str


class DomainMessage(Input, frozen=True):
    """A message of ``domain``, which the other side gave to :class:`SendToDomain`."""

    domain: str
    payload: bytes


class UseMethod(Input, frozen=True):
    """Use ``method`` for a type from now on; the former routes stay until those of the new method count."""

    type: str
    method: Method


class SendToDomain(Output, frozen=True):
    """Send ``payload`` on the link to ``domain``."""

    domain: str
    payload: bytes


class WantedByDomain(Output, frozen=True):
    """Change of the set of interests whose events have to be sent to ``domain``: a destination, or a next hop."""

    domain: str
    change: InterestChange


class WantedKnown(Output, frozen=True):
    """All that ``domain`` wants of these types is known in this life; an earlier life may have known more or less."""

    domain: str
    types: frozenset[str]


class RoutingFailed(Output, frozen=True):
    """``domain`` has sent nonsense, or too much: close its link."""

    domain: str
    reason: str


class RoutingSuperseded(Output, frozen=True):
    """Another domain knows a later life of this gateway, or of another gateway of this domain: this one must stop.

    ``domain`` is the neighbour that says so, or has passed it on; somebody may lie.
    """

    epoch: int
    domain: str = ""


RoutingInput = OwnInterestChanged | DomainLinked | DomainUnlinked | DomainMessage | UseMethod | TimerFired
RoutingOutput = SendToDomain | WantedByDomain | WantedKnown | RoutingFailed | RoutingSuperseded | SetTimer
