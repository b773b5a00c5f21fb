"""New sessions of one user are paced, those of others and moves are not (SPEC U-02)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.client.town import Phone, Town, connected
from wanderbus.access import connect_pacing
from wanderbus.access.connect_pacing import ConnectPacing
from wanderbus.client.machine.messages import Disconnect
from wanderbus.machine import Input, Output
from wanderbus.mobility.messages import SessionOffered
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.refusals import Limited
from wanderbus.sip.message.sdp import MediaDescription

MEDIA = MediaDescription(address="10.1.0.1", port=40_000)


@pytest.fixture(autouse=True)
def small_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_pacing, "BURST", 2.0)


@pytest.fixture
def town() -> Town:
    return Town(broker=BrokerConfig(user_connects_per_s=0.1))


def offer(identity: str, user: str = "sip:alice@localhost") -> SessionOffered:
    return SessionOffered(identity, user, None, MEDIA, False)


def test_a_user_beyond_the_burst_waits_and_others_do_not(town: Town) -> None:
    phones = [Phone(town, number=number).connect() for number in (1, 2, 3)]
    assert [bool(phone.statuses) for phone in phones] == [True, True, False]
    assert connected(town, "bob", number=4).statuses == ["CONNECTED"]
    town.run(15.0)
    assert phones[2].statuses == ["CONNECTED"]


def test_moves_are_not_paced(town: Town) -> None:
    phones = [connected(town, number=number) for number in (1, 2)]
    for turn in range(2, 6):
        phones[0].move(f"10.1.0.{turn}")
        town.run(0.2)
    assert phones[0].statuses[-1] == "CONNECTED"
    assert len(phones[0].statuses) >= 5


def test_an_offer_that_its_caller_takes_back_waits_no_more(town: Town) -> None:
    for number in (1, 2):
        connected(town, number=number)
    third, fourth = Phone(town, number=3).connect(), Phone(town, number=4).connect()
    third.node.feed([Disconnect()])
    town.run(0.2)
    assert list(town.access._signalling._pacing._waiting) == [third.uri]
    assert len(town.access._signalling._pacing._waiting[third.uri]) == 1
    town.run(20.0)
    assert fourth.statuses == ["CONNECTED"]
    assert town.access._signalling._pacing._waiting == {}


def test_no_more_than_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_pacing, "WAITING_MAX", 2)
    pacing = ConnectPacing(0.5)
    served = [pacing.add(offer(identity)) and pacing.take_due("sip:alice@localhost", 0.0) for identity in "abcdcE"]
    assert served == [([offer("a")], None), ([offer("b")], None), ([], 2.0), ([], 2.0), ([], 2.0), False]
    assert pacing.take_due("sip:alice@localhost", 2.0) == ([offer("c")], 4.0)
    assert pacing.take_due("sip:alice@localhost", 4.0) == ([offer("d")], None)


def test_a_user_with_a_full_bucket_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_pacing, "_USERS_MAX", 3)
    pacing = ConnectPacing(1.0)
    for second in range(20):
        user = f"sip:user{second}@localhost"
        assert pacing.add(offer("a", user))
        assert pacing.take_due(user, float(second)) == ([offer("a", user)], None)
    assert len(pacing._tokens) <= 3


def test_a_session_that_waits_is_reported(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[Limited] = []
    step = town.access.step

    def watched(inputs: Iterable[Input], now: float) -> list[Output]:
        outputs = step(inputs, now)
        reports.extend(each for each in outputs if isinstance(each, Limited))
        return outputs

    monkeypatch.setattr(town.access, "step", watched)
    phones = [Phone(town, number=number).connect() for number in (1, 2, 3)]
    assert [(each.limit, each.party) for each in reports] == [("broker.user_connects_per_s", phones[0].uri)]
