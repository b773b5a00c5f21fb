"""Tree: interest goes along a spanning tree of each type, and events go back the same way (SPEC M-04).

A domain whose own interest in a type goes another way belongs to the tree too, as soon as a neighbour tells it of the
links of the type: others may have the tree.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from wanderbus.channels.interest.interest_set import InterestMode, Wanted
from wanderbus.channels.interest.messages import Message
from wanderbus.federation.methods.filter_method import FilterMethod, Outputs
from wanderbus.federation.methods.type_tree import TypeTree
from wanderbus.federation.methods.wanted_interests import WantedInterests
from wanderbus.federation.methods.wire import LinkState, Role, TreeAdopted
from wanderbus.federation.routing_messages import RoutingSettings


class TreeMethod(FilterMethod):
    """The trees of all types that some domain wants by a tree."""

    def __init__(self, settings: RoutingSettings, wanted: WantedInterests, *, epoch: int, mode: InterestMode) -> None:
        super().__init__(settings, wanted, epoch=epoch, mode=mode)
        self._shared = settings.shared()
        self._linked: dict[str, None] = {}
        self._trees: dict[str, TypeTree] = {}
        self._of_streams: dict[int, TypeTree] = {}
        """The trees by their ids, which the streams in them have."""

    def start(self, now: float) -> Outputs:
        for type in sorted(self._shared):
            if self._settings.method_of(type) == "tree":
                self._join(type, now)
        return []

    def use(self, type: str, now: float) -> Outputs:
        return self._join(type, now)[1]

    def link_up(self, domain: str, now: float) -> Outputs:
        self._linked[domain] = None
        shared = self._neighbour(domain).shared
        trees = [tree for type, tree in self._trees.items() if type in shared]
        return [each for tree in trees for each in tree.link_up(domain, now)]

    def link_down(self, domain: str, now: float) -> Outputs:
        self._linked.pop(domain, None)
        shared = self._neighbour(domain).shared
        trees = [tree for type, tree in self._trees.items() if type in shared]
        for tree in trees:
            tree.link_down(domain, now)
        return []

    def state_announced(self, domain: str, state: LinkState, now: float) -> Outputs:
        """Take a state of links; :class:`RemoteProtocolError` if it is senseless."""
        if state.type not in self._neighbour(domain).shared:
            return []
        tree, outputs = self._join(state.type, now)
        return outputs + tree.state_announced(domain, state, now)

    def tree_adopted(self, domain: str, adopted: TreeAdopted, now: float) -> Outputs:
        """Take that a neighbour has come to a tree."""
        tree = self._trees.get(adopted.type)
        return [] if tree is None else tree.tree_adopted(domain, adopted, now)

    def update(self, added: Mapping[Hashable, Wanted], removed: Iterable[Hashable], now: float) -> Outputs:
        by_type: dict[str, tuple[dict[Hashable, Wanted], list[Hashable]]] = {}
        for id, wanted in added.items():
            by_type.setdefault(str(wanted[0]), ({}, []))[0][id] = wanted
        for id in removed:
            assert isinstance(id, tuple), id
            by_type.setdefault(id[0], ({}, []))[1].append(id)
        outputs: Outputs = []
        for type, (new, gone) in by_type.items():
            tree, joined = self._join(type, now)
            outputs += joined + tree.update(new, gone, now)
        return outputs

    def receive(self, domain: str, role: Role, message: Message, now: float) -> Outputs:
        # A message of a tree that this domain does not have, or no longer has, is repeated until it does.
        tree = self._of_streams.get(message.stream.group)
        return [] if tree is None else tree.receive(domain, message, now)

    def repeat(self, now: float) -> Outputs:
        outputs: Outputs = []
        for tree in self._trees.values():
            before = tree.id
            outputs += tree.repeat(now)
            if tree.id is not None and tree.id != before:
                if before is not None:
                    del self._of_streams[before]
                self._of_streams[tree.id] = tree
        return outputs

    def repeat_at(self) -> float | None:
        times = [tree.repeat_at() for tree in self._trees.values()]
        return min((each for each in times if each is not None), default=None)

    def mark(self, type: str) -> Hashable:
        return None

    def is_effective(self, type: str, mark: Hashable) -> bool:
        """Return whether the tree has all domains that the type comes from, and all know what is wanted here."""
        tree = self._trees[type]
        sources = {name for name, each in self._settings.neighbours.items() if type in each.receives}
        return sources <= tree.members and tree.is_effective

    def is_known(self, domain: str, type: str) -> bool:
        tree = self._trees.get(type)
        return tree is not None and domain in tree.members and tree.is_complete

    def forwards(self, type: str, source: str | None) -> tuple[str, ...]:
        """Return the neighbours to which an event goes that came from ``source``, if they want it; None is here."""
        tree = self._trees.get(type)
        return () if tree is None else tree.forwards(source)

    def filters_held(self) -> int:
        return sum(tree.filters_held() for tree in self._trees.values())

    def neighbours(self, type: str) -> tuple[str, ...]:
        """Return the neighbours in the tree of a type."""
        tree = self._trees.get(type)
        return () if tree is None else tree.neighbours

    def _join(self, type: str, now: float) -> tuple[TypeTree, Outputs]:
        """Return the tree of a type, and what begins with it."""
        if (tree := self._trees.get(type)) is not None:
            return tree, []
        tree = self._trees[type] = TypeTree(type, self._settings, self._wanted, epoch=self._epoch, mode=self._mode)
        tree.begin(now)
        outputs: Outputs = []
        for domain in self._linked:
            if type in self._neighbour(domain).shared:
                outputs += tree.link_up(domain, now)
        return tree, outputs
