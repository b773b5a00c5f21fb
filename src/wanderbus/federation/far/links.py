"""Links of this server to servers of other domains: each message once and in order, or the link closes.

To whoever uses them they are as the links within a domain. Gateways pass the messages on, and forget them: if one
fails, or the link between the domains, messages are lost. Each has a number, so the receiver of the next one notices,
or of the next probe, and closes the link. Whoever needs it opens another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from wanderbus.errors import RemoteProtocolError
from wanderbus.federation.circuit_messages import FromFar, ServersAsked, ServersTold, ToFar
from wanderbus.federation.far.messages import (
    VERSION,
    Answered,
    Called,
    Carried,
    Contacts,
    Ended,
    FarId,
    Message,
    Probed,
    decode,
    encode,
)
from wanderbus.federation.far.reports import FarLinksInput, FarLinksOutput
from wanderbus.federation.gateway_choice import domain_of_link, link_name
from wanderbus.machine import SetTimer, TimerFired
from wanderbus.peers.far_servers import AskServers, FarServerMet, ServersFound
from wanderbus.peers.link_pause import LinkPause
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    DisconnectServer,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)

TURN_S: Final = 0.5
"""Pause between two probes of a link, and two calls."""

PAUSE_S_MAX: Final = 32.0
"""Longest pause before a link is opened again that closed soon after it opened, as one whose messages are invalid."""

SILENT_S: Final = 5.0
"""Time without a message after which a link is closed."""

ACCEPTED_MAX: Final = 256
"""Links that the servers of one foreign domain have opened here, at most."""

ASKED_MAX: Final = 256
"""Questions for the servers of domains that wait, at most; the oldest is forgotten."""


class _FarLink:
    """A link to ``server`` of another domain."""

    def __init__(self, link: int, server: str, identity: FarId, now: float, *, is_ours: bool) -> None:
        self.link = link
        self.server = server
        self.id = identity
        self.is_ours = is_ours
        self.is_open = not is_ours
        self.sent = self.received = 0
        self.opened_at = self.heard = now

    @property
    def key(self) -> tuple[str, FarId, bool]:
        """Return what a message says of its link."""
        return self.server, self.id, self.is_ours


class _Wanted:
    """A server to which a link has to be open, if not before ``call_at``."""

    def __init__(self) -> None:
        self.pause = LinkPause(TURN_S, PAUSE_S_MAX)
        self.call_at = 0.0


class FarLinks:
    """All of these links; :meth:`take` works as the step of a machine.

    :param domains: names of the domains whose servers may open links here
    :param new_link: returns the number of a link that is not used yet
    :param epoch: identifies this life of the server; it rises with each
    """

    def __init__(self, domains: Iterable[str], new_link: Callable[[], int], epoch: int) -> None:
        self._contacts: Contacts = ()
        self._domains = frozenset(domains)
        self._new_link = new_link
        self._epoch = epoch
        self._last = 0
        self._wanted: dict[str, _Wanted] = {}
        self._links: dict[int, _FarLink] = {}
        self._by_key: dict[tuple[str, FarId, bool], _FarLink] = {}
        self._asked: dict[tuple[str, str], None] = {}
        self._is_timer_set = False
        self._outputs: list[FarLinksOutput] = []

    def use(self, domains: Iterable[str]) -> None:
        """Let servers of these domains open links here, and of no others."""
        self._domains = frozenset(domains)

    def called_at(self, contacts: Contacts) -> None:
        """Tell other domains that this server is called at these SIP URIs."""
        self._contacts = contacts

    def take(self, inputs: Iterable[FarLinksInput], now: float) -> list[FarLinksOutput]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        for given in inputs:
            match given:
                case ConnectServer(server=server) if server not in self._wanted:
                    self._wanted[server] = _Wanted()
                    self._call(server, now)
                case DisconnectServer(server=server):
                    self._wanted.pop(server, None)
                    for each in [one for one in self._links.values() if one.server == server and one.is_ours]:
                        self._end(each, "it is not needed any more", now, is_told=True)
                case SendOnServerLink(link=link, payload=payload):
                    if (found := self._links.get(link)) is not None and found.is_open:
                        found.sent += 1
                        self._send(found.server, Carried(found.id, found.is_ours, found.sent, payload))
                case CloseServerLink(link=link, reason=reason):
                    if (found := self._links.get(link)) is not None:
                        self._end(found, reason, now, is_told=True)
                case AskServers(domain=domain, user=user):
                    self._asked[domain, user] = None
                    if len(self._asked) > ASKED_MAX:
                        del self._asked[next(iter(self._asked))]
                    self._outputs.append(ServersAsked(domain, user))
                case ServersTold(domain=domain, user=user, servers=servers, chosen=chosen):
                    if (domain, user) in self._asked:
                        del self._asked[domain, user]
                        self._outputs.append(ServersFound(domain, user, servers, chosen))
                case FromFar():
                    self._on_message(given, now)
                case TimerFired():
                    self._take_turn(now)
        if not self._is_timer_set and (self._links or self._wanted or self._asked):
            self._is_timer_set = True
            self._outputs.append(SetTimer("turn", now + TURN_S))
        outputs, self._outputs = self._outputs, []
        return outputs

    def _take_turn(self, now: float) -> None:
        """Probe links, close silent ones, and repeat what was not answered."""
        self._is_timer_set = False
        for each in list(self._links.values()):
            if now - each.heard >= SILENT_S:
                self._end(each, f"nothing came for {SILENT_S:g} s", now, is_told=True)
            elif each.is_open:
                self._send(each.server, Probed(each.id, each.is_ours, each.sent))
            else:
                self._send(each.server, Called(each.id))
        linked = {each.server for each in self._links.values() if each.is_ours}
        for server, wanted in self._wanted.items():
            if server not in linked and wanted.call_at <= now:
                self._call(server, now)
        for domain, user in self._asked:
            self._outputs.append(ServersAsked(domain, user))

    def _call(self, server: str, now: float) -> None:
        self._last += 1
        called = _FarLink(self._new_link(), server, FarId(self._epoch, self._last), now, is_ours=True)
        self._links[called.link] = self._by_key[called.key] = called
        self._send(server, Called(called.id))

    def _on_message(self, came: FromFar, now: float) -> None:
        server = link_name(came.domain, came.server)
        try:
            message = decode(came.payload)
        except RemoteProtocolError as error:
            for each in [one for one in self._links.values() if one.server == server]:
                self._end(each, f"{server}: {error}", now, is_told=True)
            return
        match message:
            case Called(id=identity):
                self._on_called(came.domain, server, identity, now)
            case Answered(id=identity, contacts=contacts, version=version):
                found = self._by_key.get((server, identity, True))
                if found is None:
                    self._send(server, Ended(identity, True, "the link is unknown here"))
                elif not found.is_open:
                    found.is_open, found.opened_at, found.heard = True, now, now
                    self._outputs.append(FarServerMet(server, contacts, version))
                    self._outputs.append(ServerLinkOpened(found.link, server, is_ours=True))
            case Carried() | Probed() | Ended():
                self._on_sent(server, message, now)

    def _on_called(self, domain: str, server: str, identity: FarId, now: float) -> None:
        if (server, identity, False) not in self._by_key:
            count = sum(not each.is_ours and domain_of_link(each.server) == domain for each in self._links.values())
            if domain not in self._domains or count >= ACCEPTED_MAX:
                self._send(server, Ended(identity, False, f"no further link with {domain} is accepted"))
                return
            for each in [one for one in self._links.values() if one.server == server and not one.is_ours]:
                self._end(each, "another link replaces it", now, is_told=False)
            accepted = _FarLink(self._new_link(), server, identity, now, is_ours=False)
            self._links[accepted.link] = self._by_key[accepted.key] = accepted
            self._outputs.append(ServerLinkOpened(accepted.link, server, is_ours=False))
        self._send(server, Answered(identity, self._contacts, VERSION))

    def _on_sent(self, server: str, message: Carried | Probed | Ended, now: float) -> None:
        found = self._by_key.get((server, message.id, not message.by_opener))
        if found is None:
            if not isinstance(message, Ended):
                self._send(server, Ended(message.id, not message.by_opener, "the link is unknown here"))
            return
        found.heard = now
        match message:
            case Ended(reason=reason):
                self._end(found, reason, now, is_told=False)
            case Carried(number=number, payload=payload) if number == found.received + 1 and found.is_open:
                found.received = number
                self._outputs.append(ServerMessageReceived(found.link, server, payload))
            case Carried(number=number) if number > found.received + 1:
                self._end(found, "a message was lost", now, is_told=True)
            case Probed(last=last) if last > found.received:
                self._end(found, "a message was lost", now, is_told=True)

    def _end(self, ended: _FarLink, reason: str, now: float, *, is_told: bool) -> None:
        del self._links[ended.link], self._by_key[ended.key]
        if is_told:
            self._send(ended.server, Ended(ended.id, ended.is_ours, reason[:256]))
        if not ended.is_open:
            return
        self._outputs.append(ServerLinkClosed(ended.link, ended.server, reason))
        if ended.is_ours and (wanted := self._wanted.get(ended.server)) is not None:
            wanted.call_at = now + wanted.pause.after(now - ended.opened_at)

    def _send(self, server: str, message: Message) -> None:
        domain, _, name = server.rpartition("/")
        self._outputs.append(ToFar(domain, name, encode(message)))
