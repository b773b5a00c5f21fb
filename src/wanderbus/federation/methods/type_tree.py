"""Tree of one type at one domain: link states flooded, interest sent along the tree (SPEC M-04).

Domains that know the same links find the same tree, which has an id. Interest in the tree goes in streams of this id,
and a domain takes only those of the tree that it has: interest never goes round, not even while a tree changes. A
domain tells a neighbour of the tree what it and all branches behind it want, as soon as it knows all these branches. So
a table is complete from its first version on, and former routes go when all tables of the present tree are there.

A domain that nobody reaches keeps its place: the neighbour that lost it wants its events for it, and they wait there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final

from wanderbus.channels.interest.incoming_streams import IncomingStreams, Route
from wanderbus.channels.interest.interest_set import InterestMode, Wanted
from wanderbus.channels.interest.interest_source import InterestSource
from wanderbus.channels.interest.messages import FromReceiver, InterestConfirmed, Message, NumberedFilter, Stream
from wanderbus.channels.interest.outgoing_stream import SendToServer
from wanderbus.channels.pending import Pending
from wanderbus.errors import RemoteProtocolError
from wanderbus.federation.methods.filter_bounds import check_filters
from wanderbus.federation.methods.filter_method import Outputs, carried_outputs
from wanderbus.federation.methods.spanning_tree import SpanningTree
from wanderbus.federation.methods.type_links import TypeLinks
from wanderbus.federation.methods.wanted_interests import WantedInterests
from wanderbus.federation.methods.widened_filters import Filters, WidenedFilters
from wanderbus.federation.methods.wire import LinkState, TreeAdopted, encode
from wanderbus.federation.routing_messages import (
    Neighbour,
    RoutingOutput,
    RoutingSettings,
    RoutingSuperseded,
    SendToDomain,
)
from wanderbus.machine import Output

TREES_MAX: Final = 1 << 12
"""Trees of one type in one life of a gateway; epoch and number of a tree are the incarnation of its streams."""

_OWN: Final = ""
"""Stands for the own domain among those that want something."""

_WAY: Final = "tree"


class TypeTree:
    """The tree of ``type``: states of links, the streams to neighbours of the tree, and their tables."""

    def __init__(
        self, type: str, settings: RoutingSettings, wanted: WantedInterests, *, epoch: int, mode: InterestMode
    ) -> None:
        self._type = type
        self._settings = settings
        self._wanted = wanted
        self._epoch = epoch
        self._mode: InterestMode = mode
        self._links = TypeLinks(type, settings, epoch)
        self._trees = 0
        self._branches: dict[str, _Branch] = {}
        """Neighbours in the tree."""
        self._tables = IncomingStreams()
        self._former: dict[str, Route] = {}
        """Routes of earlier trees that still count, by the neighbour that they go to."""
        self._filters: dict[str, dict[Hashable, Wanted]] = {_OWN: {}}
        """Filters of the own domain, and of each neighbour whose interest is sent on."""
        self._pending: Pending[tuple[str, InterestConfirmed], str] = Pending()
        """Confirmations, each with its receiver, that wait until the change counts in the branches behind."""

    def begin(self, now: float) -> None:
        """Begin without a link."""
        self._links.begin(now)

    # Links --------------------------------------------------------------------------------------------------------

    def link_up(self, domain: str, now: float) -> Outputs:
        """Take a new link to a domain that may know the type, and tell it of all links."""
        outputs = self._links.link_up(domain, now)
        if (branch := self._branches.get(domain)) is not None:
            outputs += self._invite(domain)
            if branch.is_begun:
                outputs += self._sent(branch.source.outgoing.link_up(domain, now))
        return outputs

    def link_down(self, domain: str, now: float) -> None:
        """Take the end of a link."""
        if (branch := self._branches.get(domain)) is not None:
            branch.source.outgoing.link_down(domain, is_dead=False)
        for each in [one for one in self._pending if one[0] == domain]:
            self._pending.drop(each)
        self._links.link_down(domain, now)

    def state_announced(self, domain: str, state: LinkState, now: float) -> Outputs:
        """Take the state of the links of some domain, and pass it on if it is new."""
        return self._links.state_announced(domain, state, now)

    # The tree -----------------------------------------------------------------------------------------------------

    def _adopt(self, now: float) -> Outputs:
        """Begin to use the tree over the known links, which is another one."""
        tree = self._links.tree
        assert tree is not None, "it has just been found"
        self._retire()
        self._trees = min(self._trees + 1, TREES_MAX - 1)
        self._pending = Pending()
        self._branches = {each: self._new_branch(each, tree) for each in tree.neighbours}
        away = [each for each in self._former if each not in tree.members]
        kept = {_OWN: self._filters[_OWN]} | {each: self._filters_of(each, self._former[each]) for each in away}
        self._filters = {_OWN: {}}
        for of, filters in kept.items():
            self._change(of, filters, now)
        outputs = [each for domain in tree.neighbours for each in self._invite(domain)]
        return outputs + self._begin_ready(now)

    def _retire(self) -> None:
        """Keep the routes of the present tree until those of the next one are known."""
        for domain, branch in self._branches.items():
            if branch.is_known:
                self._drop_former(domain, but=branch.route)
                self._former[domain] = branch.route

    def _new_branch(self, domain: str, tree: SpanningTree) -> _Branch:
        incarnation = self._epoch * TREES_MAX + self._trees
        receives = self._receives(domain)
        source = InterestSource(
            Stream(tree.id, self._settings.name), incarnation, self._mode, selects=lambda server, interest: receives
        )
        source.outgoing.expect(domain)
        return _Branch(source, WidenedFilters(self._type), (domain, Stream(tree.id, domain)))

    def _invite(self, domain: str) -> Outputs:
        """Ask a neighbour in the tree for its position, which it may have sent before this domain had the tree."""
        assert self._tree is not None, "only a tree has branches"
        payload = encode(TreeAdopted(self._type, self._tree.id))
        return [SendToDomain(domain, payload)] if domain in self._links.linked else []

    def tree_adopted(self, domain: str, adopted: TreeAdopted, now: float) -> Outputs:
        """Send the own position again if the neighbour has come to the same tree."""
        branch = self._branches.get(domain)
        if branch is None or self._tree is None or adopted.tree != self._tree.id or not branch.is_begun:
            return []
        return self._sent(branch.source.outgoing.link_up(domain, now))

    def _begin_ready(self, now: float) -> Outputs:
        """Begin with each neighbour once all other branches are known; end former routes once all are."""
        outputs: Outputs = []
        unknown = [domain for domain, branch in self._branches.items() if not branch.is_known]
        for domain, branch in self._branches.items():
            if not branch.is_begun and domain in self._links.linked and not any(each != domain for each in unknown):
                branch.is_begun = True
                outputs += self._sent(branch.source.outgoing.link_up(domain, now))
        if not unknown and self._tree is not None:
            for domain in [each for each in self._former if each in self._tree.members]:
                present = self._branches.get(domain)
                self._drop_former(domain, but=None if present is None else present.route)
                self._former.pop(domain, None)
            for domain in self._tree.members:
                self._wanted.note_news(domain)
        return outputs

    def _drop_former(self, domain: str, but: Route | None) -> None:
        route = self._former.get(domain)
        if route is not None and route != but:
            self._wanted.drop(_WAY, domain, route)
            self._tables.forget(route)

    # Interest -----------------------------------------------------------------------------------------------------

    def update(self, added: Mapping[Hashable, Wanted], removed: Iterable[Hashable], now: float) -> Outputs:
        """Change what the own domain wants of the type."""
        filters = dict(self._filters[_OWN])
        for id in removed:
            filters.pop(id, None)
        return self._change(_OWN, filters | dict(added), now)

    def receive(self, domain: str, message: Message, now: float) -> Outputs:
        """Take what a neighbour wants in this tree, or its answer."""
        if (branch := self._branches.get(domain)) is None:
            return []
        if isinstance(message, FromReceiver):
            answers = self._sent(branch.source.outgoing.receive(domain, message, now))
            return [_in_lives(each) for each in answers] + self._release()
        if message.stream != branch.route[1]:
            raise RemoteProtocolError(f"a stream of {message.stream.origin} is not that of the sender", None)
        check_filters(self._tables, branch.route, message, (self._type,))
        result = self._tables.receive(domain, message, now)
        self._wanted.apply(_WAY, domain, self._tables, branch.route, message, result, self._may_send(domain))
        if not isinstance(result.answer, InterestConfirmed):
            return [] if result.answer is None else self._sent([SendToServer(domain, result.answer)])
        branch.is_known = True
        outputs = self._change(domain, self._filters_of(domain, branch.route), now)
        outputs += self._confirm_later(domain, result.answer)
        return outputs + self._begin_ready(now) + self._release()

    def _confirm_later(self, domain: str, answer: InterestConfirmed) -> Outputs:
        """Confirm a change once it counts in all other branches, at once if there are none."""
        versions = {name: each.source.outgoing.version for name, each in self._branches.items() if name != domain}
        if not versions:
            return self._sent([SendToServer(domain, answer)])
        if (domain, answer) not in self._pending:
            self._pending.add((domain, answer), versions)
        return []

    def _filters_of(self, domain: str, route: Route) -> dict[Hashable, Wanted]:
        may = self._may_send(domain)
        return {_key(each): (each.subject, each.form()) for each in self._tables.filters(route) if may(each.subject)}

    def _may_send(self, domain: str) -> Callable[[str | None], bool]:
        sends = self._sends(domain)
        return lambda type: sends and type == self._type

    def _change(self, of: str, filters: dict[Hashable, Wanted], now: float) -> Outputs:
        """Let ``of``, the own domain or a neighbour, want ``filters``; tell all other neighbours in the tree."""
        before = self._filters.get(of, {})
        self._filters[of] = filters
        added: Filters = {(of, id): wanted for id, wanted in filters.items() if id not in before}
        removed = [(of, id) for id in before if id not in filters]
        outputs: Outputs = []
        for domain, branch in self._branches.items() if added or removed else ():
            if domain != of:
                outputs += self._sent(branch.source.update(*branch.widened.update(added, removed), now)[1])
        return outputs

    def _release(self) -> Outputs:
        """Send the confirmations of what now counts in all branches behind."""
        outputs: list[Output] = []
        for domain in self._pending.awaited():
            version = self._branches[domain].source.outgoing.effective_at(domain)
            outputs += [SendToServer(*each) for each in self._pending.confirmed(domain, version)]
        return self._sent(outputs)

    # State --------------------------------------------------------------------------------------------------------

    @property
    def id(self) -> int | None:
        """Id of the tree; None before there is one."""
        return None if self._tree is None else self._tree.id

    @property
    def members(self) -> frozenset[str]:
        """Domains of the tree."""
        return frozenset() if self._tree is None else self._tree.members

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Neighbours in the tree."""
        return tuple(self._branches)

    @property
    def is_complete(self) -> bool:
        """Return whether all that the branches want is known."""
        return self._tree is not None and all(each.is_known for each in self._branches.values())

    @property
    def is_effective(self) -> bool:
        """Return whether all domains of the tree know everything that the own one wants."""
        branches = self._branches.items()
        return self.is_complete and all(
            each.source.outgoing.effective_at(domain) >= each.source.outgoing.version for domain, each in branches
        )

    def forwards(self, source: str | None) -> tuple[str, ...]:
        """Return the neighbours to which an event goes that came from ``source``, if they want it; None is here."""
        hops = dict.fromkeys((*self._branches, *self._former))
        return tuple(each for each in hops if each != source and self._sends(each))

    def filters_held(self) -> int:
        """Return the number of filters in the tables of the branches."""
        return sum(len(self._tables.filters(route)) for route in self._tables.routes())

    def repeat(self, now: float) -> Outputs:
        """Repeat what has not been confirmed in time, and change the tree if it is time."""
        outputs: Outputs = []
        for branch in self._branches.values():
            outputs += self._sent(branch.source.repeat(now))
        outputs += self._links.tell(now)
        return outputs + self._adopt(now) if self._links.adopt(now) else outputs

    def repeat_at(self) -> float | None:
        """Return when :meth:`repeat` is due."""
        times = [self._links.due_at(), *(each.source.repeat_at() for each in self._branches.values())]
        return min((each for each in times if each is not None), default=None)

    @property
    def _tree(self) -> SpanningTree | None:
        return self._links.tree

    def _neighbour(self, domain: str) -> Neighbour:
        return self._settings.neighbours[domain]

    def _receives(self, domain: str) -> bool:
        return self._type in self._neighbour(domain).receives

    def _sends(self, domain: str) -> bool:
        return self._type in self._neighbour(domain).sends

    @staticmethod
    def _sent(outputs: Iterable[Output]) -> Outputs:
        return carried_outputs("tree", outputs)


class _Branch:
    """A neighbour in the tree: the stream to it, and whether its own is known."""

    __slots__ = ("is_begun", "is_known", "route", "source", "widened")

    def __init__(self, source: InterestSource, widened: WidenedFilters, route: Route) -> None:
        self.source = source
        self.widened = widened
        self.route = route
        self.is_begun = False
        self.is_known = False


def _key(filter: NumberedFilter) -> Hashable:
    return filter.number, filter.expression


def _in_lives(output: RoutingOutput) -> RoutingOutput:
    """Return ``output``; the incarnation of a tree that another domain knows becomes the life that had this tree."""
    return RoutingSuperseded(output.epoch // TREES_MAX) if isinstance(output, RoutingSuperseded) else output
