"""Sessions that move between brokers with decentralised channels (SPEC K-06, L-02)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.access.test_decentralised_events import CAROL, subscribed
from tests.access.town import SERVERS, Town
from tests.broker.desk import ALICE, BOB
from wanderbus.broker.sessions.handover_messages import AwaitSession, FenceSession, Head, ImportSession
from wanderbus.records import SessionImported

EPOCH = 7


def moved(town: Town, source: str, target: str, wanted: Sequence[str]) -> None:
    """Let Alice's session go from one server to another, which has got nothing else meanwhile."""
    state = town[source].broker.state
    subscriptions = tuple(state.subscriptions[each].subscription for each in wanted)
    town[target].give(AwaitSession(ALICE, "default", EPOCH, source, subscriptions))
    town.run()
    heads = tuple(Head(town[each].broker.state.next_id) for each in SERVERS if each != source)
    town[source].give(FenceSession(ALICE, "default", EPOCH, target, tuple(wanted), heads))
    town[target].give(ImportSession(state.exports[f"{ALICE}/default"].export))
    town.run()


def test_k06_a_session_comes_once_its_next_server_has_what_it_may_have_seen() -> None:
    town = Town()
    alice, bob, carol = town["s1"].attach(ALICE), town["s3"].attach(BOB), town["s2"].attach(CAROL)
    wanted = subscribed(town, "s1", alice)
    subscribed(town, "s2", carol)
    town.stopped.add(("s3", "s2"))
    town["s3"].publish(bob, 1)
    town.run()
    assert (town["s1"].stream(alice), town["s2"].stream(carol)) == ([1], [])
    moved(town, "s1", "s2", [wanted])
    assert not town["s2"].written(SessionImported), "a reply would reach Carol before its cause"
    town.stopped.clear()
    town.run()
    assert town["s2"].written(SessionImported)
    again = town["s2"].attach(ALICE, epoch=2)
    town["s2"].publish(again, 2)
    town.run()
    assert town["s2"].stream(carol) == [1, 2]
    assert town["s2"].stream(again)[-1] == 2
