"""Links of one type between domains, spread by flooding, and the tree over them (SPEC M-04).

Each domain numbers the states of its links, and passes on those of others. Domains that know the same links find the
same tree.
"""

from __future__ import annotations

import math
from typing import Final

from wanderbus.federation.methods.filter_method import Outputs
from wanderbus.federation.methods.link_states import LinkStates
from wanderbus.federation.methods.spanning_tree import SpanningTree, spanning_tree
from wanderbus.federation.methods.wire import LINK_STATES_MAX, AnnouncedLink, LinkState, encode
from wanderbus.federation.routing_messages import RoutingSettings, RoutingSuperseded, SendToDomain

SETTLE_S: Final = 0.1
"""Time between a change of links and the change of the tree: more changes often follow."""

TELL_S: Final = 0.05
"""Time between a change of the own links and the message of it, which has all changes until then."""

PACE_S: Final = 1.0
"""Shortest time between two changes of the tree: a link that comes and goes costs no more."""


class TypeLinks:
    """Links of ``type`` as one domain knows them."""

    def __init__(self, type: str, settings: RoutingSettings, epoch: int) -> None:
        self._type = type
        self._settings = settings
        self._epoch = epoch
        self._states = LinkStates(settings.name)
        self._number = 0
        self.linked: dict[str, None] = {}
        """Domains with a link here that may know the type."""
        self.tree: SpanningTree | None = None
        """The tree in use; None before there is one."""
        self._tell_at: float | None = None
        self._adopt_at: float | None = None
        self._adopted_at = -math.inf

    def begin(self, now: float) -> None:
        """Begin without a link."""
        self._plan_to_tell(now)

    def begin_again(self, epoch: int, now: float) -> None:
        """Number the own states in a later life."""
        self._epoch, self._number = epoch, 0
        self._plan_to_tell(now)

    def link_up(self, domain: str, now: float) -> Outputs:
        """Take a new link to a domain that may know the type, and tell it of all links."""
        self.linked[domain] = None
        self._plan_to_tell(now)
        others = [each for each in self._states.all() if each.origin != self._settings.name]
        return [SendToDomain(domain, encode(each)) for each in others]

    def link_down(self, domain: str, now: float) -> None:
        """Take the end of a link."""
        self.linked.pop(domain, None)
        self._plan_to_tell(now)

    def state_announced(self, domain: str, state: LinkState, now: float) -> Outputs:
        """Take the state of the links of some domain, and pass it on if it is new.

        Raises :class:`RemoteProtocolError` if it is senseless.
        """
        known = self._states.of(state.origin)
        if not self._states.is_new(state):
            is_old = known is not None and (known.epoch, known.number) > (state.epoch, state.number)
            return [SendToDomain(domain, encode(known))] if is_old and known is not None else []
        if state.origin == self._settings.name:
            # A former life, or a neighbour that invents one, cannot speak of what is here.
            if state.epoch > self._epoch or state.number > LINK_STATES_MAX // 2:
                return [RoutingSuperseded(state.epoch)]
            self._number = max(self._number, state.number)
            self._plan_to_tell(now)
            return []
        self._states.put(state)
        self._plan(now)
        return self._flood(state, but=domain)

    def tell(self, now: float) -> Outputs:
        """Tell all of the own links, if they have changed and it is time."""
        if self._tell_at is None or self._tell_at > now:
            return []
        self._tell_at = None
        self._number += 1
        links = tuple([self._announced(each) for each in self.linked])
        state = LinkState(self._type, self._settings.name, self._epoch, self._number, links)
        self._states.put(state)
        self._plan(now)
        return self._flood(state)

    def adopt(self, now: float) -> bool:
        """Find the tree over the known links, if they have changed and it is time; return whether it is another one."""
        if self._adopt_at is None or self._adopt_at > now:
            return False
        self._adopt_at = None
        tree = spanning_tree(self._type, self._settings.name, self._states.edges())
        if self.tree is not None and tree.id == self.tree.id:
            return False
        self.tree = tree
        self._adopted_at = now
        return True

    def due_at(self) -> float | None:
        """Return when :meth:`tell` or :meth:`adopt` is due; None if there is nothing to do."""
        return min((each for each in (self._tell_at, self._adopt_at) if each is not None), default=None)

    def _plan_to_tell(self, now: float) -> None:
        if self._tell_at is None:
            self._tell_at = now + TELL_S

    def _plan(self, now: float) -> None:
        if self._adopt_at is None:
            self._adopt_at = max(now + SETTLE_S, self._adopted_at + PACE_S)

    def _announced(self, domain: str) -> AnnouncedLink:
        neighbour = self._settings.neighbours[domain]
        return AnnouncedLink(
            domain, neighbour.distance, self._type in neighbour.receives, self._type in neighbour.sends
        )

    def _flood(self, state: LinkState, but: str | None = None) -> Outputs:
        payload = encode(state)
        return [SendToDomain(each, payload) for each in self.linked if each != but]
