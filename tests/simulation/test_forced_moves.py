"""A channel group whose leader is gone is led by another server, by force, step by step (SPEC J-08)."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import pytest

from tests.simulation.group_domain import NAMES, Domain, user
from wanderbus import protocol
from wanderbus.broker.history.seams import HISTORY_LOST, PATIENCE_S
from wanderbus.broker.servers.arrivals import LEADER_REPLACED
from wanderbus.protocol.domains import GroupLeaders
from wanderbus.records import ArrivalsLost, GroupMoved, GroupPrepared, Subscribed, Unsubscribed
from wanderbus.subscription import Since


class Scene(Domain):
    """Three servers; alice publishes at the second one, and each server has a subscriber, who is named like it."""

    def __init__(self, window: int = 256, engines: Collection[str] = ()) -> None:
        super().__init__(window=window, engines=engines)
        self.alice = self.phone("s2", user("alice"))
        self.readers = {name: self.phone(name, user(name)) for name in NAMES}
        for each in self.readers.values():
            each.subscribe("A", "everything")
        self.wait()
        self.publish(self.alice)
        self.wait()

    def kill_leader(self) -> None:
        self.nodes["s1"].crash(lose_rows=False)
        self.wait()

    def read(self, name: str) -> list[str]:
        """Return the names of the events that the subscriber of a server has got, and the reason of each gap."""
        return self.readers[name].uids()

    def losses(self, name: str) -> list[tuple[str, bool]]:
        """Return the leaders of which this server lacks events since the force, and whether subscribers got a gap."""
        lost = [each for each in self.nodes[name].disk.records() if isinstance(each, ArrivalsLost)]
        return [(each.leader, bool(each.notified)) for each in lost if each.reason == LEADER_REPLACED]


@pytest.fixture(params=[(), NAMES], ids=["index", "engines"])
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(engines=request.param)


def test_j08_a_leader_that_is_gone_is_replaced_and_every_subscriber_reads_a_gap(scene: Scene) -> None:
    scene.kill_leader()
    scene.publish(scene.alice)
    scene.wait()
    assert scene.move("s2", at="s2", force=True) == []
    scene.wait()
    assert scene.leaders()[1:] == [("s2", 3)] * 2
    assert scene.alice.is_settled
    assert scene.accepted_at("s2") == ["e4", "e5", "e6"]
    for name in ("s2", "s3"):
        assert scene.read(name) == ["e1", "e2", "e3", LEADER_REPLACED, "e4", "e5", "e6"]
        assert scene.losses(name) == [("s1", True)]


def test_j08_an_event_whose_answer_was_for_a_closed_link_is_published_before_those_behind_it() -> None:
    """The leader has answered the first event alone, and is gone when the device repeats all of its own."""
    scene = Scene()
    bob = scene.phone("s2", user("bob"))
    scene.slow("s2", "s1", 2.0)
    scene.alice.notice_s = (0.1, 0.1)
    scene.publish(scene.alice, 1)
    scene.wait(3.5)
    for device in (scene.alice, bob, scene.alice):
        scene.publish(device, 1)
        scene.wait(0.01)
    scene.wait(0.2)
    scene.alice.reachable = False
    scene.alice.lose()
    scene.wait(1.3)
    scene.nodes["s1"].crash(lose_rows=False)
    assert (scene.accepted_at("s1"), scene.alice.is_settled) == (["e1", "e2", "e3", "e4"], False)
    scene.alice.move()
    scene.wait()
    assert scene.move("s2", at="s2", force=True) == []
    scene.wait()
    assert scene.accepted_at("s2") == ["e4", "e5", "e6", "e7"]
    assert list(scene.alice.check()) == []
    assert {each.refused for each in scene.alice.published.values()} == {None}


def test_j08_a_leader_that_returns_has_lost_its_group_and_its_subscribers_read_a_gap(scene: Scene) -> None:
    scene.kill_leader()
    assert scene.move("s2", at="s3", force=True) == []
    scene.publish(scene.alice)
    scene.wait()
    scene.nodes["s1"].start()
    scene.wait()
    assert scene.leaders() == [("s2", 3)] * 3
    scene.publish(scene.alice)
    scene.wait()
    assert scene.accepted_at("s1") == ["e1", "e2", "e3"]
    assert scene.read("s1") == ["e1", "e2", "e3", LEADER_REPLACED, "e7", "e8", "e9"]
    assert scene.losses("s1") == [("s2", True)]
    assert scene.read("s3") == ["e1", "e2", "e3", LEADER_REPLACED, "e4", "e5", "e6", "e7", "e8", "e9"]


def test_j08_the_gap_of_a_former_leader_ends_where_it_gets_every_event(scene: Scene) -> None:
    """Another subscription has counted at the next leader all the time, and gets one of the events in between."""
    other = scene.phone("s1", user("other"))
    other.subscribe("*", 'Uid == "e5"')
    scene.wait()
    scene.kill_leader()
    assert scene.move("s2", at="s2", force=True) == []
    scene.publish(scene.alice)
    scene.wait()
    scene.nodes["s1"].start()
    scene.wait()
    scene.publish(scene.alice)
    scene.wait()
    assert scene.read("s1") == ["e1", "e2", "e3", LEADER_REPLACED, "e7", "e8", "e9"]
    assert other.uids() == [LEADER_REPLACED]


def test_j08_a_leader_by_force_of_the_version_before_is_followed_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never says where the gap ends, so the former leader waits for no number of it."""
    encode = protocol.encode

    def without_head(message: protocol.AgentMessage | protocol.BrokerMessage) -> bytes:
        encoded = encode(message)
        if isinstance(message, GroupLeaders):
            encoded = msgspec.msgpack.encode(msgspec.msgpack.decode(encoded)[:3])
        return encoded

    scene.kill_leader()
    monkeypatch.setattr(protocol, "encode", without_head)
    assert scene.move("s2", at="s2", force=True) == []
    scene.publish(scene.alice)
    scene.wait()
    scene.nodes["s1"].start()
    scene.wait()
    assert scene.leaders() == [("s2", 3)] * 3
    scene.publish(scene.alice)
    scene.wait()
    assert scene.read("s1") == ["e1", "e2", "e3", LEADER_REPLACED, "e7", "e8", "e9"]


def test_j08_events_of_a_former_leader_come_too_late_for_those_who_have_read_the_gap(scene: Scene) -> None:
    """They stay in its log, so nobody sees two orders."""
    scene.links.partition({"s3": 1})
    scene.publish(scene.alice)
    scene.wait(1.0)
    scene.kill_leader()
    scene.links.partition({})
    scene.wait()
    assert scene.move("s2", at="s2", force=True) == []
    scene.publish(scene.alice)
    scene.wait()
    scene.nodes["s1"].start()
    scene.wait()
    assert scene.accepted_at("s1")[3:] == ["e4", "e5", "e6"]
    assert scene.read("s3") == ["e1", "e2", "e3", LEADER_REPLACED, "e7", "e8", "e9"]
    assert scene.read("s2") == [*(f"e{number}" for number in range(1, 7)), LEADER_REPLACED, "e7", "e8", "e9"]
    assert all(lost == ("s1", False) for lost in scene.losses("s3")[1:])


def test_j08_a_fence_that_nobody_knows_is_below_the_epoch_of_a_forced_move(scene: Scene) -> None:
    """The leader was killed when it had written that the third server leads; that one takes no notice later."""
    scene.when("s1", GroupMoved, lambda: scene.nodes["s1"].crash(lose_rows=False))
    scene.move("s3")
    assert scene.leaders() == [("s3", 2), ("s1", 1), ("s1", 1)]
    assert scene.move("s2", at="s2", force=True) == []
    scene.nodes["s1"].start()
    scene.wait()
    assert scene.leaders() == [("s2", 3)] * 3
    assert all(not row.target for node in scene.nodes.values() for _, row in node.broker.state.groups.items())


def test_j08_a_forced_move_is_given_up_with_the_next_leader_before_its_fence(scene: Scene) -> None:
    scene.kill_leader()
    scene.when("s3", GroupPrepared, lambda: scene.nodes["s2"].crash(lose_rows=False))
    scene.move("s2", at="s2", force=True)
    scene.nodes["s2"].start()
    scene.nodes["s1"].start()
    scene.wait()
    assert scene.leaders() == [("s1", 1)] * 3
    scene.publish(scene.alice)
    scene.wait()
    assert scene.read("s3") == [f"e{number}" for number in range(1, 7)]


def test_j08_a_server_that_has_prepared_reads_its_gap_before_the_first_event(scene: Scene) -> None:
    """It is down at the fence, and its interest counts: the first events of the next leader wait for it."""
    scene.kill_leader()
    scene.when("s2", GroupMoved, lambda: scene.nodes["s3"].crash(lose_rows=True))
    scene.move("s2", at="s2", force=True)
    assert not scene.nodes["s3"].alive
    scene.publish(scene.alice)
    scene.wait()
    scene.nodes["s3"].start()
    scene.wait()
    assert scene.read("s3") == ["e1", "e2", "e3", LEADER_REPLACED, "e4", "e5", "e6"]


def test_j08_a_former_leader_leads_again_once_its_late_events_are_out_of_the_way() -> None:
    """Each of them waits for the acknowledgement of the one before, on a slow link."""
    scene = Scene(window=1)
    scene.links.partition({"s3": 1})
    scene.publish(scene.alice, 150)
    scene.wait(1.0)
    scene.kill_leader()
    scene.links.partition({})
    scene.wait()
    assert scene.move("s2", at="s2", force=True) == []
    scene.nodes["s1"].start()
    scene.wait(1.0)
    scene.slow("s3", "s1", 0.1)
    assert scene.move("s1", at="s2") == []
    assert scene.leaders() == [("s1", 4)] * 3
    scene.publish(scene.alice)
    scene.wait(60.0)
    assert scene.read("s3") == ["e1", "e2", "e3", LEADER_REPLACED, "e154", "e155", "e156"]
    assert scene.read("s1")[-4:] == [LEADER_REPLACED, "e154", "e155", "e156"]


@pytest.mark.parametrize("is_of_every_subject", [False, True])
def test_t05_a_past_that_only_the_former_leader_has(scene: Scene, *, is_of_every_subject: bool) -> None:
    """A subscription to every subject, without an epoch, ends; one to the channel goes on behind a gap."""
    reader = scene.phone("s3", user("reader"))
    scene.when("s3", Subscribed, lambda: scene.nodes["s1"].crash(lose_rows=False))
    reader.subscribe("A", "everything", Since())
    scene.wait()
    for row in scene.nodes["s3"].broker.state.subscriptions.values() if is_of_every_subject else ():
        row.history = tuple([msgspec.structs.replace(each, epoch=0) for each in row.history])
    assert scene.move("s2", at="s2", force=True) == []
    scene.publish(scene.alice)
    scene.wait(PATIENCE_S)
    ended = [each.reason for each in scene.nodes["s3"].disk.records() if isinstance(each, Unsubscribed)]
    if is_of_every_subject:
        assert ended == ["history_failed"]
    else:
        assert (ended, reader.uids()) == ([], [HISTORY_LOST, "e4", "e5", "e6"])


def test_j08_a_leader_that_can_be_reached_is_not_replaced(scene: Scene) -> None:
    (reason,) = scene.move("s2", at="s2", force=True)
    assert reason == (
        "channel group 0 stays at s1: s2: it has a link with s1, which leads the group; move the group without force"
    )
    scene.links.partition({"s2": 1})
    scene.wait()
    (reason,) = scene.move("s2", at="s2", force=True)
    assert reason == "s3 cannot be reached, and every server has to know the next leader; try again later"
    scene.links.partition({})
    scene.wait()
    assert scene.leaders() == [("s1", 1)] * 3


def test_j08_a_leader_that_returns_in_time_goes_on_leading(scene: Scene) -> None:
    scene.kill_leader()
    scene.slow("s3", "s2", 3.0)
    scene.when("s2", GroupPrepared, scene.nodes["s1"].start)
    (reason,) = scene.move("s2", at="s2", force=True)
    assert "without force" in reason
    assert scene.leaders() == [("s1", 1)] * 3


def test_j08_a_second_force_waits_until_the_first_one_is_over(scene: Scene) -> None:
    """The first one counts on what the other server has prepared for it."""
    scene.kill_leader()
    scene.slow("s3", "s2", 2.0)
    assert scene.move("s2", at="s2", force=True, wait_s=3.0) == []
    (reason,) = scene.move("s3", at="s3", force=True, wait_s=1.0)
    assert reason == "s2 is about to lead channel group 0 by force; try again later"
    scene.wait()
    assert scene.leaders()[1:] == [("s2", 3)] * 2


def test_j08_a_leader_by_force_that_is_gone_is_replaced_although_the_former_one_awaits_it(scene: Scene) -> None:
    """The former leader knows from the third server who leads, and cannot ask that one where its gap ends."""
    scene.kill_leader()
    assert scene.move("s2", at="s2", force=True) == []
    scene.publish(scene.alice)
    scene.wait()
    scene.nodes["s2"].crash(lose_rows=False)
    scene.nodes["s1"].start()
    scene.wait()
    assert scene.move("s3", at="s3", force=True) == []
    scene.nodes["s2"].start()
    scene.wait()
    assert scene.leaders() == [("s3", 5)] * 3
    scene.publish(scene.alice)
    scene.wait()
    assert scene.read("s1") == ["e1", "e2", "e3", LEADER_REPLACED, LEADER_REPLACED, "e7", "e8", "e9"]
    assert scene.read("s3") == [*scene.read("s2")[:8], "e7", "e8", "e9"]
