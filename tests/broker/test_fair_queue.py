"""Fair queue between users: a user who sends many messages delays no other user for long, and loses nothing (SPEC
U-03).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.broker.desk import ALICE, BOB, Desk
from wanderbus import protocol
from wanderbus.broker.backlog import PAUSE_S_MAX, TURN, UNATTENDED_MAX
from wanderbus.broker.fair_queue import FairQueue
from wanderbus.broker.messages import Append, Appended, LinkClosed, LinkOpened, MessageArrived, SendOnLink
from wanderbus.event import Event
from wanderbus.machine import Output, SetTimer, TimerFired
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Attach, Notify, NotifyAck, Publish, PublishAccepted, Subscribe
from wanderbus.records import SERVER_LOG
from wanderbus.refusals import Limited

CAROL = "sip:carol@example.org"
FLOOD = 1_000


def published(link: int, first: int, last: int, subject: str = "Flood", filling: str = "") -> list[MessageArrived]:
    return [
        MessageArrived(link, protocol.encode(Publish(number, Event(subject, {"F": filling}))))
        for number in range(first, last + 1)
    ]


def accepted(outputs: Sequence[Output], link: int) -> list[int]:
    """Give the numbers of publishes that were accepted on a link, in the order of their answers."""
    said = [protocol.decode_from_broker(o.payload) for o in outputs if isinstance(o, SendOnLink) and o.link == link]
    return [message.number for message in said if isinstance(message, PublishAccepted)]


class Hall(Desk):
    """A desk whose broker does one step at a time; a step returns its outputs, and its writes are durable at once."""

    def turn(self, *inputs: MessageArrived | TimerFired | LinkClosed) -> list[Output]:
        outputs = self.step(*inputs)
        for output in outputs:  # the list grows while it is read
            if isinstance(output, Append):
                self.log.extend(payload for _, _, payload in output.entries)
                outputs += self.step(Appended(SERVER_LOG, len(self.log)))
        return outputs

    def turns(self, count: int) -> list[Output]:
        """Fire the timer of the next step ``count`` times, each time when it is due."""
        outputs: list[Output] = []
        for _ in range(count):
            fired = self.turn(TimerFired(TURN))
            outputs += fired
            due = [each.at for each in fired if isinstance(each, SetTimer) and each.key == TURN]
            if not due:
                break
            self.now = max(self.now, due[-1])
        return outputs


@pytest.fixture
def hall() -> Hall:
    return Hall()


def test_a_flood_is_done_in_bounded_steps_and_nothing_of_it_is_lost_or_reordered(hall: Hall) -> None:
    alice = hall.attach()
    first = hall.turn(*published(alice, 1, FLOOD))
    assert 0 < len(accepted(first, alice)) < FLOOD
    answers = accepted([*first, *hall.turns(FLOOD)], alice)
    assert answers == list(range(1, FLOOD + 1))
    assert len(hall.broker._backlog) == 0


def test_a_quiet_user_is_served_before_an_earlier_flood(hall: Hall) -> None:
    alice, bob = hall.attach(), hall.attach(BOB)
    hall.turn(*published(alice, 1, FLOOD))
    outputs = [*hall.turn(*published(bob, 1, 1, "Quiet")), *hall.turns(1)]
    assert accepted(outputs, bob) == [1]


def test_two_floods_share_evenly_by_what_they_cost(hall: Hall) -> None:
    alice, bob = hall.attach(), hall.attach(BOB)
    outputs = hall.turn(*published(alice, 1, FLOOD, filling="x" * 9_000), *published(bob, 1, FLOOD))
    outputs += hall.turns(60)
    large, small = len(accepted(outputs, alice)), len(accepted(outputs, bob))
    assert large >= 20
    assert 3 < small / large < 12


def test_many_devices_of_one_user_have_the_turns_of_one(hall: Hall) -> None:
    phones = [hall.attach(device=f"phone{number}") for number in range(10)]
    bob = hall.attach(BOB)
    flood = [each for phone in phones for each in published(phone, 1, 100)]
    outputs = [*hall.turn(*flood, *published(bob, 1, FLOOD)), *hall.turns(20)]
    of_alice = sum(len(accepted(outputs, phone)) for phone in phones)
    assert 0.5 < of_alice / len(accepted(outputs, bob)) < 2


def test_an_event_for_many_ends_the_step_and_is_charged(hall: Hall) -> None:
    alice, bob = hall.attach(), hall.attach(BOB)
    for number in range(60):
        user = f"sip:fan{number}@example.org"
        fan = hall.attach(user)
        hall.subscribe(fan, subject="Flood")
    hall.turn(*published(bob, 1, 1, "Quiet"), *published(alice, 1, 1, "Quiet"))
    outputs = hall.turn(*published(alice, 2, 40), *published(bob, 2, 40, "Quiet"))
    assert len(accepted(outputs, alice)) == 1
    outputs += hall.turns(5)
    assert len(accepted(outputs, bob)) > 5 * len(accepted(outputs, alice))


def test_while_others_are_active_a_flood_leaves_as_much_time_as_it_takes(hall: Hall) -> None:
    alice, bob = hall.attach(), hall.attach(BOB)
    hall.turn(*published(alice, 1, FLOOD), *published(bob, 1, 1, "Quiet"))
    began_s = hall.now
    hall.now += 0.004  # duration of the step
    [timer] = [each for each in hall.turn(TimerFired(TURN)) if isinstance(each, SetTimer)]
    assert began_s + 0.008 <= timer.at <= began_s + 0.004 + PAUSE_S_MAX
    assert accepted(hall.turn(*published(bob, 2, 2, "Quiet")), bob) == [2]
    hall.now = timer.at
    assert accepted(hall.turn(TimerFired(TURN)), alice) != []


def test_a_user_without_a_turn_does_not_leave_room_for_others(hall: Hall) -> None:
    """One event with many matches takes a whole step: the user behind it has the next step, without a pause."""
    alice, bob = hall.attach(), hall.attach(BOB)
    for number in range(60):
        hall.subscribe(hall.attach(f"sip:fan{number}@example.org"), subject="Flood")
    hall.turn(*published(bob, 1, 1, "Quiet"), *published(alice, 1, 1, "Quiet"))
    hall.turn(*published(alice, 2, 40), *published(bob, 2, 2, "Quiet"))
    hall.now += 0.004  # duration of the step
    assert accepted(hall.turn(TimerFired(TURN)), bob) == [2]


def test_a_cheap_user_does_not_leave_room_for_others(hall: Hall) -> None:
    """The first of Bob's two messages is handled before an event with many matches ends the step: the second is in the
    next.
    """
    alice, bob = hall.attach(), hall.attach(BOB)
    for number in range(60):
        hall.subscribe(hall.attach(f"sip:fan{number}@example.org"), subject="Flood")
    hall.turn(*published(bob, 1, 1, "Quiet"), *published(alice, 1, 1, "Quiet"))
    first, *rest = published(bob, 2, 40, "Quiet")
    outputs = hall.turn(first, *published(alice, 2, 40), *rest[:1])
    assert accepted(outputs, bob) == [2]
    hall.now += 0.004  # duration of the step
    assert accepted(hall.turn(TimerFired(TURN)), bob) == [3]


def test_a_single_user_is_not_held_up(hall: Hall) -> None:
    alice = hall.attach()
    hall.now = 5.0
    hall.turn(*published(alice, 1, FLOOD))
    hall.now += 0.004
    outputs = hall.turn(TimerFired(TURN))
    assert accepted(outputs, alice) != []


def test_work_that_waits_for_the_disk_is_bounded_and_resumes_after_the_sync() -> None:
    hall = Hall(BrokerConfig(unsynced_units_max=50))
    alice = hall.attach()
    outputs = hall.step(*published(alice, 1, FLOOD))
    [append] = [each for each in outputs if isinstance(each, Append)]
    assert len(append.entries) < 60
    assert not [each for each in outputs if isinstance(each, SetTimer) and each.key == TURN]
    hall.log.extend(payload for _, _, payload in append.entries)
    outputs = hall.step(Appended(SERVER_LOG, len(hall.log)))
    assert len(accepted(outputs, alice)) == len(append.entries)
    assert [each for each in outputs if isinstance(each, Append)]


def test_processed_messages_are_reported_by_link(hall: Hall) -> None:
    alice = hall.attach()
    hall.broker.take_done()
    answers = accepted(hall.turn(*published(alice, 1, FLOOD)), alice)
    assert hall.broker.take_done() == {alice: len(answers)}
    hall.turns(FLOOD)
    assert hall.broker.take_done() == {alice: FLOOD - len(answers)}


def test_a_link_that_closes_keeps_its_acknowledgements_and_not_its_publishes(hall: Hall) -> None:
    alice, bob = hall.attach(), hall.attach(BOB)
    hall.subscribe(bob, subject="Quiet")
    hall.turn(*published(alice, 1, 1, "Quiet"))
    [notify] = [m for m in map(_said, hall.turn(*published(alice, 2, 2, "Quiet"))) if isinstance(m, Notify)]
    [handle] = notify.readers
    hall.turn(*published(bob, 1, FLOOD), MessageArrived(bob, protocol.encode(NotifyAck(handle, notify.number))))
    hall.turn(LinkClosed(bob, "gone"))
    assert len(hall.broker._backlog) == 0
    session = hall.broker.state.sessions[f"{BOB}/default"]
    assert session.waiting == 0


def test_addresses_of_the_original_eci_have_one_share_and_what_waits_of_them_is_bounded(hall: Hall) -> None:
    """They have no window that closes, and one sender can be many of them."""
    bob = hall.attach(BOB)
    links = [-1 - number for number in range(20)]
    for link in links:
        hall.give(LinkOpened(link, f"eci:192.0.2.1:{5000 - link}", "eci", unattended=True))
        hall.send(link, Attach(1, "default", None, True))
    outputs = hall.turn(*[each for n in range(1, 501) for link in links for each in published(link, n, n)])
    assert len(hall.broker._backlog) <= UNATTENDED_MAX
    assert [each.limit for each in outputs if isinstance(each, Limited)] == ["backlog.UNATTENDED_MAX"]
    outputs = [*hall.turn(*published(bob, 1, FLOOD, "Quiet")), *hall.turns(20)]
    of_eci = sum(len(accepted(outputs, link)) for link in links)
    assert len(accepted(outputs, bob)) > of_eci / 2 > 0


def test_users_that_waited_are_reported(hall: Hall) -> None:
    alice, bob = hall.attach(), hall.attach(BOB)
    outputs = hall.turn(*published(alice, 1, FLOOD), *published(bob, 1, 1, "Quiet"))
    outputs += hall.turns(10)
    limited = [each for each in outputs if isinstance(each, Limited)]
    assert [(each.limit, each.party) for each in limited] == [("broker.turn_units", ALICE)]


def test_matching_ahead_ends_with_the_step(hall: Hall) -> None:
    """A subscription that is made between two steps is notified of events that are published in the second."""
    alice, bob, carol = hall.attach(), hall.attach(BOB), hall.attach(CAROL)
    hall.subscribe(bob, subject="Flood")
    hall.turn(*published(alice, 1, FLOOD))
    subscribe = Subscribe(9, "Flood", "", None, (), False, reader=77)
    outputs = [*hall.turn(MessageArrived(carol, protocol.encode(subscribe))), *hall.turns(FLOOD)]
    assert any(isinstance(each, SendOnLink) and each.link == carol for each in outputs)
    assert hall.broker._subscriptions.matcher._prematched == {}


@pytest.mark.parametrize("seed", range(50))
def test_each_users_order_survives_any_sequence_of_operations(seed: int) -> None:
    rng = random.Random(seed)
    turns, added, done = FairQueue(), dict.fromkeys("abc", 0), {user: list[int]() for user in "abc"}
    for _ in range(200):
        for user in rng.choices("abc", k=rng.randint(0, 5)):
            turns.add(user, MessageArrived(added[user], bytes(rng.randint(0, 3_000))))
            added[user] += 1
        taken = turns.take(rng.uniform(0, 12))
        kept = rng.randint(min(1, len(taken)), len(taken))
        for each in taken[:kept]:
            done[each.user].append(each.message.link)
            turns.charge(each, rng.choice((1, 5, 40)))
        turns.give_back(taken[kept:])
        if rng.random() < 0.3:
            turns.hold({rng.choice("abc")})
        if rng.random() < 0.3:
            turns.release()
    turns.release()
    while turns:
        for each in turns.take(1_000):
            done[each.user].append(each.message.link)
    assert done == {user: list(range(count)) for user, count in added.items()}


def _said(output: Output) -> object:
    return protocol.decode_from_broker(output.payload) if isinstance(output, SendOnLink) else output
