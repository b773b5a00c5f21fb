"""Pacing of filter parsing per user: excess requests wait in order, and are answered."""

from __future__ import annotations

from typing import Any

from tests.broker.desk import ALICE, BOB, Desk
from wanderbus.broker.servers.leader_messages import InterestMerged
from wanderbus.broker.subscribe_pacing import AT_ONCE_S, WAITING_CHARACTERS_MAX
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Done, Query, Renew, RequestRefused, Subscribe, Unsubscribe
from wanderbus.refusals import Limited

PER_S = 1_000.0
LONG = "a == 1 or " * 85 + "a == {}"
"""An expression of nine hundred characters: two are read at once, and then one in two seconds."""


class Paced(Desk):
    def __init__(self, **more: Any) -> None:
        self.limited: list[Limited] = []
        super().__init__(BrokerConfig(user_filter_characters_per_s=PER_S, sweep_s=None, **more))

    def perform(self, outputs: Any) -> None:
        super().perform(outputs)
        self.limited += [each for each in outputs if isinstance(each, Limited)]


def submit(number: int, expression: str = LONG) -> Subscribe:
    return Subscribe(number, "Trade", expression.format(number), None, (), False)


def answered(desk: Desk, link: int) -> list[int]:
    return [each.request for each in desk.received(link, Done)]


def test_fast_requests_are_answered_later_and_in_order() -> None:
    desk = Paced()
    link, other, bob = desk.attach(), desk.attach(device="desk"), desk.attach(BOB)
    desk.send(link, *map(submit, range(1, 6)), Query(6))
    desk.send(other, Query(7))
    desk.send(bob, submit(8, "b == 1"))
    assert answered(desk, link) == [1, 2]
    assert answered(desk, other) == [7]
    assert answered(desk, bob) == [8]
    desk.later(1.8)
    assert answered(desk, link) == [1, 2, 3]
    desk.later(5.0)
    assert answered(desk, link) == [1, 2, 3, 4, 5, 6]
    assert len(desk.received(link, Done)[-1].subscriptions) == 5
    assert {(each.limit, each.party) for each in desk.limited} == {("broker.user_filter_characters_per_s", ALICE)}


def test_all_links_of_a_user_share_the_pace_and_it_comes_back() -> None:
    desk = Paced()
    links = [desk.attach(), desk.attach(device="desk")]
    for number in range(1, 5):
        desk.send(links[number % 2], submit(number))
    assert sum(len(answered(desk, link)) for link in links) == 2
    desk.later(10.0)
    assert sum(len(answered(desk, link)) for link in links) == 4
    desk.send(links[0], submit(5), submit(6))
    assert answered(desk, links[0])[-2:] == [5, 6]


def test_renewing_what_has_ended_keeps_the_pace() -> None:
    desk = Paced()
    link = desk.attach()
    identity = desk.subscribed(link, LONG.format(1)).id
    desk.later(10.0)
    for number in range(10, 18, 2):
        desk.send(link, Unsubscribe(number, identity), Renew(number + 1, identity, None))
    assert answered(desk, link) == [10, 11, 12, 13, 14]
    desk.later(10.0)
    assert answered(desk, link) == list(range(10, 18))


def test_the_work_of_merging_for_other_servers_counts_for_the_pace_of_its_user() -> None:
    desk = Paced()
    link, bob = desk.attach(), desk.attach(BOB)
    identity = desk.subscribed(link, "a == 1").id
    desk.give(InterestMerged(f"{identity} 1", 400_000), InterestMerged("unknown 2", 10**9))
    desk.send(link, submit(2, "a == 2"))
    desk.send(bob, submit(3, "a == 3"))
    assert 2 not in answered(desk, link)
    assert answered(desk, bob) == [3]
    desk.later(3.0)
    assert 2 in answered(desk, link)


def test_waiting_requests_end_with_their_link() -> None:
    desk = Paced()
    link, other = desk.attach(), desk.attach(device="desk")
    desk.send(link, *map(submit, range(1, 6)))
    desk.close(link)
    desk.send(other, submit(6))
    desk.later(10.0)
    assert answered(desk, other) == [6]
    assert len(desk.broker.state.subscriptions) == 3


def test_many_short_expressions_are_read_sooner_than_few_long_ones() -> None:
    """With as many characters in all, since everybody waits while one is read."""
    desk = Paced()
    link, bob = desk.attach(), desk.attach(BOB)
    desk.send(link, *(submit(number, "a == {}") for number in range(20)))
    desk.send(bob, *(submit(number, "a == 1 or " * 140 + "b == {}") for number in range(2)))
    assert len(answered(desk, link)) == 20
    assert len(answered(desk, bob)) == 1


def test_no_more_than_so_many_characters_wait() -> None:
    desk = Paced()
    link = desk.attach()
    long = "a in (" + "1, " * 5_000 + "1) or b == {}"
    count = WAITING_CHARACTERS_MAX // len(long) + 5
    desk.send(link, *(submit(number, long) for number in range(1, count)))
    [first, *_] = desk.received(link, RequestRefused)
    assert first.limit == "user_filter_characters_per_s"
    assert AT_ONCE_S > 0
