"""Interest in decentralised channels: that of this server, and as their leader that of all servers (SPEC K-05, K-07).

::

    broker ──DecentralisedInterestChanged, RoutesAnswered──▶ ┌───────────────┐ ──▶ messages on links to leaders
                                                             │ Decentralised │     and from others
    broker ◀─InterestEffective, RoutesArrived─────────────── │   Interest    │ ◀── messages, links open and close
                                                             └───────────────┘

A server sends its interest on its own link to each leader. The leader confirms it there once it counts everywhere, and
spreads the interest of the others on the same link. A leader is its own access server too, without a link.

With a multicast group, a leader spreads a change for several servers as one datagram. They confirm it on their links.

Advertisements are sent as interest is. Where they are required, a leader spreads only the interest that they match, and
confirms them once this server has it (SPEC A-17).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from wanderbus.broker.messages import (
    AdvertisementsChanged,
    DecentralisedArrivalMatched,
    DecentralisedInterestChanged,
    InterestEffective,
    RoutesAnswered,
    RoutesArrived,
)
from wanderbus.channels.decentralised_channels import INTEREST_PREFIX, DecentralisedChannels
from wanderbus.channels.interest.interest_set import Wanted
from wanderbus.channels.interest.interest_source import InterestSource
from wanderbus.channels.interest.messages import (
    FromReceiver,
    FromSender,
    Kind,
    Message,
    Stream,
    decode,
    decode_for_many,
    encode,
)
from wanderbus.channels.interest.multicast import Multicast, MulticastCounts, SendToMany
from wanderbus.channels.interest.outgoing_stream import SendToServer
from wanderbus.channels.interest.proxy_channels import ProxyChannels
from wanderbus.channels.pending import Pending
from wanderbus.errors import RemoteProtocolError
from wanderbus.machine import DatagramReceived, Input, Output, SetTimer, TimerFired
from wanderbus.peers.interest_charges import charges
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.peers.multicast_group import MulticastGroup
from wanderbus.peers.parts import AboutServers
from wanderbus.subscription import EVERY_SUBJECT

_OWN: Final = 0
"""Number of the link of this server to itself."""

_TIMER: Final = "repeat"

_Place = tuple[str, int, Kind]
"""A leader, the place of a merging, and the kind of filters."""


class DecentralisedInterest:
    """Sends, spreads and confirms interest; ``step`` works as in every machine.

    :param epoch: identifies this life of the server; it rises with each
    :param group: multicast group of the domain; without it links carry everything
    """

    def __init__(self, channels: DecentralisedChannels, *, epoch: int, group: MulticastGroup | None = None) -> None:
        self._channels = channels
        self._group = group
        self._multicast = None if group is None else Multicast(_numbers(channels))
        self._server = channels.server
        self._outputs: list[AboutServers] = []
        self._sources: dict[_Place, InterestSource] = {}
        for leader in channels.leaders:
            for place, merging in enumerate(channels.mergings):
                stream = Stream(place, self._server)
                source = InterestSource(stream, epoch, merging.mode, precision_min=merging.precision_min)
                self._sources[leader, place, "interest"] = source
                if merging.for_advertisers:
                    stream = Stream(place, self._server, "advertisements")
                    self._sources[leader, place, "advertisements"] = InterestSource(stream, epoch)
        for (leader, _, _), source in self._sources.items():
            source.outgoing.expect(leader)
        self._proxies: list[ProxyChannels] = []
        """Proxy channels of each merging, if this server is a leader."""
        for place, merging in enumerate(channels.mergings if self._server in channels.leaders else ()):
            proxies = ProxyChannels(
                place,
                epoch,
                merging.mode,
                precision_min=merging.precision_min,
                uses_advertisements=merging.for_advertisers,
                lineage=channels.lineage,
                multicast=self._multicast,
            )
            for server in channels.present:
                proxies.expect(server)
            self._proxies.append(proxies)
        self._own: dict[str, int] = {}
        """The link that this server has opened to each other one."""
        self._accepted: dict[str, int] = {}
        """The link that each other server has opened to this one."""
        self._loop: deque[tuple[bool, Message]] = deque()
        """Messages of this server to itself; true if the leader is the sender."""
        self._local: dict[str, dict[_Place, list[Hashable]]] = {}
        """Ids of the filters of each subscription and advertisement here, in the sources that have them."""
        self._pending: Pending[str, _Place] = Pending()
        """Subscriptions and advertisements that do not count yet."""
        self._timer_at: float | None = None

    def start(self, now: float) -> list[AboutServers]:
        """Begin, with all subscriptions of earlier lives given; return the requests for links to all servers."""
        self._begin_with(self._server, now)
        for proxies in self._proxies:
            self._from_leader(proxies.link_up(self._server, now))
        self._finish(now)
        requests: list[AboutServers] = [ConnectServer(each) for each in self._channels.others]
        return requests + self._take_outputs()

    def step(self, inputs: Iterable[Input | Output], now: float) -> list[AboutServers]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        for given in inputs:
            match given:
                case ServerMessageReceived():
                    self._on_message(given, now)
                case DatagramReceived(data=data):
                    self._on_datagram(data)
                case DecentralisedInterestChanged():
                    self._on_interest_changed(given, now)
                case AdvertisementsChanged():
                    self._on_advertisements_changed(given, now)
                case DecentralisedArrivalMatched(subject=subject, is_matched=is_matched) if self._channels.has(subject):
                    place = self._channels.merging_place(subject)
                    for leader in self._channels.leaders_of(subject):
                        source = self._sources[leader, place, "interest"]
                        self._to_leader(leader, source.event_arrived(subject, matched=is_matched, now=now))
                case RoutesAnswered(leader=leader, link=link, answer=answer):
                    self._answer(leader, link, answer)
                case ServerLinkOpened():
                    self._on_link_opened(given, now)
                case ServerLinkClosed(link=link, server=server):
                    self._on_link_closed(link, server)
                case TimerFired():
                    self._timer_at = None
                    for (leader, _, _), source in self._sources.items():
                        self._to_leader(leader, source.repeat(now))
                    for proxies in self._proxies:
                        self._from_leader(proxies.repeat(now))
        self._finish(now)
        return self._take_outputs()

    @property
    def pending(self) -> list[str]:
        """Return the names of the subscriptions and advertisements that do not count yet."""
        return list(self._pending)

    def multicast_counts(self) -> Mapping[str, MulticastCounts]:
        """Return for each other server the changes that this one, as a leader, has sent it by multicast."""
        return {} if self._multicast is None else self._multicast.counts

    # Links ------------------------------------------------------------------------------------------------------

    def _on_link_opened(self, opened: ServerLinkOpened, now: float) -> None:
        server = opened.server
        if opened.is_ours:
            self._own[server] = opened.link
            self._begin_with(server, now)
        else:
            self._accepted[server] = opened.link
            for proxies in self._proxies:
                self._from_leader(proxies.link_up(server, now))

    def _begin_with(self, server: str, now: float) -> None:
        """Send the positions of what this server wants and advertises, if ``server`` is a leader."""
        for (leader, _, _), source in self._sources.items():
            if leader == server:
                self._to_leader(server, source.outgoing.link_up(server, now))

    def _on_link_closed(self, link: int, server: str) -> None:
        # A server that is away counts as alive: it may still publish by its routes (SPEC K-08).
        if self._own.get(server) == link:
            del self._own[server]
            for (leader, _, _), source in self._sources.items():
                if leader == server:
                    source.outgoing.link_down(server, is_dead=False)
        elif self._accepted.get(server) == link:
            del self._accepted[server]
            for proxies in self._proxies:
                self._from_leader(proxies.link_down(server, is_dead=False))

    def _on_message(self, received: ServerMessageReceived, now: float) -> None:
        server, link = received.server, received.link
        try:
            message = decode(received.payload)
            if self._own.get(server) == link:
                self._at_access_server(server, link, message, received.payload, now)
            elif self._accepted.get(server) == link:
                self._at_leader(server, message, now)
        except RemoteProtocolError as error:
            self._outputs.append(CloseServerLink(link, f"{server}: {error}"))

    def _on_datagram(self, data: bytes) -> None:
        """Take a change that a leader has sent to several servers, if there is a link for the answer."""
        opened = None if self._group is None else self._group.open(data)
        if opened is None:
            return
        leader, payload = opened
        try:
            message = decode_for_many(payload).for_server(self._channels.number)
        except RemoteProtocolError:
            return
        if message is not None and (link := self._own.get(leader)):
            self._outputs.append(RoutesArrived(leader, link, message, encode(message), is_multicast=True))

    def _at_access_server(self, leader: str, link: int, message: Message, encoded: bytes, now: float) -> None:
        """Take a message of a leader."""
        if isinstance(message, FromSender):
            self._outputs.append(RoutesArrived(leader, link, message, encoded))
        elif source := self._sources.get((leader, message.stream.group, message.stream.kind)):
            self._to_leader(leader, source.outgoing.receive(leader, message, now))

    def _at_leader(self, server: str, message: Message, now: float) -> None:
        """Take a message of an access server."""
        group = message.stream.group
        if not 0 <= group < len(self._proxies):
            raise RemoteProtocolError(f"there is no merging {group}; compare the domain files", None)
        self._from_leader(self._proxies[group].receive(server, message, now))

    def _answer(self, leader: str, link: int, answer: FromReceiver) -> None:
        """Send the answer of the broker here to a leader, unless the link has been replaced."""
        if leader == self._server:
            self._loop.append((False, answer))
        elif self._own.get(leader) == link:
            self._outputs.append(_send(link, answer))

    def _to_leader(self, leader: str, outputs: Iterable[Output]) -> None:
        """Send messages of this server as an access server."""
        for each in outputs:
            if not isinstance(each, SendToServer):
                self._outputs.append(each)
            elif leader == self._server:
                self._loop.append((False, each.message))
            elif link := self._own.get(leader):
                self._outputs.append(_send(link, each.message))

    def _from_leader(self, outputs: Iterable[Output]) -> None:
        """Send messages of this server as a leader."""
        for each in outputs:
            if isinstance(each, SendToMany) and self._group is not None:
                self._outputs.append(self._group.seal(each.payload))
            elif not isinstance(each, SendToServer):
                self._outputs.append(each)
            elif each.server == self._server:
                self._loop.append((True, each.message))
            elif link := self._accepted.get(each.server):
                self._outputs.append(_send(link, each.message))

    # Interest here ----------------------------------------------------------------------------------------------

    def _on_interest_changed(self, changed: DecentralisedInterestChanged, now: float) -> None:
        for name, entries in changed.added.items():
            wanted: dict[_Place, dict[Hashable, Wanted]] = {}
            for number, (subject, interest) in enumerate(entries):
                place = self._channels.merging_place(subject)
                named = None if subject == EVERY_SUBJECT else subject
                for leader in self._channels.leaders_of(subject):
                    wanted.setdefault((leader, place, "interest"), {})[name, number] = named, interest
            self._local[name] = {at: list(added) for at, added in wanted.items()}
            self._pending.add(name, {at: self._update(at, added, (), now) for at, added in wanted.items()})
            units = sum(self._sources[at].interests.units for at in wanted)
            self._outputs += charges(changed.added, units)
        self._remove(changed.removed, now)

    def _on_advertisements_changed(self, changed: AdvertisementsChanged, now: float) -> None:
        for name, (subject, filter) in changed.added.items():
            wanted: Wanted = None if subject == EVERY_SUBJECT else subject, filter
            places: list[_Place] = [(*at, "advertisements") for at in self._channels.advertised_at(subject)]
            self._local[name] = {at: [name] for at in places}
            self._pending.add(name, {at: self._update(at, {name: wanted}, (), now) for at in places})
        self._remove(changed.removed, now)

    def _remove(self, names: Iterable[str], now: float) -> None:
        for name in names:
            self._pending.drop(name)
            for at, ids in self._local.pop(name, {}).items():
                self._update(at, {}, ids, now)

    def _update(self, at: _Place, added: dict[Hashable, Wanted], removed: Iterable[Hashable], now: float) -> int:
        """Change the filters of a source; return the version from which this counts."""
        version, outputs = self._sources[at].update(added, removed, now)
        self._to_leader(at[0], outputs)
        return version

    def _finish(self, now: float) -> None:
        """Deliver the messages of this server to itself, report what counts now, and set the timer."""
        while self._loop:
            is_from_leader, message = self._loop.popleft()
            if is_from_leader:
                self._at_access_server(self._server, _OWN, message, encode(message), now)
            else:
                self._at_leader(self._server, message, now)
        awaited = [(at, self._sources[at].outgoing.effective) for at in self._pending.awaited()]
        if counting := [name for at, version in awaited for name in self._pending.confirmed(at, version)]:
            self._outputs.append(InterestEffective(tuple(counting)))
        times = [each.repeat_at() for each in self._sources.values()]
        times += [each.repeat_at() for each in self._proxies]
        at = min((each for each in times if each is not None), default=None)
        if at is not None and (self._timer_at is None or at < self._timer_at):
            self._timer_at = at
            self._outputs.append(SetTimer(_TIMER, at))

    def _take_outputs(self) -> list[AboutServers]:
        outputs, self._outputs = self._outputs, []
        return outputs


def _numbers(channels: DecentralisedChannels) -> dict[str, int]:
    """Return the number of each other server."""
    return {name: channels.servers.index(name) for name in channels.others}


def _send(link: int, message: Message) -> SendOnServerLink:
    return SendOnServerLink(link, INTEREST_PREFIX + encode(message))
