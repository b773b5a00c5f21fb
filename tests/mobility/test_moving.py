"""An established session follows its ends to new addresses (SPEC C-18, C-19, D-08 to D-12, X8, X12, X13)."""

from __future__ import annotations

import pytest

from tests.mobility.world import SERVER, Phone, Talk, World, media_at, settled
from wanderbus.machine import Output
from wanderbus.mobility.messages import (
    AcceptOffer,
    AddressChanged,
    CreateSession,
    Refuse,
    SessionEstablished,
    SessionFailed,
    SessionOffered,
    SessionRemoved,
    UpdateFailed,
    UpdateSession,
)
from wanderbus.mobility.session.session import SIPCommunicationStatus
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription


def no_end(*phones: Phone) -> bool:
    """Tell whether no session was given up."""
    return not any(phone.all_of(kind) for phone in phones for kind in (UpdateFailed, SessionFailed, SessionRemoved))


def test_d08_register_then_reinvite_with_the_same_session_and_new_addresses(talk: Talk) -> None:
    world, alice, broker = talk
    world.trace.clear()
    alice.move("10.0.3.1")
    assert alice.session().communication is SIPCommunicationStatus.REINVITING
    world.run(1.0)
    assert [sent.what for sent in world.trace if sent.source == alice.address][:2] == ["REGISTER", "INVITE"]
    invite = world.sent("INVITE", alice)[0]
    assert invite.message.contact is not None
    assert invite.message.contact.uri.host == "10.0.3.1"
    assert SessionDescription.parse(invite.message.body).media == (media_at(alice.address),)
    assert settled(alice, broker)
    assert list(broker.agent.sessions) == ["call"]
    assert broker.all_of(SessionEstablished)[-1] == SessionEstablished("call", media_at(alice.address), True)
    assert broker.all_of(SessionOffered)[-1].update


def test_d09_the_reinvite_goes_straight_to_the_peer(talk: Talk) -> None:
    world, alice, _ = talk
    world.trace.clear()
    alice.move("10.0.3.1")
    world.run(10.0)
    assert not [sent for sent in world.trace if sent.destination == SERVER and "INVITE" in sent.what]


def test_healing_takes_one_round_trip(talk: Talk) -> None:
    """DESIGN 6.1, 6.4: credentials are sent ahead, so that no challenge costs another one."""
    world, alice, broker = talk
    alice.move("10.0.3.1")
    assert world.run_until(lambda: settled(alice, broker)) <= 2 * 1.5 * world.delay_s


def test_c19_the_called_side_may_update_too(talk: Talk) -> None:
    world, alice, broker = talk
    broker.move("10.0.4.1")
    world.run(1.0)
    assert settled(alice, broker)
    assert no_end(alice, broker)


def test_x8_the_description_keeps_its_id_and_raises_its_version(talk: Talk) -> None:
    world, alice, _ = talk
    for host in ("10.0.3.1", "10.0.3.2"):
        alice.move(host)
        world.run(1.0)
    bodies = [
        SessionDescription.parse(sent.message.body) for sent in world.sent("INVITE") if sent.destination != SERVER
    ]
    ours = [body for body in bodies if body.media[0].address != "10.0.1.1"]
    assert len({body.session_id for body in ours}) == 1
    assert [body.version for body in ours][-2:] == [2, 3]


def test_d10_an_update_with_an_unchanged_address_is_sent_too(talk: Talk) -> None:
    world, alice, broker = talk
    alice.give(UpdateSession("call", media_at(alice.address)))
    world.run(1.0)
    assert len(broker.all_of(SessionEstablished)) == 2
    assert broker.session().description_version == 1


def test_a_second_move_while_the_first_is_unanswered(talk: Talk) -> None:
    """The newer update overtakes; the response to the older one is ignored (RFC 3261 14.1 forbids two at once)."""
    world, alice, broker = talk
    world.loses = lambda sent: sent.source[0] == "10.0.3.1"
    alice.move("10.0.3.1")
    world.run(1.0)
    alice.move("10.0.3.2")
    assert world.run_until(lambda: settled(alice, broker)) < 0.1
    world.run(120.0)
    assert settled(alice, broker)
    assert no_end(alice, broker)


def test_a_second_move_while_the_answer_to_the_first_is_under_way(talk: Talk) -> None:
    world, alice, broker = talk
    alice.move("10.0.3.1")
    world.run_until(lambda: len(broker.all_of(SessionEstablished)) == 2)
    alice.move("10.0.3.2")
    assert world.run_until(lambda: settled(alice, broker)) < 0.1
    repeated = len(world.sent("200 INVITE", broker))
    world.run(60.0)
    assert len(world.sent("200 INVITE", broker)) == repeated, "the first 200 is not repeated to the old address"


def test_x13_both_sides_move_at_once_and_find_each_other_through_the_proxy(talk: Talk) -> None:
    world, alice, broker = talk
    alice.move("10.0.3.1")
    broker.move("10.0.4.1")
    assert world.run_until(lambda: settled(alice, broker)) < 3.0
    world.run(60.0)
    assert settled(alice, broker)
    assert no_end(alice, broker)


def test_glare_is_refused_with_491_and_resolved(talk: Talk) -> None:
    """RFC 3261 14.1, 14.2: the owner of the Call-ID waits 2.1 to 4 s, the other side up to 2 s."""
    world, alice, broker = talk
    alice.give(UpdateSession("call", media_at(alice.address, 1)))
    broker.give(UpdateSession("call", media_at(broker.address, 1)))
    world.run(0.5)
    assert len(world.sent("491 INVITE")) == 2
    world.run(10.0)
    assert settled(alice, broker)
    assert alice.session().local_media == broker.session().remote_media
    assert broker.session().local_media == alice.session().remote_media
    assert no_end(alice, broker)


def test_x13_both_moved_to_addresses_while_the_former_are_still_reached(talk: Talk) -> None:
    """Make before break on both sides: each offer overtakes the other, and both are taken."""
    world, alice, broker = talk
    for phone, host in ((alice, "10.0.3.1"), (broker, "10.0.4.1")):
        former = phone.address
        world.relocate(phone, (host, 5060))
        world.nodes[former] = phone
    for phone in (alice, broker):
        phone.give(AddressChanged(phone.address), UpdateSession("call", media_at(phone.address)))
    assert world.run_until(lambda: settled(alice, broker), 10.0) < 0.1
    world.run(60.0)
    assert settled(alice, broker)
    assert alice.session().dialog is not None
    assert alice.session().dialog.remote_target == "sip:broker@10.0.4.1:5060"  # type: ignore[union-attr]
    assert no_end(alice, broker)


def test_a_copy_of_the_200_is_confirmed_even_after_the_peer_moved(world: World) -> None:
    """The ACK went to the old address; the called side re-INVITEs, then repeats its first 200."""
    alice, bob = world.phone("alice", "10.0.2.1"), world.phone("bob", "10.0.1.1")
    world.run(1.0)
    alice.call("bob")
    world.run_until(lambda: alice.sends_to(bob))
    bob.move("10.0.4.1")
    world.run(120.0)
    assert settled(alice, bob)
    assert len(world.sent("200 INVITE", bob)) <= 1
    assert no_end(alice, bob)


def test_a_description_that_the_answer_had_is_not_repeated(talk: Talk) -> None:
    """Our re-INVITE was refused by glare; then the peer's arrived, and our answer contained the update."""
    world, alice, broker = talk
    alice.give(UpdateSession("call", media_at(alice.address)))
    broker.give(UpdateSession("call", media_at(broker.address)))
    world.run(10.0)
    assert len(world.sent("200 INVITE")) == 3, "proxy and callee at the beginning, and one update instead of two"


def test_an_update_waits_while_the_owner_thinks_about_the_peers(talk: Talk) -> None:
    """RFC 3261 14.1: no INVITE while another is in progress in either direction."""
    world, alice, broker = talk
    broker.answers = False
    alice.move("10.0.3.1")
    world.run(0.1)
    broker.give(UpdateSession("call", media_at(broker.address, 7)))
    world.run(0.5)
    assert world.sent("INVITE", broker) == []
    broker.give(AcceptOffer("call", media_at(broker.address)))
    world.run(10.0)
    assert alice.session().remote_media == broker.session().local_media == media_at(broker.address, 7)
    assert settled(alice, broker)


def lines_of(phone: Phone, world: World) -> list[MediaDescription]:
    """The media that ``phone`` offered, in each of its INVITEs."""
    bodies = [sent.message.body for sent in world.sent("INVITE", phone)]
    return [media for body in bodies for media in SessionDescription.parse(body).media]


def test_an_update_that_waits_is_not_needed_where_the_answer_renews_it(talk: Talk) -> None:
    """The owner's answer has its current media, so its earlier update is stale."""
    world, alice, broker = talk
    broker.answers = False
    alice.move("10.0.3.1")
    world.run(0.1)
    broker.give(UpdateSession("call", media_at(broker.address, 7)))
    world.run(0.5)
    broker.give(AcceptOffer("call", media_at(broker.address, 8), renews=True))
    world.run(10.0)
    assert alice.session().remote_media == broker.session().local_media == media_at(broker.address, 8)
    assert lines_of(broker, world) == []
    assert settled(alice, broker)


def test_an_update_that_was_refused_by_glare_is_not_needed_where_the_answer_renews_it(talk: Talk) -> None:
    world, alice, broker = talk
    alice.answers = False
    alice.give(UpdateSession("call", media_at(alice.address, 7)))
    broker.give(UpdateSession("call", media_at(broker.address, 7)))
    world.run(0.1)
    before = len(lines_of(alice, world))
    world.run_until(lambda: alice.all_of(SessionOffered))
    alice.give(AcceptOffer("call", media_at(alice.address, 8), renews=True))
    world.run(10.0)
    assert broker.session().remote_media == alice.session().local_media == media_at(alice.address, 8)
    assert len(lines_of(alice, world)) == before
    assert settled(alice, broker)


def test_an_overtaken_update_equals_the_answer(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The 200 is lost for a while, so an INVITE with the same media is sent; the earlier update is stale."""
    world, alice, broker = talk
    said = media_at(alice.address, 8)

    def answer(report: Output) -> None:
        if isinstance(report, SessionOffered):
            alice.give(AcceptOffer("call", said, renews=True))

    monkeypatch.setattr(alice, "noticed", answer)
    world.loses = lambda sent: sent.source == alice.address
    alice.give(UpdateSession("call", media_at(alice.address, 7)))
    broker.move("10.0.4.1")
    world.run_until(lambda: alice.all_of(SessionOffered))
    stale = len(lines_of(alice, world))
    world.run_until(lambda: len(lines_of(alice, world)) > stale)
    world.loses = lambda sent: False
    world.run(10.0)
    assert set(lines_of(alice, world)[stale:]) == {said}
    assert broker.session().remote_media == alice.session().local_media == said
    assert no_end(alice, broker)


def test_an_update_goes_on_after_the_owner_refused_the_peers(talk: Talk) -> None:
    """Our update was overtaken by one from a new address; that one was refused, so ours still has to be sent."""
    world, alice, broker = talk
    alice.answers = False
    wanted = media_at(alice.address, 7)
    world.loses = lambda sent: sent.what == "INVITE" and sent.source == alice.address and not alice.answers
    alice.give(UpdateSession("call", wanted))
    broker.move("10.0.4.1")
    world.run(0.5)
    alice.give(Refuse("call", 480))
    alice.answers = True
    world.run(10.0)
    assert broker.session().remote_media == wanted
    assert alice.sends_to(broker)
    assert no_end(alice, broker)


def test_a_refused_update_leaves_the_session_as_it_was_and_is_retried(talk: Talk) -> None:
    """RFC 3261 14.2; any refusal but 481 and 408 is thought to pass."""
    world, alice, broker = talk
    broker.answers = False
    alice.move("10.0.3.1")
    world.run(0.1)
    broker.give(Refuse("call", 480))
    world.run(0.1)
    assert broker.session().remote_media == media_at(("10.0.2.1", 5060))
    broker.answers = True
    world.run(2.0)
    assert settled(alice, broker)


def test_an_update_refused_every_time_fails_for_good(talk: Talk) -> None:
    world, alice, broker = talk
    broker.noticed = lambda report: (  # type: ignore[method-assign]
        broker.give(Refuse("call", 480)) if isinstance(report, SessionOffered) else None
    )
    alice.move("10.0.3.1")
    world.run(60.0)
    assert [report.status for report in alice.all_of(UpdateFailed)] == [480]
    assert alice.agent.sessions == {}


def test_d12_an_update_outlasts_an_outage_of_ten_seconds(talk: Talk) -> None:
    world, alice, broker = talk
    dark_until = world.now + 10.0
    world.loses = lambda sent: world.now < dark_until
    alice.move("10.0.3.1")
    world.run(10.0)
    assert world.run_until(lambda: settled(alice, broker)) <= 4.1


def test_a_peer_gone_for_good_fails_the_update(talk: Talk) -> None:
    world, alice, broker = talk
    broker.crash()
    alice.move("10.0.3.1")
    took_s = world.run_until(lambda: bool(alice.all_of(UpdateFailed)))
    assert 32.0 <= took_s <= 64.0


@pytest.mark.parametrize("with_media", [False, True])
def test_a_move_while_the_first_invite_is_unanswered_sends_it_afresh(world: World, with_media: bool) -> None:
    alice, bob = world.phone("alice", "10.0.2.1"), world.phone("bob", "10.0.1.1")
    world.run(1.0)
    alice.call("bob")
    world.run_until(lambda: bool(bob.all_of(SessionEstablished)))
    world.relocate(alice, ("10.0.3.1", 5060))
    moved = [AddressChanged(alice.address), UpdateSession("call", media_at(alice.address))]
    alice.give(*moved[: 1 + with_media])
    world.run(0.5)
    assert settled(alice, bob)
    assert len(world.sent("INVITE", alice)) == 1, "the owner's same wish at the same moment adds nothing"
    assert bob.all_of(SessionOffered)[-1].update
    assert list(bob.agent.sessions) == ["call"]
    world.run(60.0)
    assert settled(alice, bob)
    assert no_end(alice, bob)


def test_a_caller_that_moves_before_the_owner_answered_is_offered_again(world: World) -> None:
    alice, bob = world.phone("alice", "10.0.2.1"), world.phone("bob", "10.0.1.1")
    bob.answers = False
    world.run(1.0)
    alice.call("bob")
    world.run(0.5)
    alice.move("10.0.3.1")
    world.run(0.5)
    assert [offer.media.address for offer in bob.all_of(SessionOffered)] == ["10.0.2.1", "10.0.3.1"]
    bob.give(AcceptOffer("call", media_at(bob.address)), AcceptOffer("call", media_at(bob.address)))
    world.run(1.0)
    assert settled(alice, bob)
    assert len(bob.all_of(SessionEstablished)) == 1


def test_a_stranger_at_our_old_address_does_not_end_the_session(talk: Talk) -> None:
    """An address is given to somebody else while we are on the way: 404 there, not 481."""
    world, alice, broker = talk
    del world.nodes[alice.address]
    world.phone("bob", "10.0.2.1")
    broker.give(UpdateSession("call", media_at(broker.address)))
    world.run(1.0)
    assert world.sent("404 INVITE")
    alice.address = ("10.0.3.1", 5060)
    world.add(alice)
    alice.give(AddressChanged(alice.address), UpdateSession("call", media_at(alice.address)))
    world.run_until(lambda: settled(alice, broker), 10.0)
    assert no_end(alice, broker)


def test_two_sessions_move_together(talk: Talk) -> None:
    world, alice, broker = talk
    alice.give(CreateSession("second", "broker@example.org", media_at(alice.address)))
    world.run(1.0)
    alice.move("10.0.3.1")
    world.run(1.0)
    for id in ("call", "second"):
        assert broker.session(id).remote_media == media_at(alice.address)
