"""Links between the servers of an event domain: authenticated, sealed, each message once and in order (SPEC J-12).

::

    opener                                          acceptor
      │ offer    id, fresh key, MAC    ──────────▶    │  pending: has the secrets, sends nothing by itself
      │          repeated with back-off               │
      │ answer   ids, fresh key, MAC   ◀──────────    │  the same again for the same offer
      │ PING, sealed                   ──────────▶  open, in place of an earlier link of this opener
    open                               ◀──────────    │  ACK, sealed

A link is the opener's: two servers may have two, and each carries messages both ways. The static keys of the servers
authenticate offers and answers (:mod:`~wanderbus.peers.handshake`); reliable UDP does the rest.

A recorded offer can be replayed. It then costs a pending link, which a packet that is sealed with its secrets never
follows. A server keeps at most one pending link for each other server, and drops it after some time. It answers only to
the configured address of a server, never with more bytes than it received, so that nobody can direct traffic elsewhere.

An idle link carries keepalives both ways, so that either side notices when the other is gone. A restarted server
answers packets for its former links with resets. When it opens a link, the other server probes its own link at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from wanderbus.composition import Composition, Part
from wanderbus.errors import ConfigurationError, LimitExceeded, RemoteProtocolError
from wanderbus.machine import (
    Address,
    CancelTimer,
    DatagramReceived,
    Input,
    RandomSource,
    SendDatagram,
    SetTimer,
    TimerFired,
)
from wanderbus.parameters.transports import RudpConfig
from wanderbus.peers.handshake import LinkKeys, decode_handshake, is_handshake
from wanderbus.peers.link_health import ServerHealth
from wanderbus.peers.link_parameters import (
    CONFIRM_S,
    KEEPALIVE_S,
    LOOK_S,
    PENDING_S,
    RETRY_JITTER,
    RETRY_S_MAX,
    RETRY_S_MIN,
    SERVER_LINK_CONFIG,
)
from wanderbus.peers.link_pause import LinkPause
from wanderbus.peers.link_sight import LinkSight
from wanderbus.peers.link_states import OpenLink, OwnLink, PendingLink
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    ConsumedOnServerLink,
    DisconnectServer,
    EndServerLinks,
    KnowServers,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerLinksOutput,
    ServerMessageReceived,
)
from wanderbus.peers.offers import LinkAnswer, LinkOffer, LinkRefusal
from wanderbus.peers.table_comparison import TableComparison
from wanderbus.rudp.endpoint import Endpoint
from wanderbus.rudp.interface import Counters, OpenConnection
from wanderbus.rudp.keys import KEY_BYTES, KeyPair
from wanderbus.transport import (
    CloseConnection,
    ConnectionFailed,
    ConnectionReset,
    Consumed,
    MessageReceived,
    Probe,
    SendMessage,
    TransportInput,
    TransportOutput,
)

_RUDP: Final = Part[TransportInput, TransportOutput]("rudp")
_OPENING: Final = "opening"
_PENDING: Final = "pending"
_LOOK: Final = ("look",)


class ServerLinks:
    """The machine: all links of one server on one local socket.

    ``dropped`` counts offers, answers and first packets that had no effect, by reason: ``malformed``, ``unknown
    server``, ``misdirected`` (to another server), ``forged`` (the MAC or the seal is wrong, also because of another
    domain), ``other tables`` (the domain file of the opener differs) and ``stale`` (an answer that nothing waits for).
    Other dropped datagrams are in :attr:`counters`.

    :param name: name of this server
    :param keys: its static keys
    :param servers: address and static public key (X25519, 32 bytes) of each other server, by its name
    :param domain: name of the domain, the same for all its servers
    :param random: source of keys, ids and jitter
    :param new_link: returns the next number of a link: positive, rising, never the same again
    :param socket: name of the local socket
    :param config: reliable UDP; ``consume_at_once`` and ``keepalive_s`` are replaced
    :param tables: digests of the tables of the domain's file that have to be equal, by their names
    :param keepalive_s: time without own packets after which a link carries a PING, seconds
    :param joins: True for a server that joined the domain later: others may not know it
    :param hint: advice behind the report about a server that has had no link with this one
    :param retry_s_max: longest wait for an answer, and longest pause after a link has closed, without jitter
    :param found_later: public keys of the groups of servers whose addresses become known later
    :param reset_key: secret that outlives the process, for resets after a restart; b"" for none
    :raises ConfigurationError: a public key cannot be used; the message begins with the server
    :raises ValueError: a name is empty or too long, or ``keepalive_s`` is not above 0
    """

    def __init__(
        self,
        name: str,
        keys: KeyPair,
        servers: Mapping[str, tuple[Address, bytes]],
        domain: str,
        random: RandomSource,
        new_link: Callable[[], int],
        *,
        tables: Mapping[str, bytes] = {},
        socket: str = "servers",
        config: RudpConfig | None = None,
        keepalive_s: float = KEEPALIVE_S,
        reset_key: bytes = b"",
        joins: bool = False,
        hint: str = "",
        retry_s_max: float = RETRY_S_MAX,
        found_later: Mapping[str, bytes] = {},
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._name = name
        self._keys = keys
        self._domain = domain
        self._found_later = found_later
        self._addresses: dict[str, Address] = {}
        self._opening: dict[str, LinkKeys] = {}
        self._accepting: dict[str, LinkKeys] = {}
        self._health: dict[str, ServerHealth] = {}
        self._tables = TableComparison(tables)
        self._never = f"; its domain file may lack {name}" if joins else f"; {hint}" if hint else ""
        for server, (address, public) in servers.items():
            if server != name:
                self._know(server, address, public)
        self._looks = False
        """True if the timer of the next look at all links is set."""
        self._config = msgspec.structs.replace(
            config or SERVER_LINK_CONFIG, consume_at_once=False, keepalive_s=keepalive_s
        )
        self._endpoint = Endpoint(random, self._config, socket=socket, reset_key=reset_key)
        self._random = random
        self._new_link = new_link
        self._socket = socket
        self._retry_s_max = retry_s_max
        self._own: dict[str, OwnLink] = {}
        self._offered: dict[int, OwnLink] = {}
        """Own links that wait for an answer, by the ids of their connections."""
        self._answered: dict[int, OwnLink] = {}
        """Own links that wait for the first packet of the acceptor, likewise."""
        self._pending: dict[str, PendingLink] = {}
        self._pending_ids: dict[int, PendingLink] = {}
        self._accepted: dict[str, OpenLink] = {}
        self._links: dict[int, OpenLink] = {}
        self._by_id: dict[int, OpenLink] = {}
        self._onward: list[TransportInput] = []
        self._parts = Composition[ServerLinksOutput]()
        self._parts.add(_RUDP, self._endpoint.step, self._route)

    def _know(self, server: str, address: Address, public: bytes) -> None:
        keys, domain, name = self._keys, self._domain, self._name
        try:
            ours = LinkKeys(keys, public, domain=domain, opener=name, acceptor=server, opens=True)
            theirs = LinkKeys(keys, public, domain=domain, opener=server, acceptor=name, opens=False)
        except RemoteProtocolError:
            raise ConfigurationError(f"servers.{server}.public_key: no X25519 public key; correct it") from None
        self._addresses[server] = address
        self._opening[server], self._accepting[server] = ours, theirs
        self._health[server] = ServerHealth(server, address, self._never)

    @property
    def counters(self) -> Counters:
        """Return the counters of reliable UDP."""
        return self._endpoint.counters

    @property
    def pending(self) -> int:
        """Return the number of offers of others that are answered and not followed by a packet yet."""
        return len(self._pending_ids)

    def trouble(self, server: str) -> str:
        """Return why ``server`` cannot be reached, as reported last; "" if it can, or if nothing is known."""
        return self._health[server].report if server in self._health else ""

    def unconfirmed_bytes(self, link: int) -> int:
        """Return the bytes that wait to be sent or acknowledged on ``link``; 0 for an unknown link."""
        opened = self._links.get(link)
        return self._endpoint.unconfirmed_bytes(opened.local_id) if opened else 0

    def step(self, inputs: Iterable[Input], now: float) -> list[ServerLinksOutput]:
        """Process a batch of inputs at monotonic second ``now``.

        :raises LimitExceeded: a payload exceeds ``message_bytes_max``; nothing of the batch was done
        :raises ConfigurationError: :class:`ConnectServer` names a server that is not in the domain; likewise
        """
        batch = list(inputs)
        self._check(batch)
        for given in batch:
            if type(given) is DatagramReceived:
                self._on_datagram(given, now)
            elif type(given) is TimerFired:
                self._on_timer(given, now)
            else:
                self._on_request(given, now)
        self._give_onward()
        self._parts.run(now)
        return self._parts.take_outputs()

    def _end(self, reason: str, now: float) -> None:
        """Close all links."""
        for server in list(self._own):
            self._disconnect(self._own.pop(server), now)
        for link in list(self._links.values()):
            self._close(link, reason, now)

    def _give_onward(self) -> None:
        """Give the endpoint what is for it, as one batch."""
        onward, self._onward = self._onward, []
        self._parts.give(_RUDP, onward)

    def _check(self, batch: list[Input]) -> None:
        most = self._config.message_bytes_max
        for given in batch:
            if type(given) is SendOnServerLink and (size := len(given.payload)) > most:
                raise LimitExceeded(f"a message has {size} bytes, at most {most} can be sent", "message_bytes_max")
            if type(given) is ConnectServer and not self._is_known(given.server, batch):
                raise ConfigurationError(f"server {given.server!r} is not another server of the domain; name one")

    def _is_known(self, server: str, batch: list[Input]) -> bool:
        """Return whether a server has an address, or becomes known in the same batch."""
        found = (given.servers for given in batch if type(given) is KnowServers)
        return server in self._addresses or any(name == server for servers in found for name, _ in servers)

    def _on_request(self, given: Input, now: float) -> None:
        match given:
            case SendOnServerLink(link=number, payload=payload) if link := self._links.get(number):
                self._onward.append(SendMessage(link.local_id, payload))
            case ConsumedOnServerLink(link=number, messages=messages) if link := self._links.get(number):
                self._onward.append(Consumed(link.local_id, messages))
            case CloseServerLink(link=number, reason=reason) if link := self._links.get(number):
                self._close(link, reason, now)
            case ConnectServer(server=server) if server not in self._own:
                own = self._own[server] = OwnLink(server, LinkPause(RETRY_S_MIN, self._retry_s_max))
                self._health[server].wanted(now)
                self._start_offer(own, now)
                self._look_later(now)
            case EndServerLinks(reason=reason):
                self._end(reason, now)
            case DisconnectServer(server=server) if server in self._own:
                self._disconnect(self._own.pop(server), now)
                self._health[server].unwanted()
            case KnowServers(group=group, servers=servers) if group in self._found_later:
                self._on_known(group, dict(servers), now)

    def _on_known(self, group: str, servers: dict[str, Address], now: float) -> None:
        """Use the present addresses of a group of servers, and forget those with others."""
        former = {server: each for server, each in self._addresses.items() if server.startswith(f"{group}/")}
        for server in [each for each, address in former.items() if servers.get(each) != address]:
            self._forget(server, now)
        for server, address in servers.items():
            if server not in self._addresses and server.startswith(f"{group}/"):
                self._know(server, address, self._found_later[group])

    def _forget(self, server: str, now: float) -> None:
        if (own := self._own.pop(server, None)) is not None:
            self._disconnect(own, now)
        if (accepted := self._accepted.get(server)) is not None:
            self._close(accepted, "its address is not that of a server any more", now)
        if server in self._pending:
            self._discard_pending(server)
            self._parts.emit(CancelTimer((_PENDING, server)))
        for known in (self._addresses, self._opening, self._accepting, self._health):
            del known[server]

    def _on_timer(self, timer: TimerFired, now: float) -> None:
        match timer.key:
            case ("rudp", inner):
                self._onward.append(TimerFired(inner))
            case ("opening", str(server)) if (own := self._own.get(server)) and own.link is None:
                if own.offer_keys is None:
                    self._discard_opening(own)
                    self._start_offer(own, now)
                else:
                    self._send_offer(own, now)
            case ("pending", str(server)):
                self._discard_pending(server)
            case ("look",):
                self._looks = False
                for server in self._health:
                    self._look(server, now)
                self._look_later(now)

    def _on_datagram(self, given: DatagramReceived, now: float) -> None:
        if given.socket != self._socket:
            return
        data = given.data
        if is_handshake(data):
            self._on_handshake(data, given.source, now)
            return
        if self._pending_ids and (pending := self._pending_ids.get(int.from_bytes(data[:8], "big"))):
            if not pending.is_first_packet(data):
                self.dropped["forged"] += 1
                return
            self._accept(pending, now)
        self._onward.append(given)

    # Own links -------------------------------------------------------------------------------------------------------

    def _disconnect(self, own: OwnLink, now: float) -> None:
        if own.link is not None:
            self._close(own.link, "this server no longer wants the link", now)
        else:
            self._discard_opening(own)
            self._parts.emit(CancelTimer((_OPENING, own.server)))

    def _start_offer(self, own: OwnLink, now: float) -> None:
        own.local_id, own.offered_at, own.wait_s = self._endpoint.allocate(), now, RETRY_S_MIN
        own.offer_keys = KeyPair(self._random.token(KEY_BYTES))
        own.offer = self._opening[own.server].offer(own.local_id, own.offer_keys.public, self._tables.encoded)
        self._offered[own.local_id] = own
        self._send_offer(own, now)

    def _send_offer(self, own: OwnLink, now: float) -> None:
        self._parts.emit(SendDatagram(self._socket, self._addresses[own.server], own.offer))
        self._set_opening_timer(own, now + self._jittered(own.wait_s))
        own.wait_s = min(2 * own.wait_s, self._retry_s_max)

    def _on_answer(self, answer: LinkAnswer, now: float) -> None:
        """Open the connection, and send a PING, which lets the acceptor open the link too."""
        own = self._offered.get(answer.opener_id)
        if own is None or own.offer_keys is None:
            self.dropped["stale"] += 1
            return
        keys, local_id = self._opening[own.server], own.local_id
        if not keys.is_genuine_answer(answer, own.offer):
            self.dropped["forged"] += 1
            return
        try:
            secrets = keys.secrets(own.offer_keys, answer.public, own.offer, answer.data)
        except RemoteProtocolError:
            self.dropped["forged"] += 1
            return
        own.offer, own.offer_keys = b"", None
        self._answered[local_id] = self._offered.pop(local_id)
        opened = OpenConnection(local_id, answer.acceptor_id, self._addresses[own.server], 0, secrets)
        self._onward += opened, Probe(local_id)
        waited_s = now - own.offered_at
        self._set_opening_timer(own, now + min(max(CONFIRM_S, 2 * waited_s), self._retry_s_max))

    def _confirm(self, own: OwnLink, now: float) -> OpenLink:
        """Report an own link that has got the first packet of the acceptor, which therefore has it too."""
        del self._answered[own.local_id]
        own.opened_at = now
        self._parts.emit(CancelTimer((_OPENING, own.server)))
        own.link = self._open(own.server, own.local_id, is_ours=True)
        self._health[own.server].opened()
        self._look(own.server, now)
        return own.link

    def _pause(self, own: OwnLink, now: float) -> None:
        """Offer a new link after a pause, which doubles if links close soon after they opened."""
        self._discard_opening(own)
        self._set_opening_timer(own, now + self._jittered(own.pause.after(now - own.opened_at)))

    def _discard_opening(self, own: OwnLink) -> None:
        """Discard the connection of an own link, and its offer."""
        if own.local_id:
            self._onward.append(CloseConnection(own.local_id))
        self._offered.pop(own.local_id, None)
        self._answered.pop(own.local_id, None)
        own.local_id, own.offer, own.offer_keys, own.link = 0, b"", None, None

    def _set_opening_timer(self, own: OwnLink, at: float) -> None:
        self._parts.emit(SetTimer((_OPENING, own.server), at))

    def _jittered(self, seconds: float) -> float:
        return seconds * self._random.uniform(1 - RETRY_JITTER, 1 + RETRY_JITTER)

    def _hurry(self, server: str, now: float) -> None:
        """Repeat the offer to ``server``, or check the own link to it, at once: it has just opened a link."""
        own = self._own.get(server)
        if own is None:
            return
        if own.link is not None:
            self._onward.append(Probe(own.local_id))
        elif own.offer_keys is not None:
            own.wait_s = RETRY_S_MIN
            self._send_offer(own, now)

    # Links of others -------------------------------------------------------------------------------------------------

    def _on_handshake(self, data: bytes, source: Address, now: float) -> None:
        try:
            message = decode_handshake(data)
        except RemoteProtocolError:
            self.dropped["malformed"] += 1
            return
        if isinstance(message, LinkAnswer):
            self._on_answer(message, now)
        elif isinstance(message, LinkRefusal):
            self._on_refusal(message, now)
        elif (keys := self._accepting.get(message.opener)) is None:
            self.dropped["unknown server"] += 1
        elif message.acceptor != self._name:
            self.dropped["misdirected"] += 1
        elif not keys.is_genuine_offer(message):
            self.dropped["forged"] += 1
        else:
            self._on_offer(message, keys, source, now)

    def _on_offer(self, offer: LinkOffer, keys: LinkKeys, source: Address, now: float) -> None:
        """Answer a genuine offer, or refuse it if the domain file of its server differs from ours."""
        self._health[offer.opener].offered_from(source)
        if difference := self._tables.difference(offer.tables):
            self.dropped["other tables"] += 1
            self._on_difference(offer.opener, difference, now)
            answer = keys.refusal(offer, self._tables.encoded)
        else:
            answer = self._known_answer(offer) or self._make_pending(offer, keys, now)
        if answer:
            self._parts.emit(SendDatagram(self._socket, self._addresses[offer.opener], answer))

    def _on_refusal(self, refusal: LinkRefusal, now: float) -> None:
        """Report why another server refuses a link; the offer is repeated, since the other one may be restarted."""
        own = self._offered.get(refusal.opener_id)
        if own is None or own.offer_keys is None:
            self.dropped["stale"] += 1
        elif not self._opening[own.server].is_genuine_answer(refusal, own.offer):
            self.dropped["forged"] += 1
        elif difference := self._tables.difference(refusal.tables):
            self._on_difference(own.server, difference, now)

    def _on_difference(self, server: str, difference: str, now: float) -> None:
        self._health[server].difference = difference
        self._look(server, now)

    def _known_answer(self, offer: LinkOffer) -> bytes:
        """Return the answer that ``offer`` has already got, b"" if none."""
        pending, accepted = self._pending.get(offer.opener), self._accepted.get(offer.opener)
        if pending is not None and pending.offer.data == offer.data:
            return pending.answer
        return accepted.answer if accepted is not None and accepted.offer == offer.data else b""

    def _make_pending(self, offer: LinkOffer, keys: LinkKeys, now: float) -> bytes:
        """Answer a new offer: its pending link replaces that of another offer of the same server."""
        local_id = self._endpoint.allocate()
        fresh = KeyPair(self._random.token(KEY_BYTES))
        answer = keys.answer(offer, local_id, fresh.public)
        try:
            secrets = keys.secrets(fresh, offer.public, offer.data, answer)
        except RemoteProtocolError:
            self._endpoint.release(local_id)
            self.dropped["forged"] += 1
            return b""
        self._discard_pending(offer.opener)
        pending = PendingLink(offer, local_id, answer, secrets)
        self._pending[offer.opener] = self._pending_ids[local_id] = pending
        self._parts.emit(SetTimer((_PENDING, offer.opener), now + PENDING_S))
        return answer

    def _discard_pending(self, server: str) -> None:
        if pending := self._pending.pop(server, None):
            del self._pending_ids[pending.local_id]
            self._endpoint.release(pending.local_id)

    def _accept(self, pending: PendingLink, now: float) -> None:
        """Open a link whose opener has sent a packet; it replaces the earlier link of this server."""
        server, local_id = pending.offer.opener, pending.local_id
        self._discard_pending(server)
        self._parts.emit(CancelTimer((_PENDING, server)))
        if earlier := self._accepted.get(server):
            self._close(earlier, f"server {server} has opened a new link", now)
        address = self._addresses[server]
        self._onward.append(OpenConnection(local_id, pending.offer.opener_id, address, 0, pending.secrets))
        link = self._open(server, local_id, is_ours=False, offer=pending.offer.data, answer=pending.answer)
        self._accepted[server] = link
        self._health[server].difference = ""
        self._look(server, now)
        self._look_later(now)
        self._hurry(server, now)

    # All links -------------------------------------------------------------------------------------------------------

    def _open(self, server: str, local_id: int, *, is_ours: bool, offer: bytes = b"", answer: bytes = b"") -> OpenLink:
        link = OpenLink(self._new_link(), server, local_id, is_ours=is_ours, offer=offer, answer=answer)
        self._links[link.number] = self._by_id[local_id] = link
        self._parts.emit(ServerLinkOpened(link.number, server, is_ours))
        return link

    def _look_later(self, now: float) -> None:
        """Look at all links again after a while, as long as there are any, or some are wanted."""
        if not self._looks and (self._own or self._links):
            self._looks = True
            self._parts.emit(SetTimer(_LOOK, now + LOOK_S))

    def _look(self, server: str, now: float) -> None:
        """Report whether a server can be reached, if that has changed."""
        own, accepted = self._own.get(server), self._accepted.get(server)
        open_links = [each for each in (own.link if own else None, accepted) if each is not None]
        for report in self._health[server].look([self._sight(each) for each in open_links], now):
            self._parts.emit(report)

    def _sight(self, link: OpenLink) -> LinkSight:
        endpoint, local_id = self._endpoint, link.local_id
        return LinkSight(
            link.number,
            endpoint.newest_acknowledged(local_id),
            not endpoint.all_acknowledged(local_id),
            endpoint.rtt_s(local_id),
        )

    def _close(self, link: OpenLink, reason: str, now: float) -> None:
        del self._links[link.number], self._by_id[link.local_id]
        self._onward.append(CloseConnection(link.local_id))
        self._parts.emit(ServerLinkClosed(link.number, link.server, reason))
        if not link.is_ours:
            del self._accepted[link.server]
        elif own := self._own.get(link.server):
            self._health[link.server].closed(reason, now)
            self._pause(own, now)

    def _route(self, outputs: list[TransportOutput], now: float) -> None:
        """Pass on the outputs of the endpoint, and report confirmed own links before their first messages."""
        for output in outputs:
            match output:
                case MessageReceived(local_id=local_id, payload=payload):
                    own = self._answered.get(local_id)
                    link = self._confirm(own, now) if own else self._by_id.get(local_id)
                    if link is not None:
                        self._parts.emit(ServerMessageReceived(link.number, link.server, payload))
                case SendDatagram() | SetTimer() | CancelTimer():
                    self._parts.emit(output)
                case ConnectionFailed(local_id=local_id, reason=reason):
                    self._on_lost(local_id, reason, now)
                case ConnectionReset(local_id=local_id):
                    self._on_lost(local_id, "the other server does not know the link any more", now)
        for local_id, own in list(self._answered.items()):
            if self._endpoint.reached(local_id):
                self._confirm(own, now)
        self._give_onward()

    def _on_lost(self, local_id: int, reason: str, now: float) -> None:
        if link := self._by_id.get(local_id):
            self._close(link, reason, now)
        elif own := self._answered.get(local_id):
            self._pause(own, now)
