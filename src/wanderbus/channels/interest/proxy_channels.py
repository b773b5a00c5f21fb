"""Spreading of interest by a resolution server: the proxy channels of the access servers (SPEC K-05, K-07).

The resolution server keeps the interest of every access server, merges it and sends it to the others. With
advertisements an access server gets only what its publishers may match. A change is confirmed to its sender when it
counts at every access server that is alive. A server that has just started spreads nothing of an origin, and nothing to
a destination, before it knows the whole from that one: routes that are known elsewhere stay (SPEC K-08).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain
from typing import Final

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.incoming_streams import IncomingStreams, StreamResult, interests_of
from wanderbus.channels.interest.interest_set import InterestMode, Wanted
from wanderbus.channels.interest.interest_source import InterestSource
from wanderbus.channels.interest.messages import FromReceiver, FromSender, InterestConfirmed, Message, Stream
from wanderbus.channels.interest.multicast import Multicast
from wanderbus.channels.interest.outgoing_stream import SendToServer
from wanderbus.channels.pending import Pending
from wanderbus.errors import RemoteProtocolError
from wanderbus.filters.conjunctions import both
from wanderbus.filters.merging import PRECISION_MIN
from wanderbus.machine import Output
from wanderbus.work import WorkBudget, WorkExceeded

_Peer = tuple[str, str | None]
"""An origin whose interest has to count, and the server where it has to: None for every one that is alive."""

Lineage = Callable[[str], Sequence[str]]
"""Function from a subject to itself, its parent and so on up to the top of its hierarchy."""

Permits = Callable[[str, str, Interest], bool]
"""Function: whether an interest of an origin may be spread to a server."""

OVERLAP_WORK_MAX: Final = 50_000
"""Units of work to compare an interest with an advertisement; beyond it, they count as overlapping."""


def overlap(one: Interest, other: Interest, lineage: Lineage = lambda subject: (subject,)) -> bool:
    """Return whether some event may match both: False is proved.

    An event of a subject matches a filter for any subject of its lineage, so one of the two subjects is in the lineage
    of the other.

    The value of an attribute may be a list, of which different items match ``x < 5`` and ``x > 7``; the advertisement
    ``all x < 5`` excludes the latter.
    """
    if one.subject is None or other.subject is None:
        is_apart = False
    else:
        is_apart = one.subject not in lineage(other.subject) and other.subject not in lineage(one.subject)
    if is_apart:
        return False
    try:
        return both(one.conjunction, other.conjunction, WorkBudget(OVERLAP_WORK_MAX)) is not None
    except WorkExceeded:
        return True


class ProxyChannels:
    """Interest of all access servers in one channel ``group``, at the resolution server.

    ``incarnation`` must be higher than that of every earlier life of this server. Without ``uses_advertisements`` all
    interest goes to all access servers, as far as ``permits`` allows it. ``lineage`` is that of the domain. With
    ``multicast`` a change for several servers is one datagram.
    """

    def __init__(
        self,
        group: int,
        incarnation: int,
        mode: InterestMode = "perfect",
        *,
        precision_min: float = PRECISION_MIN,
        uses_advertisements: bool = True,
        lineage: Lineage = lambda subject: (subject,),
        multicast: Multicast | None = None,
        permits: Permits = lambda origin, server, interest: True,
    ) -> None:
        self.incoming = IncomingStreams()
        self._group = group
        self._incarnation = incarnation
        self._mode = mode
        self._precision_min = precision_min
        self._uses_advertisements = uses_advertisements
        self._lineage = lineage
        self._multicast = multicast
        self._permits = permits
        self._spread: dict[str, InterestSource] = {}
        self._up: dict[str, None] = {}
        self._alive: dict[str, None] = {}
        self._advertised: dict[str, dict[str | None, list[Interest]]] = {}
        """Advertisements of each access server, under each subject of their lineage."""
        self._pending: Pending[tuple[str, InterestConfirmed], _Peer] = Pending()
        """Confirmations, each with its receiver, that wait until the interest of origins counts."""

    def expect(self, server: str) -> None:
        """Let an access server count as alive: no change is confirmed before it has it."""
        self._alive[server] = None
        for origin, source in self._spread.items():
            if origin != server:
                source.outgoing.expect(server)

    def link_up(self, server: str, now: float) -> list[Output]:
        """Begin with an access server on a new link."""
        self.expect(server)
        self._drop_confirmations(server)
        self._up[server] = None
        return self._begin(self._spread, server, now)

    def link_down(self, server: str, *, is_dead: bool) -> list[Output]:
        """Stop sending to an access server; its interest stays. If it ``is_dead``, nobody waits for it any more."""
        self._up.pop(server, None)
        if is_dead:
            self._alive.pop(server, None)
        self._drop_confirmations(server)
        for source in self._spread.values():
            source.outgoing.link_down(server, is_dead=is_dead)
        return self._release()

    def forget(self, server: str, now: float) -> list[Output]:
        """Forget an access server that has left the domain: its interest is withdrawn from the others."""
        outputs = self.link_down(server, is_dead=True)
        for route in [each for each in self.incoming.routes() if each[0] == server]:
            self.incoming.forget(route)
        self._advertised.pop(server, None)
        for source in self._spread.values():
            source.outgoing.forget(server)
        if own := self._spread.get(server):
            outputs += own.update({}, own.interests.ids(), now)[1]
        return outputs

    def receive(self, server: str, message: Message, now: float) -> list[Output]:
        """Take a message of the access server of this name.

        Raises :class:`RemoteProtocolError` for an invalid filter, or a stream of another origin.
        """
        if isinstance(message, FromReceiver):
            source = self._spread.get(message.stream.origin)
            outputs = source.outgoing.receive(server, message, now) if source is not None else []
            return outputs + self._release()
        return self._take(server, message, now)

    def select_again(self, now: float) -> list[Output]:
        """Send all access servers how their parts have changed, because other interest is permitted."""
        pairs = [(source, server) for source in self._spread.values() for server in self._up]
        return [output for source, server in pairs for output in source.outgoing.select_again(server, now)]

    def spread(self, origin: str) -> list[Interest]:
        """Return the merged interest of ``origin``, of which every other access server gets its part."""
        source = self._spread.get(origin)
        return source.interests.sent() if source is not None else []

    def repeat(self, now: float) -> list[Output]:
        """Repeat what has not been confirmed in time."""
        return [output for source in self._spread.values() for output in source.repeat(now)]

    def repeat_at(self) -> float | None:
        """Return when :meth:`repeat` is due; None if everything is confirmed."""
        times = [source.repeat_at() for source in self._spread.values()]
        return min((each for each in times if each is not None), default=None)

    def _take(self, server: str, message: FromSender, now: float) -> list[Output]:
        if message.stream.origin != server or message.stream.group != self._group:
            raise RemoteProtocolError(f"{server} sent the interest of {message.stream.origin}", None)
        taken = self.incoming.receive(server, message, now)
        if message.stream.kind == "interest":
            outputs = self._spread_change(server, taken, now)
        else:
            outputs = self._select_again(server, message.stream, taken, now)
        if isinstance(taken.answer, InterestConfirmed):
            if (confirmation := (server, taken.answer)) not in self._pending:
                self._pending.add(confirmation, self._awaited(message.stream))
            return outputs + self._release()
        return outputs + ([SendToServer(server, taken.answer)] if taken.answer is not None else [])

    def _spread_change(self, origin: str, taken: StreamResult, now: float) -> list[Output]:
        outputs: list[Output] = []
        added: dict[Hashable, Wanted] = {
            (each.subject, each.expression): (each.subject, each.form()) for each in taken.added
        }
        removed = [(each.subject, each.expression) for each in taken.removed]
        source = self._spread.get(origin)
        if source is None:
            if not taken.is_new:
                return []
            source = self._spread[origin] = InterestSource(
                Stream(self._group, origin),
                self._incarnation,
                self._mode,
                precision_min=self._precision_min,
                selects=lambda server, each: self._selects(server, each) and self._permits(origin, server, each),
                multicast=self._multicast,
            )
            outputs = source.update(added, (), now)[1]
            for server in self._alive:
                if server != origin:
                    source.outgoing.expect(server)
            for server in self._up:
                outputs += self._begin({origin: source}, server, now)
            return outputs
        return source.update(added, removed, now)[1]

    def _select_again(self, server: str, stream: Stream, taken: StreamResult, now: float) -> list[Output]:
        if not (taken.added or taken.removed or taken.is_new):
            return []
        by_subject: dict[str | None, list[Interest]] = {}
        for each in interests_of(self.incoming.filters((server, stream))):
            for subject in (None,) if each.subject is None else self._lineage(each.subject):
                by_subject.setdefault(subject, []).append(each)
        self._advertised[server] = by_subject
        if taken.is_new:
            return self._begin(self._spread, server, now)
        return [output for source in self._spread.values() for output in source.outgoing.select_again(server, now)]

    def _begin(self, spread: Mapping[str, InterestSource], server: str, now: float) -> list[Output]:
        """Send positions to ``server`` if it is up, and its advertisements are known where they are needed."""
        if server not in self._up or (self._uses_advertisements and server not in self._advertised):
            return []
        sources = [source for origin, source in spread.items() if origin != server]
        return [output for source in sources for output in source.outgoing.link_up(server, now)]

    def _selects(self, server: str, interest: Interest) -> bool:
        if not self._uses_advertisements:
            return True
        advertised = self._advertised.get(server, {})
        subjects = advertised if interest.subject is None else (*self._lineage(interest.subject), None)
        several = chain.from_iterable(advertised.get(subject, ()) for subject in subjects)
        return any(overlap(interest, each, self._lineage) for each in several)

    def _release(self) -> list[Output]:
        """Send the confirmations of what now counts everywhere."""
        done = [each for peer in self._pending.awaited() for each in self._pending.confirmed(peer, self._known(peer))]
        return [SendToServer(server, message) for server, message in done]

    def _awaited(self, stream: Stream) -> dict[_Peer, float]:
        """Return what counts before ``stream`` is confirmed: this interest everywhere; all interest at an advertiser.

        What a server may publish from now on is wanted perhaps by one that this server does not know again yet.
        """
        known = {origin: source.outgoing.version for origin, source in self._spread.items()}
        if stream.kind == "interest":
            return {(stream.origin, None): known[stream.origin]}
        origins = dict.fromkeys(self._alive, 1) | {stream.origin: 0} | known
        return {(origin, stream.origin): version for origin, version in origins.items()}

    def _known(self, peer: _Peer) -> float:
        """Return the version up to which the interest of an origin counts everywhere, or at one server."""
        origin, server = peer
        if (source := self._spread.get(origin)) is None:
            return 0 if origin in self._alive else math.inf
        return source.outgoing.effective if server is None else source.outgoing.effective_at(server)

    def _drop_confirmations(self, server: str) -> None:
        for each in [one for one in self._pending if one[0] == server]:
            self._pending.drop(each)
