"""Links to other domains that one gateway has and another one of its domain uses (decision 0166).

All gateways of a domain that can reach each other act as one: the first of them uses the links of all. So whatever
other domains say about filters comes to one place, whichever gateway they reach. A gateway that has a link and does not
use it passes on what it hears, and sends what it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from wanderbus.federation.circuit_messages import (
    ForeignLinkAsked,
    ForeignLinkClosed,
    ForeignLinkConsumed,
    ForeignLinkMessage,
    ForeignLinkOpened,
    SharedLinkMessage,
)
from wanderbus.federation.gateway_choice import domain_of_link
from wanderbus.federation.messages import ForeignLinkReport
from wanderbus.federation.shared_outputs import (
    AtGateway,
    ForOwnLink,
    LentPlace,
    LinkRequest,
    LinksRequest,
    OnPeerLink,
    SharedOutput,
)
from wanderbus.peers.link_parameters import SERVER_LINK_CONFIG
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    ConsumedOnServerLink,
    DisconnectServer,
    KnowServers,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
    ServerReachable,
)

FIRST_BORROWED: Final = 2**48
"""Number of the first link that another gateway has; no link of this gateway has so high a number."""

PASSED_BYTES_MAX: Final = SERVER_LINK_CONFIG.message_bytes_max - 64
"""Largest message of another domain that is passed on, with what is added to it: links take no larger ones."""

NOT_NEEDED: Final = "the gateway that uses the links does not need it any more"
"""Reason for which a link is closed that was opened too late."""

OTHER_USER: Final = "another gateway begins to use the links of this one"
"""Reason for which a link to another domain is closed: both sides have to begin again on a new one."""


class SharedLinks:
    """Links that this gateway has, and those that it borrows from gateways whose turn comes later.

    :param gateways: all gateways of the domain, in the order of their turns
    :param name: this one
    :param known: names of the gateways of other domains to which this one can open links
    """

    def __init__(self, gateways: Sequence[str], name: str, known: Iterable[str] = ()) -> None:
        place = gateways.index(name)
        self._before = tuple(gateways[:place])
        self._behind = frozenset(gateways[place + 1 :])
        self._user: tuple[str, int] | None = None
        """The gateway that uses the links, and the link to it; None if it is this one."""
        self._accepted: dict[int, str] = {}
        """Links that other domains have opened, also borrowed ones, with the name of the gateway at the other end."""
        self._lent: dict[int, int] = {}
        """Those that another gateway uses, with the link between servers on which it does."""
        self._borrowed: dict[int, LentPlace] = {}
        self._numbers: dict[LentPlace, int] = {}
        self._last = FIRST_BORROWED
        self._known = frozenset(known)
        self._opening: dict[str, None] = {}
        """Gateways of other domains to which this one opens links, because the one that uses them has asked for it."""
        self._holders: dict[str, int] = {}
        """The link that each gateway behind this one has opened to it."""
        self._asked: dict[int, set[str]] = {}
        """Gateways of other domains to which one behind this one opens links, by the link to it."""
        self._outputs: list[SharedOutput] = []

    # Own domain ---------------------------------------------------------------------------------------------------

    def reachable(self, links: Mapping[str, int]) -> list[SharedOutput]:
        """Let the first gateway of ``links``, those to servers that can be reached, use all links from now on."""
        user = next(((each, links[each]) for each in self._before if each in links), None)
        if user != self._user:
            self._user = user
            for link in list(self._accepted):
                self._request(CloseServerLink(link, OTHER_USER))
            self._outputs += [ForOwnLink(DisconnectServer(each)) for each in self._opening]
            self._opening.clear()
        return self._take()

    def peer_link_opened(self, server: str, peer_link: int) -> None:
        """Note the link that another server has opened to this one."""
        if server in self._behind:
            self._holders[server] = peer_link

    def peer_link_closed(self, peer_link: int) -> list[SharedOutput]:
        """Forget the links that were borrowed on a link between servers that has closed."""
        self._holders = {server: link for server, link in self._holders.items() if link != peer_link}
        self._asked.pop(peer_link, None)
        for place in [each for each in self._numbers if each.peer_link == peer_link]:
            self._return(place, "the gateway that has it cannot be reached")
        return self._take()

    def takes_from(self, server: str) -> bool:
        """Return whether a server may lend its links."""
        return server in self._behind

    def from_holder(self, peer_link: int, message: SharedLinkMessage) -> list[SharedOutput]:
        """Take a message of a gateway that lends a link."""
        place = LentPlace(peer_link, message.number)
        number = self._numbers.get(place)
        match message:
            case ForeignLinkOpened(name=name, is_ours=True) if name not in self._asked.get(peer_link, ()):
                self._outputs.append(OnPeerLink(peer_link, ForeignLinkClosed(message.number, NOT_NEEDED)))
            case ForeignLinkOpened(name=name, is_ours=is_ours) if number is None:
                self._last += 1
                self._borrowed[self._last], self._numbers[place] = place, self._last
                self._report(ServerLinkOpened(self._last, name, is_ours=is_ours))
            case ForeignLinkMessage(payload=payload) if number is not None:
                self._report(ServerMessageReceived(number, self._accepted.get(number, ""), payload))
            case ForeignLinkClosed(reason=reason):
                self._return(place, reason)
        return self._take()

    def from_user(self, peer_link: int, message: SharedLinkMessage) -> list[SharedOutput]:
        """Take a message of the gateway that uses a link of this one."""
        number = message.number
        if self._lent.get(number) == peer_link:
            match message:
                case ForeignLinkMessage(payload=payload):
                    self._request(SendOnServerLink(number, payload))
                case ForeignLinkConsumed(count=count):
                    self._request(ConsumedOnServerLink(number, count))
                case ForeignLinkClosed(reason=reason):
                    self._request(CloseServerLink(number, reason))
        return self._take()

    def opening_asked(self, server: str, peer_link: int, asked: ForeignLinkAsked) -> list[SharedOutput]:
        """Open a link for the gateway that uses all links, or open it no longer; others may not ask for that."""
        if self._user == (server, peer_link) and asked.name in self._known:
            if asked.is_wanted and asked.name not in self._opening:
                self._opening[asked.name] = None
                self._outputs.append(ForOwnLink(ConnectServer(asked.name)))
            elif not asked.is_wanted and asked.name in self._opening:
                del self._opening[asked.name]
                self._outputs.append(ForOwnLink(DisconnectServer(asked.name)))
        return self._take()

    def open_by(self, gateway: str, request: ConnectServer | DisconnectServer) -> list[SharedOutput]:
        """Ask another gateway of the domain for a link to another domain, or ask for it no longer."""
        if (peer_link := self._holders.get(gateway)) is not None:
            names, is_wanted = self._asked.setdefault(peer_link, set()), isinstance(request, ConnectServer)
            (names.add if is_wanted else names.discard)(request.server)
            self._outputs.append(OnPeerLink(peer_link, ForeignLinkAsked(request.server, is_wanted)))
        return self._take()

    # Links to other domains ---------------------------------------------------------------------------------------

    def at_links(self, report: ForeignLinkReport) -> list[SharedOutput]:
        """Take a report of the links that this gateway has."""
        self._report(report)
        return self._take()

    def requested(self, request: LinksRequest) -> list[SharedOutput]:
        """Take a request of the gateway here to the links, of which it has some, and borrows others."""
        if isinstance(request, KnowServers):
            self._know(request)
        elif isinstance(request, ConnectServer | DisconnectServer):
            self._outputs.append(ForOwnLink(request))
        else:
            self._request(request)
        return self._take()

    def _know(self, found: KnowServers) -> None:
        """Open links for others to the present gateways of a domain alone."""
        others = {each for each in self._known if domain_of_link(each) != found.group}
        self._known = frozenset(others | {name for name, _ in found.servers})
        for each in [name for name in self._opening if name not in self._known]:
            del self._opening[each]
            self._outputs.append(ForOwnLink(DisconnectServer(each)))
        self._outputs.append(ForOwnLink(found))

    def _report(self, report: ForeignLinkReport) -> None:
        """Pass a report to the gateway that uses the link, here or elsewhere."""
        match report:
            case ServerLinkOpened(link=link, server=name, is_ours=True) if name in self._opening and self._user:
                self._lend(link, name, self._user[1], is_ours=True)
                report = ServerReachable(name, 0.0)
            case ServerLinkOpened(link=link, server=name, is_ours=is_ours) if not is_ours or link >= FIRST_BORROWED:
                self._accepted[link] = name
                if self._user is not None:
                    self._lend(link, name, self._user[1], is_ours=False)
                    return
            case ServerLinkClosed(link=link, reason=reason):
                self._accepted.pop(link, None)
                if (peer_link := self._lent.pop(link, None)) is not None:
                    self._outputs.append(OnPeerLink(peer_link, ForeignLinkClosed(link, reason)))
                    return
            case ServerMessageReceived(link=link, payload=payload) if link in self._lent:
                if len(payload) > PASSED_BYTES_MAX:
                    self._request(CloseServerLink(link, f"a message has {len(payload)} bytes"))
                    return
                self._outputs.append(OnPeerLink(self._lent[link], ForeignLinkMessage(link, payload)))
                return
        self._outputs.append(AtGateway(report))

    def _lend(self, link: int, name: str, peer_link: int, *, is_ours: bool) -> None:
        self._lent[link] = peer_link
        self._outputs.append(OnPeerLink(peer_link, ForeignLinkOpened(link, name, is_ours)))

    def _request(self, request: LinkRequest) -> None:
        """Pass a request to the gateway that has the link, here or elsewhere."""
        if not request.link >= FIRST_BORROWED:
            self._outputs.append(ForOwnLink(request))
            return
        place = self._borrowed.get(request.link)
        if place is None:
            return
        match request:
            case SendOnServerLink(payload=payload):
                self._outputs.append(OnPeerLink(place.peer_link, ForeignLinkMessage(place.number, payload)))
            case ConsumedOnServerLink(messages=count):
                self._outputs.append(OnPeerLink(place.peer_link, ForeignLinkConsumed(place.number, count)))
            case CloseServerLink(reason=reason):
                self._outputs.append(OnPeerLink(place.peer_link, ForeignLinkClosed(place.number, reason)))
                self._return(place, reason)

    def _return(self, place: LentPlace, reason: str) -> None:
        if (number := self._numbers.pop(place, None)) is not None:
            del self._borrowed[number]
            self._report(ServerLinkClosed(number, self._accepted.get(number, ""), reason))

    def _take(self) -> list[SharedOutput]:
        outputs, self._outputs = self._outputs, []
        return outputs
