"""Paths from the own domain to all others, along the trees of the types that have this method (SPEC M-04)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wanderbus.errors import RemoteProtocolError
from wanderbus.federation.gateway_choice import epoch_of
from wanderbus.federation.methods.filter_method import Outputs
from wanderbus.federation.methods.spanning_tree import SpanningTree
from wanderbus.federation.methods.type_links import TypeLinks
from wanderbus.federation.methods.wire import LinkState, decode
from wanderbus.federation.routed.outputs import TreePath
from wanderbus.federation.routing_lives import AHEAD_MS_MAX, LIVES_AT_ONCE_MAX, LIVES_PER_S_MAX
from wanderbus.federation.routing_messages import RoutingSettings, RoutingSuperseded
from wanderbus.tokens import TokenBucket

AGAIN_S: Final = 10.0
"""Pause until a later life of the own states is tried again, after too many."""

STATES_PER_S_MAX: Final = 500.0
STATES_AT_ONCE: Final = 8.0
"""States of links that a neighbour may tell; at once, so many for each type and domain."""

PATH_BYTES_MAX: Final = 16_384
"""Bytes of all names of a path; links carry messages that are larger than the largest event by more than that."""


class TreePaths:
    """Trees of all types whose method is a tree, and the paths on them.

    :param life: identifies this life of the gateway; it rises with each, and is a time in ms on real servers
    :param place: place of the gateway among those of its domain
    """

    def __init__(self, settings: RoutingSettings, life: int, place: int) -> None:
        self._settings = settings
        self._life, self._place = life, place
        self._epoch = epoch_of(life, place)
        self._wall_ms = 0
        self._types = {
            each: TypeLinks(each, settings, self._epoch)
            for each in sorted(settings.shared())
            if settings.method_of(each) == "tree"
        }
        self._paths: dict[str, Mapping[str, tuple[str, ...]]] = {each: {} for each in self._types}
        """Paths by type and domain at the other end."""
        at_once = STATES_AT_ONCE * max(1, len(self._types)) * (1 + len(settings.neighbours))
        self._states = {each: TokenBucket(STATES_PER_S_MAX, at_once) for each in settings.neighbours}
        self._lives = TokenBucket(LIVES_PER_S_MAX, LIVES_AT_ONCE_MAX)
        self._superseded = 0
        """Epoch of own states that others know, and that is later than the present one."""
        self._again_at: float | None = None

    @property
    def types(self) -> frozenset[str]:
        """Return the types that have a tree."""
        return frozenset(self._types)

    def clock_read(self, wall_us: int) -> None:
        """Note the wall clock, which bounds the lives that gateways can have had."""
        self._wall_ms = wall_us // 1_000

    def link_up(self, domain: str, now: float) -> Outputs:
        """Take a new link to a domain, and tell it of all links."""
        return [one for each in self._known_to(domain) for one in self._types[each].link_up(domain, now)]

    def link_down(self, domain: str, now: float) -> None:
        """Take the end of a link."""
        for each in self._known_to(domain):
            self._types[each].link_down(domain, now)

    def announced(self, domain: str, payload: bytes, now: float) -> Outputs:
        """Take the state of links that a neighbour tells or passes on.

        A senseless one that it passes on is ignored: it may not have been able to know.

        :raises RemoteProtocolError: the neighbour tells nonsense about itself, or too much
        """
        state = decode(payload)
        if not isinstance(state, LinkState):
            raise RemoteProtocolError("the state of links is another message", None)
        if not self._states[domain].take(now):
            raise RemoteProtocolError("it tells of links too often", None)
        is_possible = state.epoch <= epoch_of(max(self._life, self._wall_ms) + AHEAD_MS_MAX, 0)
        if not is_possible or state.type not in self._known_to(domain):
            return []
        outputs: Outputs = []
        try:
            for each in self._types[state.type].state_announced(domain, state, now):
                if isinstance(each, RoutingSuperseded):
                    self._superseded = max(self._superseded, each.epoch)
                    self._begin_again(now)
                else:
                    outputs.append(each)
        except RemoteProtocolError:
            if state.origin == domain:
                raise
        return outputs

    def go_on(self, now: float) -> tuple[Outputs, bool]:
        """Tell what has changed here and change the trees, if it is time; return also whether a tree has changed."""
        if self._again_at is not None and self._again_at <= now:
            self._begin_again(now)
        outputs: Outputs = []
        has_changed = False
        for type, links in self._types.items():
            outputs += links.tell(now)
            if links.adopt(now) and links.tree is not None:
                self._paths[type] = _paths(self._settings.name, links.tree)
                has_changed = True
        return outputs, has_changed

    def due_at(self) -> float | None:
        """Return when :meth:`go_on` is due; None if there is nothing to do."""
        times = [self._again_at, *(each.due_at() for each in self._types.values())]
        return min((each for each in times if each is not None), default=None)

    def path_to(self, domain: str) -> TreePath | None:
        """Return the path to a domain; None if no tree has one."""
        paths = (self.path_by(each, domain) for each in self._known_to(domain))
        return next((each for each in paths if each is not None), None)

    def path_by(self, type: str, domain: str) -> TreePath | None:
        """Return the path to a domain along the tree of a type; None if there is none.

        All that goes to the other end and comes from there may go to the first domain on it and come from that, too.
        """
        found = self._paths.get(type, {}).get(domain)
        neighbours = self._settings.neighbours
        if found is None or len(found) < 3 or domain not in neighbours or found[1] not in neighbours:
            return None
        there, hop = neighbours[domain], neighbours[found[1]]
        if type not in there.shared or not (there.sends <= hop.sends and there.receives <= hop.receives):
            return None
        if sum(len(each.encode()) + 5 for each in found) > PATH_BYTES_MAX:
            return None
        return TreePath(type, found)

    def _known_to(self, domain: str) -> list[str]:
        """Return the types with a tree that a domain may know of, sorted."""
        shared = self._settings.neighbours[domain].shared if domain in self._settings.neighbours else ()
        return [each for each in self._types if each in shared]

    def _begin_again(self, now: float) -> None:
        """Number the own states in a life after the one that others know, not too often: somebody may lie."""
        if self._lives.take(now):
            self._again_at = None
            self._epoch = epoch_of(self._life, self._place, self._superseded)
            for each in self._types.values():
                each.begin_again(self._epoch, now)
        else:
            self._again_at = now + AGAIN_S


def _paths(own: str, tree: SpanningTree) -> Mapping[str, tuple[str, ...]]:
    """Return the path from ``own`` to each other domain of a tree."""
    beside: dict[str, list[str]] = {}
    for edge in tree.edges:
        beside.setdefault(edge.one, []).append(edge.other)
        beside.setdefault(edge.other, []).append(edge.one)
    found: dict[str, tuple[str, ...]] = {own: (own,)}
    waiting = [own]
    for name in waiting:
        for each in beside.get(name, ()):
            if each not in found:
                found[each] = (*found[name], each)
                waiting.append(each)
    return found
