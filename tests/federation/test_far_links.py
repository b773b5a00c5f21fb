"""Links between servers of two domains: each message once and in order, or the link closes (SPEC L-05)."""

from __future__ import annotations

from itertools import count, pairwise
from random import Random

import pytest

from wanderbus.federation.circuit_messages import FromFar, ServersAsked, ServersTold, ToFar
from wanderbus.federation.far import links as far_links
from wanderbus.federation.far.links import PAUSE_S_MAX, SILENT_S, TURN_S, FarLinks
from wanderbus.federation.far.messages import VERSION, Called, Carried, Ended, FarId, decode, encode
from wanderbus.machine import Input, Output, SetTimer, TimerFired
from wanderbus.peers.far_servers import AskServers, FarServerMet, ServersFound
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    DisconnectServer,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)


class End:
    """The links of one server, and what they have reported."""

    def __init__(self, domain: str, server: str, other: str) -> None:
        self.domain, self.server = domain, server
        self.links = FarLinks([other], count(1).__next__, epoch=7)
        self.links.called_at((f"sip:broker@{domain}",))
        self.reports: list[Input | Output] = []
        self.sent: list[ToFar] = []
        self.timer: float | None = None

    def give(self, *inputs: Input | Output | FromFar | ServersTold, now: float = 0.0) -> list[object]:
        outputs = self.links.take(list(inputs), now)  # type: ignore[arg-type]
        for each in outputs:
            if isinstance(each, ToFar):
                self.sent.append(each)
            elif isinstance(each, SetTimer):
                self.timer = each.at
            elif not isinstance(each, ServersAsked):
                self.reports.append(each)
        return list(outputs)

    def of(self, kind: type) -> list:  # type: ignore[type-arg]
        return [each for each in self.reports if isinstance(each, kind)]

    @property
    def link(self) -> int:
        return int(self.of(ServerLinkOpened)[-1].link)


class Pair:
    """A server of alpha and one of beta; what ``loses`` names is lost on its way."""

    def __init__(self) -> None:
        self.a, self.b = End("alpha", "a1", "beta"), End("beta", "b1", "alpha")
        self.now = 0.0
        self.lost = 0

    def deliver(self, losing: int = 0) -> None:
        """Deliver what was sent; the first ``losing`` messages are lost."""
        while self.a.sent or self.b.sent:
            for sender, receiver in ((self.a, self.b), (self.b, self.a)):
                several, sender.sent = sender.sent, []
                for each in several:
                    if losing:
                        losing -= 1
                        continue
                    assert each.server == receiver.server
                    receiver.give(FromFar(sender.domain, sender.server, each.payload), now=self.now)

    def wait(self, seconds: float, losing: int = 0) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += TURN_S
            for each in (self.a, self.b):
                if each.timer is not None and each.timer <= self.now:
                    each.timer = None
                    each.give(TimerFired("turn"), now=self.now)
            self.deliver(losing)
            losing = 0


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.a.give(ConnectServer("beta/b1"))
    pair.deliver()
    return pair


def received(end: End) -> list[bytes]:
    return [each.payload for each in end.of(ServerMessageReceived)]


def test_a_link_carries_messages_both_ways_in_order(pair: Pair) -> None:
    for number in range(3):
        pair.a.give(SendOnServerLink(pair.a.link, b"a%d" % number))
        pair.b.give(SendOnServerLink(pair.b.link, b"b%d" % number))
    pair.deliver()
    assert (received(pair.b), received(pair.a)) == ([b"a0", b"a1", b"a2"], [b"b0", b"b1", b"b2"])
    assert pair.a.of(FarServerMet) == [FarServerMet("beta/b1", ("sip:broker@beta",), VERSION)]
    assert [each.server for each in pair.b.of(ServerLinkOpened)] == ["alpha/a1"]


def test_a_lost_message_closes_the_link_at_both_ends_and_it_is_opened_again(pair: Pair) -> None:
    pair.a.give(SendOnServerLink(pair.a.link, b"lost"))
    pair.deliver(losing=1)
    pair.a.give(SendOnServerLink(pair.a.link, b"later"))
    pair.deliver()
    assert received(pair.b) == []
    assert [each.reason for each in pair.a.of(ServerLinkClosed)] == ["a message was lost"]
    pair.wait(2 * TURN_S)
    pair.a.give(SendOnServerLink(pair.a.link, b"again"))
    pair.deliver()
    assert received(pair.b) == [b"again"]


def test_the_loss_of_the_last_message_is_noticed_by_a_probe(pair: Pair) -> None:
    pair.b.give(SendOnServerLink(pair.b.link, b"lost"))
    pair.deliver(losing=1)
    pair.wait(2 * TURN_S)
    assert len(pair.a.of(ServerLinkClosed)) == len(pair.b.of(ServerLinkClosed)) == 1


def test_a_message_that_two_gateways_pass_on_comes_once(pair: Pair) -> None:
    pair.a.give(SendOnServerLink(pair.a.link, b"one"))
    pair.a.sent *= 2
    pair.deliver()
    assert received(pair.b) == [b"one"]
    assert not pair.a.of(ServerLinkClosed)


def test_a_silent_link_closes(pair: Pair) -> None:
    pair.wait(TURN_S)
    while pair.now < SILENT_S + 3 * TURN_S:
        pair.now += TURN_S
        pair.a.sent.clear()
        if pair.a.timer is not None and pair.a.timer <= pair.now:
            pair.a.give(TimerFired("turn"), now=pair.now)
    assert len(pair.a.of(ServerLinkClosed)) == 1


def test_a_restarted_server_ends_the_links_of_its_former_life(pair: Pair) -> None:
    pair.b = End("beta", "b1", "alpha")
    pair.a.give(SendOnServerLink(pair.a.link, b"lost"))
    pair.deliver()
    assert [each.reason for each in pair.a.of(ServerLinkClosed)] == ["the link is unknown here"]


def test_a_link_that_is_not_needed_closes_at_both_ends(pair: Pair) -> None:
    pair.a.give(DisconnectServer("beta/b1"))
    pair.deliver()
    pair.wait(3 * TURN_S)
    assert len(pair.b.of(ServerLinkClosed)) == len(pair.a.of(ServerLinkClosed)) == 1
    assert pair.a.timer is None


def test_a_link_that_is_closed_for_an_error_is_opened_again(pair: Pair) -> None:
    pair.a.give(CloseServerLink(pair.a.link, "an error"))
    pair.deliver()
    pair.wait(2 * TURN_S)
    assert len(pair.a.of(ServerLinkOpened)) == 2


def test_messages_arrive_once_and_in_order_or_the_link_closes() -> None:
    draw, pair = Random(7), Pair()
    pair.a.give(ConnectServer("beta/b1"))
    pair.deliver()
    sent: list[int] = []
    for number in range(400):
        if pair.a.of(ServerLinkOpened):
            pair.a.give(SendOnServerLink(pair.a.link, b"%d" % number), now=pair.now)
            sent.append(number)
        pair.deliver(losing=draw.random() < 0.1)
        if draw.random() < 0.3:
            pair.wait(TURN_S)
    by_link: dict[int, list[int]] = {}
    for each in pair.b.of(ServerMessageReceived):
        by_link.setdefault(each.link, []).append(int(each.payload))
    assert len(by_link) > 5
    for several in by_link.values():
        assert several == list(range(several[0], several[0] + len(several)))


def test_a_domain_that_is_unknown_or_opens_too_many_links_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_links, "ACCEPTED_MAX", 3)
    end = End("beta", "b1", "alpha")
    for number in range(5):
        end.give(FromFar("alpha", f"a{number}", encode(Called(FarId(1, number)))))
    end.give(FromFar("gamma", "g1", encode(Called(FarId(1, 1)))))
    assert len(end.of(ServerLinkOpened)) == 3
    assert sum(isinstance(decode(each.payload), Ended) for each in end.sent) == 3


def test_nonsense_of_a_server_closes_its_links_alone(pair: Pair) -> None:
    pair.b.give(FromFar("alpha", "a1", b"\xc1"))
    assert len(pair.b.of(ServerLinkClosed)) == 1
    pair.b.give(FromFar("alpha", "a2", encode(Carried(FarId(1, 1), True, 1, b""))))
    assert len(pair.b.of(ServerLinkClosed)) == 1


def test_the_question_for_servers_is_repeated_until_it_is_answered() -> None:
    end = End("alpha", "a1", "beta")
    asked = end.give(AskServers("beta", "sip:u@alpha"))
    assert ServersAsked("beta", "sip:u@alpha") in asked
    assert ServersAsked("beta", "sip:u@alpha") in end.give(TimerFired("turn"), now=TURN_S)
    end.give(ServersTold("beta", "sip:u@alpha", ("b1", "b2"), "b2"))
    end.give(ServersTold("beta", "sip:other@alpha", ("b1",), "b1"))
    assert end.of(ServersFound) == [ServersFound("beta", "sip:u@alpha", ("b1", "b2"), "b2")]


def test_a_link_that_soon_closes_is_opened_again_after_growing_pauses(pair: Pair) -> None:
    """A session whose export is invalid would otherwise be sent again every half second."""
    opened_at: list[float] = []
    while pair.now < 40 * PAUSE_S_MAX:
        if (opened := len(pair.b.of(ServerLinkOpened))) > len(opened_at):
            assert opened == len(opened_at) + 1
            opened_at.append(pair.now)
            pair.b.give(CloseServerLink(pair.b.link, "invalid"), now=pair.now)
            pair.deliver()
        pair.wait(TURN_S)
    pauses_s = [second - first for first, second in pairwise(opened_at)]
    assert pauses_s[0] <= 2 * TURN_S
    assert pauses_s == sorted(pauses_s)
    assert PAUSE_S_MAX <= pauses_s[-1] <= PAUSE_S_MAX + 2 * TURN_S


def test_a_link_that_has_lasted_is_opened_again_at_once(pair: Pair) -> None:
    for _ in range(8):
        pair.wait(PAUSE_S_MAX + TURN_S)
        pair.b.give(CloseServerLink(pair.b.link, "restarting"), now=pair.now)
        pair.deliver()
        pair.wait(2 * TURN_S)
        assert pair.a.of(ServerLinkOpened)[-1].link > pair.a.of(ServerLinkClosed)[-1].link
