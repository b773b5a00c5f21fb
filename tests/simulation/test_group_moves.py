"""A channel group that moves between three servers, step by step: what each of them knows and refuses (SPEC J-08)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.group_domain import NAMES, Domain, Phone, user
from wanderbus import protocol
from wanderbus.broker.groups.group_move import PAUSE_S, REACH_S
from wanderbus.broker.servers.server_users import server_user
from wanderbus.records import GroupMoved, GroupPrepared, GroupStays, Published
from wanderbus.simulation.domains.domain_node import DOMAIN
from wanderbus.simulation.domains.group_scenario import OPERATOR


@pytest.fixture(params=[(), NAMES], ids=["index", "engines"])
def domain(request: pytest.FixtureRequest) -> Domain:
    return Domain(engines=request.param)


def test_j08_events_have_one_order_over_all_leaders(domain: Domain) -> None:
    alice, bob = domain.phone("s2", user("alice")), domain.phone("s3", user("bob"))
    bob.subscribe("A", "everything")
    domain.wait()
    for target, at in (("s2", "s1"), ("s3", "s1"), ("s1", "s2"), ("s2", "s3")):
        domain.publish(alice)
        assert domain.move(target, at) == []
    domain.publish(alice)
    domain.wait()
    assert bob.uids() == [f"e{number}" for number in range(1, 16)]
    assert domain.leaders() == [("s2", 5)] * 3
    assert domain.accepted_at("s2") == ["e4", "e5", "e6", "e13", "e14", "e15"]


def test_j08_leaders_are_known_after_a_restart_and_events_go_there(domain: Domain) -> None:
    alice, bob = domain.phone("s1", user("alice")), domain.phone("s1", user("bob"))
    bob.subscribe("A", "everything")
    domain.wait()
    assert domain.move("s2") == []
    for name in NAMES:
        domain.restart(name)
        domain.wait()
    assert domain.leaders() == [("s2", 2)] * 3
    domain.links.partition({"s1": 1})
    domain.restart("s1")
    domain.wait()
    domain.publish(alice)
    domain.wait()
    assert domain.accepted_at("s1") == []
    domain.links.partition({})
    domain.wait()
    assert (bob.uids(), domain.accepted_at("s2")) == (["e1", "e2", "e3"], ["e1", "e2", "e3"])


def test_j08_a_repeat_is_recognised_by_the_next_leader(domain: Domain) -> None:
    """The answers are lost with the server of the device, which repeats its events only after the move."""
    alice = domain.phone("s3", user("alice"))
    alice.notice_s = alice.retry_s = (100.0, 100.0)
    domain.when("s1", Published, lambda: domain.restart("s3"))
    domain.publish(alice)
    domain.wait()
    assert (domain.accepted_at("s1"), alice.is_settled) == (["e1", "e2", "e3"], False)
    assert domain.move("s2") == []
    domain.wait(300.0)
    assert (domain.accepted_at("s2"), alice.is_settled) == ([], True)
    assert {each.accepted.origin for each in alice.published.values() if each.accepted} == {"s1"}


def test_j08_prepared_interest_outlives_a_crash(domain: Domain) -> None:
    """A server is down at the fence, and has no link to anybody who could tell it that the next leader leads."""
    alice, bob = domain.phone("s2", user("alice")), domain.phone("s3", user("bob"))
    bob.subscribe("A", "everything")
    domain.wait()

    def divide() -> None:
        domain.nodes["s3"].crash(lose_rows=True)
        domain.links.partition({"s1": 1})

    domain.when("s1", GroupMoved, divide)
    domain.move("s2")
    domain.nodes["s3"].start()
    domain.wait()
    assert domain.leaders() == [("s2", 2), ("s1", 1), ("s1", 1)]
    domain.links.partition({"s3": 1})
    domain.wait()
    domain.publish(alice)
    domain.wait()
    assert domain.accepted_at("s2") == ["e1", "e2", "e3"]
    domain.links.partition({})
    domain.wait()
    assert bob.uids() == ["e1", "e2", "e3"]
    assert domain.leaders() == [("s2", 2)] * 3


def test_j08_nothing_of_the_next_leader_overtakes_the_former(domain: Domain) -> None:
    """The link from the former leader is the slow one."""
    alice, bob = domain.phone("s1", user("alice")), domain.phone("s3", user("bob"))
    bob.subscribe("A", "everything")
    domain.wait()
    domain.slow("s3", "s1", 0.3)
    domain.stream(alice, "A")
    domain.wait(0.5)
    assert domain.move("s2") == []
    assert bob.uids() == [f"e{number}" for number in range(1, 301)]
    assert domain.accepted_at("s1")
    assert domain.accepted_at("s2")


def test_j08_numbers_of_other_channels_say_nothing_about_a_moved_group(domain: Domain) -> None:
    """While events of the group wait, the next leader accepts later ones of the same publisher in another channel."""
    alice = domain.phone("s3", user("alice"))
    domain.slow("s3", "s1", 0.1)
    domain.stream(alice, "A", "C")
    domain.wait(0.5)
    assert domain.move("s2") == []
    accepted = [each for name in ("s1", "s2") for each in domain.accepted_at(name)]
    assert sorted(accepted) == sorted(f"e{number}" for number in range(1, 301))
    assert list(alice.check()) == []


def test_n02_no_publisher_holds_back_what_the_next_leader_wants() -> None:
    """A lease that the former leader has given would outlive the move."""
    domain = Domain()
    alice, bob = domain.phone("s3", user("alice"), is_filtering=True), domain.phone("s2", user("bob"))
    domain.publish(alice)
    domain.wait(1.0)
    domain.publish(alice)
    domain.wait(0.5)
    assert any(each.held_back for each in alice.published.values())
    assert domain.move("s2", wait_s=1.0) == []
    bob.subscribe("A", "everything")
    domain.wait(1.0)
    assert domain.leaders() == [("s2", 2)] * 3
    domain.publish(alice)
    domain.wait()
    assert bob.uids() == ["e7", "e8", "e9"]


def test_x25_a_refused_event_of_an_outbox_is_repeated_before_the_fence(domain: Domain) -> None:
    """The former leader would refuse later events of the outbox until it comes, and it comes to the next one."""
    alice = domain.phone("s3", user("alice"))
    domain.nodes["s1"].fill_disk(is_full=True)
    domain.publish(alice)
    domain.wait(0.1)
    domain.nodes["s1"].fill_disk(is_full=False)
    domain.move("s2", wait_s=PAUSE_S + 1.0)
    domain.publish(alice, subject="B")
    domain.wait(60.0)
    assert domain.accepted_at("s1")[-3:] == ["e4", "e5", "e6"]
    assert alice.is_settled


def test_j08_a_move_waits_for_no_server_that_is_gone(domain: Domain) -> None:
    domain.nodes["s3"].crash(lose_rows=False)
    domain.wait()
    (reason,) = domain.move("s2")
    assert reason == "s3 cannot be reached, and every server has to know the next leader; try again later"
    assert domain.leaders()[:2] == [("s1", 1)] * 2


def test_j08_a_move_waits_for_a_server_that_is_starting(domain: Domain) -> None:
    domain.nodes["s3"].crash(lose_rows=False)
    domain.wait()
    assert domain.move("s2", wait_s=REACH_S - 1.0) == []
    assert domain.leaders()[:2] == [("s1", 1)] * 2
    domain.nodes["s3"].start()
    domain.wait()
    assert domain.leaders() == [("s2", 2)] * 3


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("s9", "there is no resolution server 's9' (expected s1 or s2 or s3)"),
        ("s1", ""),
    ],
)
def test_moves_that_make_no_sense_are_refused(domain: Domain, target: str, reason: str) -> None:
    assert domain.move(target) == ([reason] if reason else [])
    assert domain.leaders() == [("s1", 1)] * 3


def test_a_group_stays_if_a_server_does_not_take_its_events(domain: Domain) -> None:
    """The events wait in the pause, and are accepted where they were."""
    alice, bob = domain.phone("s1", user("alice")), domain.phone("s3", user("bob"))
    bob.subscribe("A", "everything")
    domain.wait()
    domain.nodes["s3"].fill_disk(is_full=True)
    domain.publish(alice)
    domain.wait(1.0)
    operator = domain.phone("s1", OPERATOR)
    operator.ask(protocol.MoveGroup(0, 0, "s2"))
    domain.wait(PAUSE_S + 1.0)
    (reason,) = operator.reasons
    assert reason.startswith("channel group 0 stays at s1: s3: the disk")
    domain.nodes["s3"].fill_disk(is_full=False)
    domain.wait()
    assert domain.move("s2") == []
    assert bob.uids() == ["e1", "e2", "e3"]


def test_a_move_whose_leader_crashes_before_the_fence_is_given_up(domain: Domain) -> None:
    domain.when("s3", GroupPrepared, lambda: domain.nodes["s1"].crash(lose_rows=False))
    domain.move("s2", at="s3")
    assert not domain.nodes["s1"].alive
    assert any(isinstance(each, GroupPrepared) for each in domain.nodes["s3"].disk.records())
    domain.nodes["s1"].start()
    domain.wait()
    assert domain.leaders() == [("s1", 1)] * 3
    assert all(not node.broker.state.groups.items() for node in domain.nodes.values())
    assert any(isinstance(each, GroupStays) for each in domain.nodes["s3"].disk.records())


def history(phone: Phone, domain: Domain, **options: Any) -> list[tuple[int, str]]:
    """Return epoch and name of each event of a channel, page by page; the reason and no name for those left out."""
    found: list[tuple[int, str]] = []
    request: protocol.ListEvents | None = protocol.ListEvents(0, "A", limit=2, **options)
    while request is not None:
        phone.rows.clear()
        phone.ask(request)
        domain.wait()
        for row in phone.rows:
            named = row["event"]["attributes"]["Uid"] if "event" in row else row.get("left_out", row.get("led_before"))
            found.append((row.get("epoch", 0), named))
        epoch, _, number = (phone.next or "").partition(":")
        first = int(number) if number else None
        following = protocol.ListEvents(0, "A", first, limit=2, epoch=int(epoch or 0))
        request = following if epoch else None
    return found


def test_k03_a_history_has_the_events_of_all_leaders_in_the_order_of_their_epochs(domain: Domain) -> None:
    """s1 leads twice, and is asked at a server that has been started again since."""
    alice, bob = domain.phone("s2", user("alice")), domain.phone("s3", user("bob"))
    for target, at in (("s2", "s1"), ("s1", "s2"), ("s3", "s1")):
        domain.publish(alice)
        assert domain.move(target, at) == []
    domain.publish(alice)
    for name in NAMES:
        domain.restart(name)
        domain.wait()
    epochs = [(number // 3 + 1, f"e{number + 1}") for number in range(12)]
    assert history(bob, domain) == epochs
    assert history(bob, domain, first=0) == [(0, "s1"), *epochs[9:]]
    assert history(bob, domain, epoch=2) == epochs[3:]
    bob.ask(protocol.ListEvents(0, "A", epoch=5))
    domain.wait()
    assert bob.reasons == ["the channel of 'A' has no epoch 5 here (known: 1, 2, 3, 4)"]


def test_k03_a_former_leader_that_is_gone_is_left_out_and_the_row_names_it(domain: Domain) -> None:
    alice, bob = domain.phone("s2", user("alice")), domain.phone("s3", user("bob"))
    domain.publish(alice)
    assert domain.move("s2") == []
    domain.publish(alice)
    domain.nodes["s1"].crash(lose_rows=True)
    domain.wait()
    (_, reason), *others = history(bob, domain)
    assert "cannot be reached" in reason
    assert others == [(2, "e4"), (2, "e5"), (2, "e6")]
    assert (bob.rows, bob.reasons) == (bob.rows, [])


@pytest.mark.parametrize(("leaders", "expected"), [(NAMES, ("s2", 2)), (("s1", "s2"), ("s1", 1))])
def test_j08_a_changed_file_keeps_moved_groups_if_the_same_servers_may_lead(
    domain: Domain, leaders: tuple[str, ...], expected: tuple[str, int]
) -> None:
    alice, bob = domain.phone("s1", user("alice")), domain.phone("s3", user("bob"))
    bob.subscribe("A", "everything")
    domain.wait()
    assert domain.move("s2") == []
    for node in domain.nodes.values():
        node.crash(lose_rows=False)
    for name, node in domain.nodes.items():
        node.channels = Domain.channels(name, leaders, b"2")
        node.start()
    domain.wait()
    assert domain.leaders() == [expected] * 3
    domain.publish(alice)
    domain.wait()
    assert bob.uids() == ["e1", "e2", "e3"]


def test_j11_a_server_that_joins_learns_who_leads_the_groups_of_one_that_has_left(domain: Domain) -> None:
    bob = domain.phone("s3", user("bob"))
    bob.subscribe("A", "everything")
    domain.wait()
    assert [domain.move("s2"), domain.move("s3", at="s2")] == [[], []]
    domain.phone("s1", user("dora")).subscribe("C", "everything")
    domain.wait()
    sessions_of = [domain.nodes["s2"].broker.state.sessions_of(server_user("s1", DOMAIN))]
    domain.change("s1", "s4")
    carol = Phone(domain.world, domain.nodes["s4"], user("carol"), "phone", 0.001)
    carol.subscribe("A", "everything")
    domain.publish(carol)
    domain.wait()
    assert bob.uids() == ["e1", "e2", "e3"]
    domain.publish(domain.phone("s2", user("alice")))
    domain.wait()
    assert [bob.uids(), carol.uids()[-3:]] == [[f"e{number}" for number in range(1, 7)], ["e4", "e5", "e6"]]
    assert domain.leaders() == [("s3", 3)] * 3
    assert domain.move("s4", at="s3") == []
    domain.publish(carol)
    domain.wait()
    assert [bob.uids()[-3:], domain.accepted_at("s4")] == [["e7", "e8", "e9"]] * 2
    sessions_of.append(domain.nodes["s2"].broker.state.sessions_of(server_user("s1", DOMAIN)))
    assert [[bool(each.subscriptions) for each in several] for several in sessions_of] == [[True], []]
