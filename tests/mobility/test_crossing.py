"""re-INVITEs that cross on the way, each overtaking the other (SPEC X13; RFC 3261 13.3.1.4, 14.2)."""

from __future__ import annotations

from tests.mobility.world import SERVER, established, media_at, settled
from wanderbus.mobility.messages import AcceptOffer, SessionOffered


def test_a_move_during_crossed_offers_is_announced() -> None:
    """Both forgot their re-INVITEs, so both ignore the other's 200: the new address in it must be sent again."""
    world, alice, broker = established()
    alice.answers = broker.answers = False
    alice.reports.clear()
    broker.reports.clear()
    alice.move("10.0.3.1")
    broker.move("10.0.4.1")
    both_went_out = world.now + 2.7
    world.loses = lambda sent: sent.what == "INVITE" and sent.source == SERVER and sent.at < both_went_out
    world.run_until(lambda: alice.all_of(SessionOffered) and broker.all_of(SessionOffered))
    alice.move("10.0.3.2")
    alice.give(AcceptOffer("call", media_at(alice.address)))
    broker.give(AcceptOffer("call", media_at(broker.address)))
    alice.answers = broker.answers = True
    assert not settled(alice, broker)
    world.run_until(lambda: settled(alice, broker), 10.0)
    world.run(5.0)
    world.trace.clear()
    world.run(10.0)
    assert settled(alice, broker)
    assert world.sent("200 INVITE") == [], "a 200 is still repeated in vain"
