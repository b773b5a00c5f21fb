"""Lies of a foreign domain: the quiet ones close no link, the loud ones do, and none has an effect elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from hostile import domain_lies, lying_domain
from hostile.attack import DOMAIN
from hostile.domain_lies import DomainLies
from hostile.lying_domain import COUNTS, ORDERS, LyingMember
from hostile.neighbours import RECEIVED, SENT
from tests.federation.domains import Domains, received
from wanderbus.federation.member import FederationMember
from wanderbus.federation.messages import AtForeignLinks, ForForeignLinks
from wanderbus.machine import TimerFired
from wanderbus.peers.messages import ConsumedOnServerLink, SendOnServerLink, ServerLinkOpened, ServerMessageReceived
from wanderbus.simulation.domains.links import DomainLink

LIAR, HONEST, THIRD = "alpha", "beta", "gamma"
QUIET: Final = 9
LOUD: Final = 5
"""Kinds of lies."""


def let_speak(link: DomainLink, speaker: Any) -> None:
    """Lose what goes to ``speaker`` on a link."""
    send = link.send

    def send_alone(node: Any, payload: bytes) -> None:
        if node is speaker:
            send(node, payload)

    link.send = send_alone  # type: ignore[method-assign]


class Neighbourhood(Domains):
    """Three domains of one server, of which alpha lies to beta."""

    def __init__(self) -> None:
        names = {LIAR: ["a1"], HONEST: ["b1"], THIRD: ["g1"]}
        shared = {
            (LIAR, HONEST): frozenset({RECEIVED}),
            (HONEST, LIAR): frozenset({SENT}),
            (HONEST, THIRD): frozenset({SENT}),
            (THIRD, HONEST): frozenset({SENT}),
        }
        super().__init__(names, shared=shared)
        self.readers = [self.subscriber(server, f"reader-{server}", SENT) for server in ("b1", "g1")]
        self.publisher = self.device("b1", "publisher")

    def say(self, *payloads: bytes) -> None:
        ends = {self.nodes["a1"], self.nodes["b1"]}
        link = [each for each in self.nodes["b1"]._server_links.values() if {each.source, each.target} == ends][-1]
        # An honest gateway at alpha would close the link because of the answers to its lies.
        let_speak(link, self.nodes["a1"])
        for each in payloads:
            link.send(self.nodes["a1"], each)
        self.wait(5.0)

    def closings(self) -> list[str]:
        return [each for each in self.nodes["b1"].problems if each.startswith("b1 closes a link")]


@pytest.fixture
def lies(monkeypatch: pytest.MonkeyPatch) -> DomainLies:
    for name, value in (("DOMAIN", HONEST), ("LIAR", LIAR), ("ABSENT", THIRD)):
        monkeypatch.setattr(domain_lies, name, value)
    return DomainLies(Random(1))


def test_quiet_lies_close_no_link_and_loud_ones_do(lies: DomainLies) -> None:
    domains = Neighbourhood()
    number = 0
    for turn in range(2 * QUIET):
        domains.say(*lies.quiet())
        assert domains.closings() == [], turn
        number += 1
        domains.publish(domains.publisher, number, subject=SENT)
    for turn in range(LOUD):
        before = len(domains.closings())
        domains.say(*lies.loud())
        assert len(domains.closings()) > before, turn
        number += 1
        domains.publish(domains.publisher, number, subject=SENT)
    for reader in domains.readers:
        assert sorted(received(reader)) == list(range(1, number + 1)), reader.user


def test_a_gateway_lies_and_answers_nothing_as_long_as_there_are_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LyingMember, "directory", tmp_path, raising=False)
    monkeypatch.setattr(FederationMember, "__init__", lambda self: None)
    given: list[object] = []

    def step(self: FederationMember, inputs: Iterable[object], now: float) -> list[object]:
        given.extend(inputs)
        return []

    monkeypatch.setattr(FederationMember, "step", step)
    member = LyingMember()
    tick = TimerFired(lying_domain._TIMER)
    opened = AtForeignLinks(ServerLinkOpened(7, f"{DOMAIN}/g1", True))
    message = AtForeignLinks(ServerMessageReceived(7, f"{DOMAIN}/g1", b"x"))
    member.step([opened, message, tick], 0.0)
    assert given == [opened, message]
    (tmp_path / ORDERS).touch()
    lies = [each for each in member.step([tick], 1.0) if isinstance(each, ForForeignLinks)]
    assert lies
    assert all(isinstance(each.request, SendOnServerLink) and each.request.link == 7 for each in lies)
    given.clear()
    assert member.step([message], 1.0) == [ForForeignLinks(ConsumedOnServerLink(7, 1))]
    assert given == []
    assert not (tmp_path / COUNTS).exists()
    (tmp_path / ORDERS).unlink()
    member.step([tick], 2.0)
    assert (tmp_path / COUNTS).exists()
    member.step([message], 2.0)
    assert given == [message]
