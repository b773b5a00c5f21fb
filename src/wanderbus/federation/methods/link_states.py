"""States of the links of all domains of a type, each numbered by its domain, as flooding brings them (SPEC M-04)."""

from __future__ import annotations

import math

from wanderbus.errors import RemoteProtocolError
from wanderbus.federation.methods.filter_bounds import DOMAINS_MAX
from wanderbus.federation.methods.spanning_tree import Edge
from wanderbus.federation.methods.wire import AnnouncedLink, LinkState

NAME_CHARACTERS_MAX = 255
"""Characters of the name of a domain (RFC 1035 2.3.4)."""


class LinkStates:
    """The latest state of each domain; one of a domain that nobody reaches gives way to a new one."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._states: dict[str, LinkState] = {}

    def all(self) -> list[LinkState]:
        """Return all states."""
        return list(self._states.values())

    def of(self, origin: str) -> LinkState | None:
        """Return the state of a domain; None if there is none."""
        return self._states.get(origin)

    def put(self, state: LinkState) -> None:
        """Put a state in place of that of the same domain.

        Raises :class:`RemoteProtocolError` if it is senseless, or the domains are too many.
        """
        if state.origin != self._own:
            self._check(state)
        others = self._states.keys() - {self._own}
        if state.origin not in self._states and len(others) >= DOMAINS_MAX:
            self._make_room()
        self._states[state.origin] = state

    def is_new(self, state: LinkState) -> bool:
        """Return whether a state is later than what is known of its domain."""
        known = self._states.get(state.origin)
        return known is None or (state.epoch, state.number) > (known.epoch, known.number)

    def edges(self) -> list[Edge]:
        """Return the links of which both ends speak, if events of the type may go over them."""
        return [
            edge
            for origin, state in self._states.items()
            for link in state.links
            if origin < link.domain and (edge := self._edge(origin, link)) is not None
        ]

    def _edge(self, origin: str, link: AnnouncedLink) -> Edge | None:
        state = self._states.get(link.domain)
        back = None if state is None else next((each for each in state.links if each.domain == origin), None)
        if back is None:
            return None
        there, here = link.sends and back.receives, link.receives and back.sends
        if not (there or here):
            return None
        return Edge(not (there and here), max(link.distance, back.distance), origin, link.domain)

    def _make_room(self) -> None:
        linked = {self._own} | {each for edge in self.edges() for each in (edge.one, edge.other)}
        gone = next((each for each in self._states if each not in linked), None)
        if gone is None:
            raise RemoteProtocolError(f"the type has more than {DOMAINS_MAX} other domains", None)
        del self._states[gone]

    @staticmethod
    def _check(state: LinkState) -> None:
        names = [state.origin, *(each.domain for each in state.links)]
        if len(names) > DOMAINS_MAX + 1 or len(set(names)) < len(names):
            raise RemoteProtocolError(f"{state.origin} has {len(state.links)} links, or two to one domain", None)
        if any(len(each) > NAME_CHARACTERS_MAX for each in names):
            raise RemoteProtocolError("the name of a domain is too long", None)
        if not all(math.isfinite(each.distance) and each.distance >= 0 for each in state.links):
            raise RemoteProtocolError("a distance is negative or no number", None)
