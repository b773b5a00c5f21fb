"""Tests of links to other domains that one gateway has and another one uses (SPEC M-03; decision 0166)."""

from __future__ import annotations

from wanderbus.federation.circuit_messages import (
    ForeignLinkAsked,
    ForeignLinkClosed,
    ForeignLinkConsumed,
    ForeignLinkMessage,
    ForeignLinkOpened,
    SharedLinkMessage,
)
from wanderbus.federation.shared_links import NOT_NEEDED, OTHER_USER, PASSED_BYTES_MAX, SharedLinks
from wanderbus.federation.shared_outputs import AtGateway, ForOwnLink, OnPeerLink, SharedOutput
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    ConsumedOnServerLink,
    DisconnectServer,
    KnowServers,
    PeerUnreachable,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
    ServerReachable,
)

NAMES = ("b1", "b2", "b3")
OPENED = ServerLinkOpened(7, "gamma/g1", is_ours=False)


class Pair:
    """Gateways b1 and b2, which can reach each other; what they say to each other arrives at once."""

    def __init__(self) -> None:
        self.first, self.second = SharedLinks(NAMES, "b1"), SharedLinks(NAMES, "b2")
        self.second.reachable({"b1": 20})

    def at_second(self, *reports: ServerLinkOpened | ServerLinkClosed | ServerMessageReceived) -> list[SharedOutput]:
        """Return what the first gateway does once the second one has reported this of its links."""
        return [
            done
            for each in reports
            for output in self.second.at_links(each)
            for done in self.first.from_holder(21, said(output))
        ]

    def at_first(self, request: SendOnServerLink | CloseServerLink | ConsumedOnServerLink) -> list[SharedOutput]:
        """Return what the second gateway does once the first one has requested this."""
        outputs = self.first.requested(request)
        return [
            done for each in outputs if isinstance(each, OnPeerLink) for done in self.second.from_user(20, said(each))
        ]

    def borrow(self) -> int:
        """Return the number of a link that the second gateway has, at the first one."""
        (output,) = self.at_second(OPENED)
        assert isinstance(output, AtGateway)
        assert isinstance(output.report, ServerLinkOpened)
        return output.report.link


def said(output: SharedOutput) -> SharedLinkMessage:
    assert isinstance(output, OnPeerLink)
    assert not isinstance(output.message, ForeignLinkAsked)
    return output.message


def test_the_first_gateway_uses_its_own_links() -> None:
    first = SharedLinks(NAMES, "b1")
    first.reachable({"b2": 4, "b3": 5})
    assert first.at_links(OPENED) == [AtGateway(OPENED)]
    assert first.requested(SendOnServerLink(7, b"x")) == [ForOwnLink(SendOnServerLink(7, b"x"))]


def test_the_first_gateway_uses_the_links_of_another_one() -> None:
    pair = Pair()
    link = pair.borrow()
    assert pair.at_second(ServerMessageReceived(7, "gamma/g1", b"x")) == [
        AtGateway(ServerMessageReceived(link, "gamma/g1", b"x"))
    ]
    assert pair.at_first(SendOnServerLink(link, b"y")) == [ForOwnLink(SendOnServerLink(7, b"y"))]
    assert pair.at_first(ConsumedOnServerLink(link, 1)) == [ForOwnLink(ConsumedOnServerLink(7, 1))]
    assert pair.at_second(ServerLinkClosed(7, "gamma/g1", "lost")) == [
        AtGateway(ServerLinkClosed(link, "gamma/g1", "lost"))
    ]
    assert pair.first.requested(SendOnServerLink(link, b"z")) == []


def test_the_gateway_that_uses_a_link_may_close_it() -> None:
    pair = Pair()
    link = pair.borrow()
    closing = CloseServerLink(link, "nonsense")
    assert pair.first.requested(closing) == [
        OnPeerLink(21, ForeignLinkClosed(7, "nonsense")),
        AtGateway(ServerLinkClosed(link, "gamma/g1", "nonsense")),
    ]
    assert pair.second.from_user(20, ForeignLinkClosed(7, "nonsense")) == [ForOwnLink(CloseServerLink(7, "nonsense"))]


def test_a_link_that_this_domain_has_opened_stays_where_it_is() -> None:
    second = SharedLinks(NAMES, "b2")
    second.reachable({"b1": 20})
    own = ServerLinkOpened(8, "alpha/a1", is_ours=True)
    assert second.at_links(own) == [AtGateway(own)]
    assert second.at_links(PeerUnreachable("alpha/a1", "away")) == [AtGateway(PeerUnreachable("alpha/a1", "away"))]
    assert second.requested(ConnectServer("alpha/a1")) == [ForOwnLink(ConnectServer("alpha/a1"))]


def test_a_link_ends_when_another_gateway_begins_to_use_it() -> None:
    second = SharedLinks(NAMES, "b2")
    second.at_links(OPENED)
    closing = [ForOwnLink(CloseServerLink(7, OTHER_USER))]
    assert second.reachable({"b1": 20}) == closing
    assert second.reachable({"b1": 20, "b3": 5}) == []
    second.at_links(ServerLinkClosed(7, "gamma/g1", OTHER_USER))
    assert second.at_links(OPENED) == [OnPeerLink(20, ForeignLinkOpened(7, "gamma/g1"))]
    assert second.reachable({"b1": 30}) == closing
    assert second.from_user(30, ForeignLinkMessage(7, b"late")) == []
    assert second.at_links(ServerLinkClosed(7, "gamma/g1", OTHER_USER)) == [
        OnPeerLink(20, ForeignLinkClosed(7, OTHER_USER))
    ]
    assert second.reachable({}) == []
    assert second.at_links(OPENED) == [AtGateway(OPENED)]


def test_links_of_a_gateway_that_cannot_be_reached_end() -> None:
    pair = Pair()
    link = pair.borrow()
    assert pair.first.peer_link_closed(99) == []
    assert pair.first.peer_link_closed(21) == [
        AtGateway(ServerLinkClosed(link, "gamma/g1", "the gateway that has it cannot be reached"))
    ]
    assert pair.first.from_holder(21, ForeignLinkMessage(7, b"late")) == []


def test_a_link_is_lent_on_to_the_first_gateway() -> None:
    """The last gateway reaches the second one alone, which reaches the first one."""
    pair = Pair()
    (opened,) = pair.second.from_holder(31, ForeignLinkOpened(5, "gamma/g2"))
    assert isinstance(opened, OnPeerLink)
    number = said(opened).number
    assert opened == OnPeerLink(20, ForeignLinkOpened(number, "gamma/g2"))
    assert pair.second.from_holder(31, ForeignLinkMessage(5, b"x")) == [
        OnPeerLink(20, ForeignLinkMessage(number, b"x"))
    ]
    assert pair.second.from_user(20, ForeignLinkConsumed(number, 1)) == [OnPeerLink(31, ForeignLinkConsumed(5, 1))]
    assert pair.second.reachable({}) == [
        OnPeerLink(31, ForeignLinkClosed(5, OTHER_USER)),
        OnPeerLink(20, ForeignLinkClosed(number, OTHER_USER)),
    ]


def test_only_gateways_whose_turn_comes_later_lend_links() -> None:
    second = SharedLinks(NAMES, "b2")
    assert [second.takes_from(each) for each in ("b1", "b2", "b3", "b4")] == [False, False, True, False]


def test_a_message_too_large_to_be_passed_on_ends_the_link() -> None:
    pair = Pair()
    pair.borrow()
    most = ServerMessageReceived(7, "gamma/g1", bytes(PASSED_BYTES_MAX))
    assert isinstance(pair.second.at_links(most)[0], OnPeerLink)
    over = ServerMessageReceived(7, "gamma/g1", bytes(PASSED_BYTES_MAX + 1))
    assert pair.second.at_links(over) == [ForOwnLink(CloseServerLink(7, f"a message has {PASSED_BYTES_MAX + 1} bytes"))]


class Opening(Pair):
    """The second gateway can open links to gamma/g1 for the first one, and gamma/g2 is unknown to it."""

    def __init__(self) -> None:
        super().__init__()
        self.second = SharedLinks(NAMES, "b2", ["gamma/g1"])
        self.second.reachable({"b1": 20})
        self.first.peer_link_opened("b2", 21)

    def ask(self, request: ConnectServer | DisconnectServer) -> list[SharedOutput]:
        """Return what the second gateway does once the first one has asked for this."""
        outputs = self.first.open_by("b2", request)
        asked = [each.message for each in outputs if isinstance(each, OnPeerLink)]
        return [
            done
            for each in asked
            if isinstance(each, ForeignLinkAsked)
            for done in self.second.opening_asked("b1", 20, each)
        ]

    def opened(self) -> int:
        """Return the number at the first gateway of a link that the second one has opened."""
        (output,) = self.at_second(BY_SECOND)
        assert isinstance(output, AtGateway)
        assert isinstance(output.report, ServerLinkOpened)
        assert output.report.is_ours
        return output.report.link

    def at_second(self, *reports: ServerLinkOpened | ServerLinkClosed | ServerMessageReceived) -> list[SharedOutput]:
        return [
            done
            for each in reports
            for output in self.second.at_links(each)
            if isinstance(output, OnPeerLink)
            for done in self.first.from_holder(21, said(output))
        ]


BY_SECOND = ServerLinkOpened(8, "gamma/g1", is_ours=True)
CONNECT, DISCONNECT = ConnectServer("gamma/g1"), DisconnectServer("gamma/g1")


def test_a_gateway_opens_a_link_for_the_first_one_that_uses_it_as_its_own() -> None:
    pair = Opening()
    assert pair.ask(CONNECT) == [ForOwnLink(CONNECT)]
    assert pair.ask(CONNECT) == []
    link = pair.opened()
    assert pair.at_second(ServerMessageReceived(8, "gamma/g1", b"x")) == [
        AtGateway(ServerMessageReceived(link, "gamma/g1", b"x"))
    ]
    assert pair.at_first(SendOnServerLink(link, b"y")) == [ForOwnLink(SendOnServerLink(8, b"y"))]
    assert pair.ask(DISCONNECT) == [ForOwnLink(DISCONNECT)]
    assert pair.at_second(ServerLinkClosed(8, "gamma/g1", "over")) == [
        AtGateway(ServerLinkClosed(link, "gamma/g1", "over"))
    ]
    assert pair.ask(DISCONNECT) == []


def test_a_gateway_that_could_open_a_link_has_no_trouble_any_more() -> None:
    pair = Opening()
    pair.ask(CONNECT)
    assert AtGateway(ServerReachable("gamma/g1", 0.0)) in pair.second.at_links(BY_SECOND)


def test_a_gateway_opens_no_links_for_others_and_to_strangers() -> None:
    pair = Opening()
    assert pair.ask(ConnectServer("gamma/g2")) == []
    for server, link in (("b3", 20), ("b1", 19)):
        assert pair.second.opening_asked(server, link, ForeignLinkAsked("gamma/g1", True)) == []
    assert pair.first.open_by("b3", CONNECT) == [], "there is no link to it"


def test_links_are_opened_for_others_to_the_gateways_alone_that_are_known_now() -> None:
    pair = Opening()
    pair.ask(CONNECT)
    found = KnowServers("gamma", (("gamma/g2", ("192.0.2.1", 5900)),))
    assert pair.second.requested(found) == [ForOwnLink(DISCONNECT), ForOwnLink(found)]
    assert pair.ask(ConnectServer("gamma/g2")) == [ForOwnLink(ConnectServer("gamma/g2"))]
    assert pair.ask(CONNECT) == []


def test_a_link_that_was_opened_too_late_is_closed() -> None:
    pair = Opening()
    pair.ask(CONNECT)
    (lent, _) = pair.second.at_links(BY_SECOND)
    pair.first.open_by("b2", DISCONNECT)
    assert pair.first.from_holder(21, said(lent)) == [OnPeerLink(21, ForeignLinkClosed(8, NOT_NEEDED))]


def test_links_that_were_opened_for_another_gateway_end_with_it() -> None:
    pair = Opening()
    pair.ask(CONNECT)
    pair.opened()
    assert pair.second.reachable({}) == [ForOwnLink(DISCONNECT)]
    again = Opening()
    again.ask(CONNECT)
    link = again.opened()
    closed = ServerLinkClosed(link, "gamma/g1", "the gateway that has it cannot be reached")
    assert again.first.peer_link_closed(21) == [AtGateway(closed)]
    assert again.first.open_by("b2", DISCONNECT) == []
