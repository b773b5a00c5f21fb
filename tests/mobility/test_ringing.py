"""Between INVITE and its answer: 100, 180, 183, 302, 486, CANCEL (RFC 3261 8.1.3.4, 9, 13.2.2, 13.3.1.1; SPEC C-15)."""

from __future__ import annotations

import pytest

from tests.mobility.scripted import Scripted
from tests.mobility.world import DOMAIN, Phone, World, media_at
from wanderbus.mobility.messages import (
    AcceptOffer,
    CreateSession,
    Refuse,
    Ring,
    SessionEstablished,
    SessionFailed,
    SessionOffered,
    SessionRemoved,
    SessionStateChanged,
    TerminateSession,
)
from wanderbus.mobility.session.calls import SERVICE_REDIRECTIONS_MAX
from wanderbus.mobility.session.session import SIPCommunicationStatus
from wanderbus.sip.transaction.transaction_layer import RequestReceived

Status = SIPCommunicationStatus


def states(phone: Phone) -> list[SIPCommunicationStatus]:
    return [report.communication for report in phone.all_of(SessionStateChanged)]


@pytest.fixture
def pair(world: World) -> tuple[Phone, Phone]:
    """Alice, and bob whose owner has not answered yet."""
    alice, bob = world.phone("alice", "10.0.2.1"), world.phone("bob", "10.0.1.1")
    bob.answers = False
    world.run(1.0)
    return alice, bob


def test_c15_ring_sends_ringing_to_the_caller(world: World, pair: tuple[Phone, Phone]) -> None:
    alice, bob = pair
    alice.call("bob")
    world.run(0.5)
    bob.give(Ring("call"))
    world.run(0.5)
    assert states(alice) == [Status.INVITING, Status.RINGING_THERE]
    assert states(bob) == [Status.RINGING_HERE]
    assert world.sent("180 INVITE", bob)[0].message.to.tag is not None
    bob.give(AcceptOffer("call", media_at(bob.address)))
    world.run(0.5)
    assert states(alice)[-1] is states(bob)[-1] is Status.CONNECTED


def test_a_phone_may_ring_for_five_minutes(world: World, pair: tuple[Phone, Phone]) -> None:
    """RFC 3261 13.3.1.1: a 180 every minute, so that timer C of no proxy runs out."""
    alice, bob = pair
    alice.call("bob")
    world.run(0.5)
    bob.give(Ring("call"))
    world.run(300.0)
    assert len(world.sent("180 INVITE", bob)) == 5 + 1
    assert len(world.sent("INVITE", alice)) == 1
    bob.give(AcceptOffer("call", media_at(bob.address)))
    world.run(1.0)
    assert alice.sends_to(bob)
    world.run(120.0)
    assert len(world.sent("180 INVITE", bob)) == 5 + 1


def test_ring_without_anything_that_rings_does_nothing(world: World, pair: tuple[Phone, Phone]) -> None:
    alice, bob = pair
    bob.give(Ring("nothing"))
    bob.answers = True
    alice.call("bob")
    world.run(0.5)
    bob.give(Ring("call"))
    world.run(0.5)
    assert world.sent("180 INVITE") == []


def test_c15_busy(world: World, pair: tuple[Phone, Phone]) -> None:
    alice, bob = pair
    alice.call("bob")
    world.run(0.5)
    bob.give(Ring("call"))
    world.run(0.5)
    bob.give(Refuse("call", 486))
    world.run(0.5)
    assert states(alice) == [Status.INVITING, Status.RINGING_THERE, Status.BUSY_THERE, Status.DISCONNECTED]
    assert alice.all_of(SessionFailed)[0].status == 486


@pytest.mark.parametrize(("status", "state"), [(100, []), (183, []), (180, [Status.RINGING_THERE])])
def test_only_180_is_ringing(world: World, status: int, state: list[SIPCommunicationStatus]) -> None:
    proxy = Scripted(world)
    alice = world.phone("alice", "10.0.2.1")
    alice.call("bob")
    world.run(0.1)
    proxy.says(status, "peer", to=proxy.got("INVITE")[0])
    assert states(alice) == [Status.INVITING, *state]
    proxy.accepts(proxy.got("INVITE")[0])
    assert states(alice) == [Status.INVITING, *state, Status.CONNECTED]


def test_183_gives_the_callee_time(world: World) -> None:
    proxy = Scripted(world)
    alice = world.phone("alice", "10.0.2.1")
    alice.call("bob")
    world.run(0.1)
    proxy.says(183, "peer", to=proxy.got("INVITE")[0])
    world.run(100.0)
    assert len(proxy.got("INVITE")) == 1


@pytest.mark.parametrize("rings", [False, True])
def test_cancel_by_the_caller(world: World, pair: tuple[Phone, Phone], rings: bool) -> None:
    alice, bob = pair
    alice.call("bob")
    world.run(0.5)
    if rings:
        bob.give(Ring("call"))
        world.run(0.5)
    alice.give(TerminateSession("call"))
    world.run(1.0)
    assert world.sent("CANCEL", alice)
    assert world.sent("487 INVITE", bob)
    assert len(alice.all_of(SessionRemoved)) == len(bob.all_of(SessionRemoved)) == 1
    assert states(alice)[-1] is states(bob)[-1] is Status.DISCONNECTED


def test_cancel_without_any_end_is_over_after_64_t1(world: World) -> None:
    """RFC 3261 9.1: the INVITE had a provisional response, and no other follows."""
    proxy = Scripted(world)
    alice = world.phone("alice", "10.0.2.1")
    alice.call("bob")
    world.run(0.1)
    proxy.says(180, "peer", to=proxy.got("INVITE")[0])
    alice.give(TerminateSession("call"))
    took_s = world.run_until(lambda: not alice.agent.sessions)
    assert took_s == pytest.approx(32.0, abs=0.2)
    assert len(proxy.got("INVITE")) == 1


def test_a_callee_that_moves_while_it_rings_is_reached_all_the_same(world: World, pair: tuple[Phone, Phone]) -> None:
    alice, bob = pair
    alice.call("bob")
    world.run(0.5)
    bob.give(Ring("call"))
    world.run(0.5)
    bob.move("10.0.4.1")
    world.run(0.5)
    bob.give(AcceptOffer("call", media_at(bob.address)))
    world.run(2.0)
    assert alice.sends_to(bob)
    assert bob.sends_to(alice)


def test_a_caller_that_moves_while_it_rings_is_rung_again(world: World, pair: tuple[Phone, Phone]) -> None:
    alice, bob = pair
    alice.call("bob")
    world.run(0.5)
    bob.give(Ring("call"))
    world.run(0.5)
    alice.move("10.0.3.1")
    world.run(0.5)
    assert [report.reason for report in bob.all_of(SessionRemoved)] == ["the caller gave up"]
    assert len(bob.all_of(SessionOffered)) == 2
    bob.give(Ring("call"))
    world.run(0.5)
    assert states(alice) == [Status.INVITING, Status.RINGING_THERE, Status.INVITING, Status.RINGING_THERE]
    bob.give(AcceptOffer("call", media_at(bob.address)))
    world.run(0.5)
    assert alice.sends_to(bob)


def test_x11_a_302_is_followed_once(world: World) -> None:
    """RFC 3261 8.1.3.4: same To, From and Call-ID, a newer CSeq, the Contact with the highest q as Request-URI."""
    proxy, elsewhere = Scripted(world), Scripted(world, ("10.0.7.7", 5070))
    alice = world.phone("alice", "10.0.2.1")
    alice.call("bob")
    world.run(0.1)
    first = proxy.got("INVITE")[0]
    contacts = [("Contact", "<sip:bob@10.0.7.6>;q=0.2"), ("Contact", "<sip:bob@10.0.7.7:5070?Subject=x>;q=0.9")]
    proxy.says(302, "proxy", to=first, headers=contacts)
    second = elsewhere.got("INVITE")[0].request
    assert second.uri == "sip:bob@10.0.7.7:5070"
    assert (second.header("To"), second.header("From")) == (first.request.header("To"), first.request.header("From"))
    assert second.call_id == first.request.call_id
    assert second.cseq.number == first.request.cseq.number + 1
    elsewhere.accepts(elsewhere.got("INVITE")[0])
    assert alice.all_of(SessionEstablished) == [SessionEstablished("call", media_at(elsewhere.address), False)]
    assert alice.session().remote_uri == f"sip:bob@{DOMAIN}"


def test_a_302_to_a_name_is_asked_of_the_proxy(world: World) -> None:
    proxy = Scripted(world)
    alice = world.phone("alice", "10.0.2.1")
    alice.call("bob")
    world.run(0.1)
    proxy.says(302, "proxy", to=proxy.got("INVITE")[0], headers=[("Contact", f"<sip:carol@{DOMAIN}>")])
    assert proxy.got("INVITE")[1].request.uri == f"sip:carol@{DOMAIN}"


@pytest.mark.parametrize(
    "contacts",
    [[], ["*"], ["<tel:123>"], ["<sips:bob@10.0.7.7>"], [f"<sip:bob@{DOMAIN}>"], ["<sip:bob@10.0.0.1;transport=ws>"]],
)
def test_a_302_that_leads_nowhere_fails(world: World, contacts: list[str]) -> None:
    proxy = Scripted(world)
    alice = world.phone("alice", "10.0.2.1")
    alice.call("bob")
    world.run(0.1)
    proxy.says(302, "proxy", to=proxy.got("INVITE")[0], headers=[("Contact", contact) for contact in contacts])
    assert [report.status for report in alice.all_of(SessionFailed)] == [302]
    assert len(proxy.got("INVITE")) == 1


def test_redirections_in_a_circle_end(world: World) -> None:
    proxy = Scripted(world)
    alice = world.phone("alice", "10.0.2.1")
    alice.call("bob")
    world.run(0.1)
    for number in range(2):
        proxy.says(302, "proxy", to=proxy.got("INVITE")[-1], headers=[("Contact", f"<sip:bob{number}@10.0.0.1>")])
    assert [report.status for report in alice.all_of(SessionFailed)] == [302]
    assert len(proxy.got("INVITE")) == 2


def invited(world: World, *, is_service: bool = True, hurried: bool = True) -> tuple[Phone, Scripted, RequestReceived]:
    """Return alice, who calls the service bob, the proxy, and her INVITE."""
    proxy = Scripted(world)
    alice = world.phone("alice", "10.0.2.1")
    alice.give(CreateSession("call", f"sip:bob@{DOMAIN}", media_at(alice.address), hurried, is_service))
    world.run(0.1)
    return alice, proxy, proxy.got("INVITE")[0]


OWNER = ("10.0.7.7", 5070)
TO_OWNER = [("Contact", "<sip:bob@10.0.7.7:5070>")]


def test_j01_a_server_of_a_service_redirects_to_the_owner_of_the_session(world: World) -> None:
    alice, proxy, first = invited(world)
    owner = Scripted(world, OWNER)
    proxy.says(302, "proxy", to=first, headers=TO_OWNER)
    owner.accepts(owner.got("INVITE")[0])
    assert alice.all_of(SessionEstablished) == [SessionEstablished("call", media_at(owner.address), False)]
    assert alice.session().remote_uri == f"sip:bob@{DOMAIN}"


def test_l06_servers_of_a_service_redirect_again_while_a_session_moves(world: World) -> None:
    alice, proxy, first = invited(world)
    servers = [Scripted(world, (f"10.0.7.{number}", 5070)) for number in range(1, SERVICE_REDIRECTIONS_MAX + 1)]
    asked, invitation = proxy, first
    for number, server in enumerate(servers, 1):
        asked.says(302, "server", to=invitation, headers=[("Contact", f"<sip:bob@10.0.7.{number}:5070>")])
        asked, invitation = server, server.got("INVITE")[0]
    asked.says(302, "server", to=invitation, headers=[("Contact", "<sip:bob@10.0.8.8:5070>")])
    assert len(proxy.got("INVITE")) == 2, "then the service is looked up again"
    proxy.accepts(proxy.got("INVITE")[1])
    assert alice.all_of(SessionEstablished)


@pytest.mark.parametrize("status", [403, 404, 408, 486, 503])
def test_j01_after_a_failed_redirection_the_service_is_looked_up_again_once(world: World, status: int) -> None:
    alice, proxy, first = invited(world)
    owner = Scripted(world, OWNER)
    proxy.says(302, "proxy", to=first, headers=TO_OWNER)
    owner.says(status, "owner", to=owner.got("INVITE")[0], headers=[("Contact", "<sip:bob@10.0.7.8>")])
    again = proxy.got("INVITE")[1]
    assert again.request.uri == f"sip:bob@{DOMAIN}"
    assert again.request.call_id == first.request.call_id
    assert not alice.all_of(SessionFailed)
    proxy.says(302, "proxy", to=again, headers=TO_OWNER)
    assert [report.status for report in alice.all_of(SessionFailed)] == [302]
    assert len(owner.got("INVITE")) == 1


@pytest.mark.parametrize("hurried", [True, False])
def test_j01_a_silent_target_of_a_redirection_is_tried_once(world: World, hurried: bool) -> None:
    alice, proxy, first = invited(world, hurried=hurried)
    proxy.says(302, "proxy", to=first, headers=TO_OWNER)
    world.run(5.0 if hurried else 40.0)
    again = proxy.got("INVITE")[1]
    assert again.request.uri == f"sip:bob@{DOMAIN}"
    proxy.accepts(again)
    assert len(alice.all_of(SessionEstablished)) == 1


@pytest.mark.parametrize(
    ("contact", "followed"),
    [
        ("sip:bob@10.0.7.7:5070", True),
        ("sip:carol@10.0.7.7:5070", False),
        ("sip:bob@elsewhere.example", False),
        (f"sip:bob@{DOMAIN}:5070", True),
    ],
)
def test_j01_a_service_redirects_only_to_its_own_servers(world: World, contact: str, followed: bool) -> None:
    alice, proxy, first = invited(world)
    owner = Scripted(world, OWNER)
    proxy.says(302, "proxy", to=first, headers=[("Contact", f"<{contact}>")])
    assert len(owner.got("INVITE")) + len(proxy.got("INVITE")) == (2 if followed else 1)
    assert [report.status for report in alice.all_of(SessionFailed)] == ([] if followed else [302])


def test_a_move_keeps_the_redirection(world: World) -> None:
    alice, proxy, first = invited(world)
    owner = Scripted(world, OWNER)
    proxy.says(302, "proxy", to=first, headers=TO_OWNER)
    alice.move("10.0.3.1")
    world.run(0.1)
    owner.says(403, "owner", to=owner.got("INVITE")[-1])
    assert proxy.got("INVITE")[-1].request.uri == f"sip:bob@{DOMAIN}"
    assert len(proxy.got("INVITE")) == 2


def test_a_person_who_refuses_after_a_redirection_is_not_called_again(world: World) -> None:
    alice, proxy, first = invited(world, is_service=False)
    owner = Scripted(world, OWNER)
    proxy.says(302, "proxy", to=first, headers=TO_OWNER)
    owner.says(486, "owner", to=owner.got("INVITE")[0])
    assert [report.status for report in alice.all_of(SessionFailed)] == [486]
    assert len(proxy.got("INVITE")) == 1
