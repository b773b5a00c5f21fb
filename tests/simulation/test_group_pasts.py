"""T-05: subscriptions that begin in the past of a channel group that has moved (SPEC J-08, decision 0156)."""

from __future__ import annotations

import pytest

from tests.simulation.group_domain import NAMES, Domain, Phone, user
from wanderbus.broker.groups.group_move import PREPARE_S
from wanderbus.broker.history.seams import HISTORY_LOST, PATIENCE_S
from wanderbus.broker.servers.arrivals import LEADER_REPLACED
from wanderbus.event import EventId, Position
from wanderbus.records import GroupPrepared, Replayed
from wanderbus.subscription import Since


@pytest.fixture
def domain() -> Domain:
    return Domain()


def names(first: int, last: int) -> list[str]:
    return [f"e{number}" for number in range(first, last + 1)]


def moved(domain: Domain, alice: Phone, *steps: tuple[str, str]) -> None:
    """Publish three events before each move, and after the last one."""
    for target, at in steps:
        domain.publish(alice)
        assert domain.move(target, at) == []
    domain.publish(alice)
    domain.wait()


def id_of(alice: Phone, name: str) -> EventId:
    found = [each.accepted for each in alice.published.values() if each.event["Uid"] == name and each.accepted]
    return found[0]


THERE_AND_BACK = (("s2", "s1"), ("s1", "s2"), ("s3", "s1"))


def test_t05_a_subscription_reads_the_logs_of_all_leaders_and_then_lives(domain: Domain) -> None:
    """s1 leads twice. The readers are at the server of the first two epochs, of the second one, and of the last one."""
    alice = domain.phone("s2", user("alice"))
    moved(domain, alice, *THERE_AND_BACK)
    readers = [domain.phone(name, user(f"reader of {name}".replace(" ", "-"))) for name in NAMES]
    for each in readers:
        each.subscribe("A", "everything", Since())
    domain.wait()
    domain.publish(alice)
    domain.wait()
    assert [each.uids() for each in readers] == [names(1, 15)] * 3


@pytest.mark.parametrize("event", ["e2", "e5", "e8", "e11"])
def test_t05_a_subscription_goes_on_behind_an_event_of_an_earlier_epoch(domain: Domain, event: str) -> None:
    alice = domain.phone("s2", user("alice"))
    moved(domain, alice, *THERE_AND_BACK)
    readers = [domain.phone(name, user(f"reader-of-{name}")) for name in NAMES]
    for each in readers:
        each.subscribe("A", "everything", Since(event=id_of(alice, event)))
    domain.wait()
    assert [each.uids() for each in readers] == [names(int(event[1:]) + 1, 12)] * 3


def test_t05_a_time_is_looked_up_at_the_leader_of_that_time(domain: Domain) -> None:
    alice, bob = domain.phone("s2", user("alice")), domain.phone("s3", user("bob"))
    moved(domain, alice, *THERE_AND_BACK[:2])
    at_us = domain.world.wall_us
    domain.wait()
    moved(domain, alice, THERE_AND_BACK[2])
    bob.subscribe("A", "everything", Since(at_us=at_us))
    domain.wait()
    assert bob.uids() == names(10, 15)


def test_t05_a_position_is_a_place_in_the_epoch_in_which_its_server_led(domain: Domain) -> None:
    alice, bob = domain.phone("s2", user("alice")), domain.phone("s1", user("bob"))
    bob.subscribe("A", "everything")
    domain.wait()
    moved(domain, alice, *THERE_AND_BACK)
    (session,) = domain.nodes["s1"].broker.state.sessions_of(user("bob"))
    for number in (2, 8, 5):
        bob.subscribe("A", f"everything {' ' * number}", Since(position=Position(session.epoch, number)))
        domain.wait()
    assert bob.reasons == ["since position 5: another server accepted that event; give its id, or a time"]
    live, second, eighth = bob.items.values()
    assert [each.text for each in live] == names(1, 12)
    assert [each.text for each in second] == names(3, 12)
    assert [each.text for each in eighth] == names(9, 12)


def test_j08_a_move_does_not_wait_for_a_subscription_that_reads_the_past() -> None:
    """It reads so slowly that the group moves twice meanwhile, and its server is started again."""
    domain = Domain(window=1)
    alice, bob = domain.phone("s2", user("alice")), domain.phone("s3", user("bob"))
    domain.publish(alice, 300)
    domain.wait(60.0)
    bob.subscribe("A", "everything", Since())
    domain.wait(2.0)
    assert 0 < len(bob.uids()) < 200
    assert domain.move("s2", wait_s=2.0) == []
    assert domain.leaders() == [("s2", 2)] * 3
    domain.publish(alice)
    domain.restart("s3")
    domain.wait(3.0)
    assert domain.move("s3", at="s2", wait_s=5.0) == []
    assert len(bob.uids()) < 300
    domain.publish(alice)
    domain.wait(120.0)
    assert list(dict.fromkeys(bob.uids())) == names(1, 306)


def test_t05_a_former_leader_that_is_gone_is_waited_for_and_then_passed_over_with_a_gap(domain: Domain) -> None:
    alice, bob = domain.phone("s2", user("alice")), domain.phone("s3", user("bob"))
    moved(domain, alice, ("s2", "s1"))
    domain.nodes["s1"].crash(lose_rows=True)
    domain.wait()
    bob.subscribe("A", "everything", Since())
    domain.wait(PATIENCE_S - 2.0)
    assert bob.items == {}
    domain.wait(10.0)
    assert bob.uids() == [HISTORY_LOST, *names(4, 6)]
    domain.publish(alice)
    domain.wait()
    assert bob.uids() == [HISTORY_LOST, *names(4, 9)]


def test_t05_a_former_leader_that_comes_back_in_time_is_read(domain: Domain) -> None:
    alice, bob = domain.phone("s2", user("alice")), domain.phone("s3", user("bob"))
    moved(domain, alice, ("s2", "s1"))
    domain.nodes["s1"].crash(lose_rows=True)
    domain.wait()
    bob.subscribe("A", "everything", Since())
    domain.wait(PATIENCE_S / 2)
    domain.nodes["s1"].start()
    domain.wait()
    assert bob.uids() == names(1, 6)


def test_t05_records_that_a_former_leader_does_not_keep_are_a_gap(domain: Domain) -> None:
    alice, bob = domain.phone("s2", user("alice")), domain.phone("s3", user("bob"))
    moved(domain, alice, ("s2", "s1"))
    node = domain.nodes["s1"]
    node.storage.log_begins = id_of(alice, "e2").number + 1
    bob.subscribe("A", "everything", Since())
    domain.wait()
    assert bob.uids() == names(3, 6)
    bob.subscribe("A", "everything ", Since(at_us=1))
    domain.wait()
    _, later = bob.items.values()
    assert [each.text for each in later] == [HISTORY_LOST, *names(3, 6)]


def test_j08_a_subscription_that_reads_at_a_leader_which_is_replaced_reads_its_rest_and_goes_on() -> None:
    """The leader is gone while it is read, is replaced by force, and comes back in time: no gap for this reader."""
    domain = Domain(window=1)
    alice, bob = domain.phone("s2", user("alice")), domain.phone("s3", user("bob"))
    live = domain.phone("s3", user("carol"))
    live.subscribe("A", "everything")
    domain.wait()
    domain.publish(alice, 300)
    domain.wait(90.0)
    bob.subscribe("A", "everything", Since())
    domain.wait(2.0)
    domain.nodes["s1"].crash(lose_rows=True)
    domain.wait(5.0)
    assert domain.move("s2", at="s2", wait_s=5.0, force=True) == []
    domain.publish(alice)
    domain.nodes["s1"].start()
    domain.wait(120.0)
    assert live.uids() == [*names(1, 300), LEADER_REPLACED, *names(301, 303)]
    assert bob.uids() == names(1, 303)


def test_t05_the_places_in_the_logs_of_the_leaders_are_durable(domain: Domain) -> None:
    alice, bob = domain.phone("s2", user("alice")), domain.phone("s3", user("bob"))
    moved(domain, alice, *THERE_AND_BACK)
    bob.subscribe("A", "everything", Since())
    domain.when("s3", Replayed, lambda: domain.restart("s3"))
    domain.wait(60.0)
    assert list(dict.fromkeys(bob.uids())) == names(1, 12)


def test_t05_a_subscription_reads_on_when_a_move_is_given_up(domain: Domain) -> None:
    """It has to count at the next leader, which is gone before it does; then it does not have to."""
    alice, bob = domain.phone("s3", user("alice")), domain.phone("s1", user("bob"))
    domain.publish(alice)
    domain.wait()

    def subscribe() -> None:
        domain.nodes["s2"].crash(lose_rows=True)
        bob.subscribe("A", "everything", Since())

    domain.when("s1", GroupPrepared, subscribe)
    domain.move("s2", wait_s=PREPARE_S / 2)
    assert bob.items == {}
    domain.wait(PREPARE_S)
    assert (domain.leaders()[0], bob.uids()) == (("s1", 1), names(1, 3))
