"""Readers of one group are served in the order of the numbers, whatever their windows and backlogs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.broker.desk import Desk
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Notify, NotifyAck, Read, Reader, StopReading

BOB = "sip:bob@example.org"


def grouped(desk: Desk, link: int, *expressions: str, group: int | None = 1) -> list[str]:
    """Subscribe without a reader, then read all of them as one group; return the subscriptions."""
    known = [desk.subscribed(link, each, reads=False).id for each in expressions]
    readers = [Reader(desk.handle(link, each), each, None, group) for each in known]
    desk.send(link, Read(tuple(readers)))
    return known


def sent(desk: Desk, link: int) -> list[int]:
    return [each.number for each in desk.received(link, Notify)]


def test_a_full_window_holds_up_the_group_and_nobody_else() -> None:
    desk = Desk(BrokerConfig(unacknowledged_max=2))
    alice, bob = desk.attach(reads=False), desk.attach(BOB)
    many, few = grouped(desk, alice, "N < 10", "N >= 10")
    alone = desk.subscribed(alice, "N == 11").id
    for n in (1, 2, 3, 10, 11, 4):
        desk.publish(bob, n)
    assert sent(desk, alice) == [1, 2, 5], "number 4 waits for number 3, and 5 is sent to the reader on its own"
    desk.take(alice, 2, many)
    assert sent(desk, alice) == [1, 2, 5, 3, 4, 5, 6]
    assert [each.readers for each in desk.received(alice, Notify) if each.number == 5] == [
        (desk.handle(alice, alone),),
        (desk.handle(alice, few),),
    ]


def test_a_notification_for_several_of_a_group_is_sent_once_although_one_has_no_room() -> None:
    desk = Desk(BrokerConfig(unacknowledged_max=1))
    alice, bob = desk.attach(reads=False), desk.attach(BOB)
    one, two = grouped(desk, alice, "N > 0", "N > 1")
    for n in (1, 2):
        desk.publish(bob, n)
    assert sent(desk, alice) == [1]
    desk.take(alice, 1, one)
    assert sent(desk, alice) == [1, 2]
    assert desk.received(alice, Notify)[-1].readers == (desk.handle(alice, one), desk.handle(alice, two))


def test_a_reader_that_stops_holds_up_its_group_no_longer() -> None:
    desk = Desk(BrokerConfig(unacknowledged_max=1))
    alice, bob = desk.attach(reads=False), desk.attach(BOB)
    many, _ = grouped(desk, alice, "N < 10", "N >= 10")
    for n in (1, 2, 10):
        desk.publish(bob, n)
    assert sent(desk, alice) == [1]
    desk.send(alice, StopReading(desk.handle(alice, many)))
    assert sent(desk, alice) == [1, 3]


@given(
    st.lists(st.integers(0, 2), max_size=40),
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), max_size=40),
    st.integers(1, 4),
)
def test_a_group_is_sent_in_order_under_any_pace(
    owners: list[int], waiting: int, taken: list[tuple[int, int]], window: int
) -> None:
    """Some events wait before the agent reads; acknowledgements come in any order, and all arrive in the end."""
    desk = Desk(BrokerConfig(unacknowledged_max=window, backlog_per_s=5.0))
    alice, bob = desk.attach(reads=False), desk.attach(BOB)
    known = [desk.subscribed(alice, f"Owner == {each}", reads=False).id for each in range(3)]
    for n, owner in enumerate(owners[:waiting], 1):
        desk.publish(bob, n, Owner=owner)
    desk.close(alice)
    alice = desk.attach(reads=False)
    desk.send(alice, Read(tuple(Reader(desk.handle(alice, each), each, None, 7) for each in known)))
    for n, owner in enumerate(owners[waiting:], len(owners[:waiting]) + 1):
        desk.publish(bob, n, Owner=owner)
    for which, number in taken:
        desk.send(alice, NotifyAck(desk.handle(alice, known[which]), number))
        desk.later(0.1)
    while (numbers := sent(desk, alice)) != list(range(1, len(owners) + 1)):
        assert numbers == list(range(1, len(numbers) + 1))
        before = len(numbers)
        for handle, number in {h: each.number for each in desk.received(alice, Notify) for h in each.readers}.items():
            desk.send(alice, NotifyAck(handle, number))
        desk.later(1.0)
        assert len(sent(desk, alice)) > before, "the stream goes on"
