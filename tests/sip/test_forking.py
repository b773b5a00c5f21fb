"""A request to a user with several devices goes to all of them at once (RFC 3261 16.6 to 16.8; RFC 5393; C-20)."""

from __future__ import annotations

import pytest

from tests.sip.proxy_desk import BOB, NOW, Desk, answer, cancelled, responses, sip, statuses
from wanderbus.machine import CancelTimer, SetTimer, TimerFired
from wanderbus.sip.proxy.bindings import Binding
from wanderbus.sip.proxy.request_preparation import shares_of_breadth
from wanderbus.sip.proxy.response_forwarding import CHALLENGE_PATIENCE_S, SETTLING_S, TIMER_C_S
from wanderbus.sip.transaction.transaction_layer import CancelReceived, ForgetTransaction, TransactionTimedOut


def test_every_device_is_called_with_its_own_contact_and_timer() -> None:
    """RFC 3261 16.6: one copy for each target; each has its timer C."""
    desk = Desk(3)
    commands = desk.ask(sip())
    assert statuses(commands) == [100]
    timers = [command for command in commands if isinstance(command, SetTimer)]
    assert timers == [SetTimer(f"s1/{n}", NOW + TIMER_C_S) for n in range(3)]
    branches = desk.forked(sip(), "s2")
    assert [branch.request.uri for branch in branches] == [f"sip:bob@10.0.0.{n}:5062" for n in (2, 3, 4)]
    assert len({branch.transaction for branch in branches}) == 3


def test_the_first_to_accept_wins_and_the_others_are_cancelled_once() -> None:
    """RFC 3261 16.7 items 5 and 10."""
    desk = Desk(3)
    first, second, third = desk.forked(sip())
    commands = desk.step(answer(second, 200))
    assert statuses(commands) == [200]
    assert cancelled(commands) == [first.request.uri, third.request.uri]
    assert cancelled(desk.step(answer(second, 200))) == []
    assert statuses(desk.step(answer(first, 487), answer(third, 487))) == []
    assert desk.step(TimerFired("s1"), now=NOW + SETTLING_S) == [CancelTimer("s1")]
    assert len(desk.proxy) == 0


def test_a_second_device_that_accepts_is_passed_on_too() -> None:
    """RFC 3261 16.7 item 5, 13.2.2.4: the caller must receive it to end that dialog."""
    desk = Desk(2)
    first, second = desk.forked(sip())
    passed = responses(desk.step(answer(first, 200), answer(second, 200), answer(first, 200)))
    assert not [c for c in desk.step(answer(second, 200), now=NOW + 20) if isinstance(c, SetTimer)]
    assert [response.to.tag for response in passed] == ["s1-0", "s1-1", "s1-0"]


def test_no_ringing_is_passed_on_after_the_answer() -> None:
    desk = Desk(2)
    first, second = desk.forked(sip())
    desk.step(answer(first, 200))
    assert statuses(desk.step(answer(second, 180))) == []


def test_refusals_wait_for_the_last_device_and_one_is_passed_on() -> None:
    """RFC 3261 16.7 item 6."""
    desk = Desk(3)
    first, second, third = desk.forked(sip())
    assert statuses(desk.step(answer(first, 486), answer(second, 404))) == []
    assert statuses(desk.step(answer(third, 503))) == [486]
    assert len(desk.proxy) == 0


@pytest.mark.parametrize("telling", [415, 420, 484])
def test_a_refusal_with_advice_is_preferred(telling: int) -> None:
    """RFC 3261 16.7 item 6: among the 4xx."""
    desk = Desk(3)
    first, second, third = desk.forked(sip())
    desk.step(answer(first, 486), answer(second, telling))
    assert statuses(desk.step(answer(third, 500))) == [telling]


def test_a_device_is_reached_on_the_stream_that_it_keeps_open() -> None:
    """RFC 5626 5.3: for an INVITE to the user, for the ACK, and for a request to its contact within a dialog."""
    desk = Desk(0)
    contact = "sip:bob@10.0.0.2:5062;transport=tcp"
    desk.location.replace(BOB, [Binding(contact, 1000.0, "c", 1, connection=7)])
    (to_user,) = desk.forked(sip())
    (to_contact,) = desk.forked(sip("BYE", contact, to_tag="b"), "s2")
    (ack,) = desk.acked(sip("ACK", to_tag="b"))
    assert [to_user.connection, to_contact.connection, ack.connection] == [7, 7, 7]


def test_a_6xx_speaks_for_all_devices() -> None:
    """RFC 3261 16.7 item 5: the others are cancelled, and it is passed on when they have ended."""
    desk = Desk(2)
    first, second = desk.forked(sip())
    commands = desk.step(answer(first, 603))
    assert cancelled(commands) == [second.request.uri]
    assert statuses(commands) == []
    assert statuses(desk.step(answer(second, 487))) == [603]


def test_an_answer_that_crosses_a_6xx_is_passed_on() -> None:
    """RFC 3261 16.7 item 5: a 2xx always is."""
    desk = Desk(2)
    first, second = desk.forked(sip())
    assert statuses(desk.step(answer(first, 603), answer(second, 200))) == [200]


def test_a_cancel_of_the_caller_reaches_every_device_that_has_not_ended() -> None:
    """RFC 3261 16.10."""
    desk = Desk(3)
    first, second, third = desk.forked(sip())
    desk.step(answer(first, 486))
    commands = desk.step(CancelReceived("s1", sip("CANCEL")))
    assert cancelled(commands) == [second.request.uri, third.request.uri]
    assert statuses(desk.step(answer(second, 487))) == []
    assert len(statuses(desk.step(answer(third, 487)))) == 1


def test_a_device_that_ignores_the_cancel_is_given_up_as_487() -> None:
    """RFC 3261 9.1: after 64*T1; the caller has given up by then, so the status is not 408."""
    desk = Desk(1)
    (branch,) = desk.forked(sip())
    desk.step(CancelReceived("s1", sip("CANCEL")))
    commands = desk.step(TimerFired("s1/0"), now=NOW + SETTLING_S)
    assert statuses(commands) == [487]
    assert ForgetTransaction(branch.transaction) in commands


def test_a_device_that_rings_for_ever_is_cancelled_and_the_others_go_on() -> None:
    """RFC 3261 16.8: each branch has its own timer C, which restarts with every provisional response."""
    desk = Desk(2)
    first, second = desk.forked(sip())
    commands = desk.step(answer(second, 180), now=NOW + 100)
    assert SetTimer("s1/1", NOW + 100 + TIMER_C_S) in commands
    assert cancelled(desk.step(TimerFired("s1/0"), now=NOW + TIMER_C_S)) == [first.request.uri]
    assert statuses(desk.step(answer(second, 200), now=NOW + 200)) == [200]


def test_a_100_is_no_sign_that_prolongs_timer_c() -> None:
    """RFC 3261 16.7 item 2: 101 to 199 are."""
    desk = Desk(1)
    (branch,) = desk.forked(sip())
    assert desk.step(answer(branch, 100)) == []


def test_a_cancelled_device_that_rings_is_not_given_new_time() -> None:
    desk = Desk(1)
    (branch,) = desk.forked(sip())
    desk.step(CancelReceived("s1", sip("CANCEL")))
    assert not [command for command in desk.step(answer(branch, 180)) if isinstance(command, SetTimer)]


def test_a_device_that_cannot_be_reached_counts_as_503() -> None:
    """RFC 3261 16.9: at once; alone it becomes a 500 (16.7 item 6), with another response it has no effect."""
    desk = Desk(2)
    first, second = desk.forked(sip("MESSAGE"))
    assert statuses(desk.step(TransactionTimedOut(first.transaction, "transport"))) == []
    assert statuses(desk.step(answer(second, 404))) == [404]
    (alone,) = Desk(1).forked(sip())
    lonely = Desk(1)
    lonely.forked(sip())
    assert statuses(lonely.step(TransactionTimedOut(alone.transaction, "transport"))) == [500]


def test_all_challenges_come_in_one_answer() -> None:
    """RFC 3261 16.7 item 7."""
    desk = Desk(3)
    first, second, third = desk.forked(sip())
    desk.step(answer(first, 401, [("WWW-Authenticate", 'Digest realm="a", nonce="1"')]))
    desk.step(answer(second, 486))
    (response,) = responses(desk.step(answer(third, 407, [("Proxy-Authenticate", 'Digest realm="b", nonce="2"')])))
    assert response.status == 401
    assert response.header("WWW-Authenticate") == 'Digest realm="a", nonce="1"'
    assert response.header("Proxy-Authenticate") == 'Digest realm="b", nonce="2"'


@pytest.mark.parametrize("method", ["INVITE", "BYE"])
def test_a_challenge_does_not_wait_for_devices_that_are_dead(method: str) -> None:
    """A stale binding must not keep a user with a living device from being called for 32 s."""
    desk = Desk(2)
    first, second = desk.forked(sip(method))
    at = NOW + CHALLENGE_PATIENCE_S
    assert SetTimer("s1", at) in desk.step(answer(first, 401, [("WWW-Authenticate", "Digest x=y")]))
    commands = desk.step(TimerFired("s1"), now=at)
    assert statuses(commands) == [401]
    assert cancelled(commands) == ([second.request.uri] if method == "INVITE" else [])
    assert desk.step(answer(second, 486), now=at + 1) == ([CancelTimer("s1/1")] if method == "INVITE" else [])
    desk.step(TimerFired("s1"), now=at + SETTLING_S)
    assert len(desk.proxy) == 0


def test_a_challenge_waits_for_a_device_that_rings() -> None:
    """RFC 3261 16.7 item 6."""
    desk = Desk(2)
    first, second = desk.forked(sip())
    desk.step(answer(second, 180), answer(first, 401))
    assert statuses(desk.step(TimerFired("s1"), now=NOW + CHALLENGE_PATIENCE_S)) == []
    assert statuses(desk.step(answer(second, 200))) == [200]


def test_another_refusal_waits_for_silent_devices() -> None:
    """They may be asleep, and there is no second call to them."""
    desk = Desk(2)
    first, _ = desk.forked(sip())
    assert not [command for command in desk.step(answer(first, 486)) if isinstance(command, SetTimer)]


def test_nothing_is_kept_of_an_answered_call_whose_losers_stay_silent() -> None:
    """A cancelled branch without an end is forgotten by the layer too."""
    desk = Desk(2)
    first, second = desk.forked(sip())
    desk.step(answer(second, 180), answer(first, 200))
    commands = desk.step(TimerFired("s1"), now=NOW + SETTLING_S)
    assert ForgetTransaction(second.transaction) in commands
    assert CancelTimer("s1/1") in commands
    assert len(desk.proxy) == 0


def test_the_first_final_answer_to_a_request_that_is_no_invite_is_the_last() -> None:
    """RFC 3261 16.7 item 5: 2xx is forwarded at once; later responses are discarded."""
    desk = Desk(2)
    first, second = desk.forked(sip("MESSAGE"))
    assert statuses(desk.step(answer(first, 200))) == [200]
    assert desk.step(answer(second, 200)) == []
    assert len(desk.proxy) == 0


def test_silence_of_all_but_one_device_gives_the_answer_of_that_one() -> None:
    """RFC 3261 16.7 item 6: for INVITE a silent device counts as 408, which is less informative than any other 4xx."""
    desk = Desk(2)
    first, second = desk.forked(sip())
    desk.step(TransactionTimedOut(second.transaction))
    assert statuses(desk.step(answer(first, 486))) == [486]


def test_an_ack_goes_to_every_device() -> None:
    """RFC 3261 16.11: only the device with that dialog takes it; a user agent ignores any other."""
    acks = Desk(2).acked(sip("ACK", to_tag="b"))
    assert [ack.request.uri for ack in acks] == ["sip:bob@10.0.0.2:5062", "sip:bob@10.0.0.3:5062"]


def test_breadth_is_divided_among_the_branches() -> None:
    """RFC 5393 5.3.3: 60 if the request has no Max-Breadth; the branches get all of it."""
    assert [b.request.header("Max-Breadth") for b in Desk(3).forked(sip())] == ["20", "20", "20"]
    limited = sip("INVITE", BOB, ("Max-Breadth", "5"))
    assert [b.request.header("Max-Breadth") for b in Desk(3).forked(limited)] == ["2", "2", "1"]


@pytest.mark.parametrize(("breadth", "status"), [("2", 440), ("0", 440), ("x", 400)])
def test_a_request_that_may_not_fork_so_wide_is_refused(breadth: str, status: int) -> None:
    """RFC 5393 5.3.3: a ring of users who forward to each other must not multiply requests without end."""
    assert Desk(3).refused(sip("INVITE", BOB, ("Max-Breadth", breadth))).status == status


@pytest.mark.parametrize(("breadth", "branches"), [(60, 1), (60, 7), (16, 16), (17, 16)])
def test_shares_of_breadth_are_even_and_complete(breadth: int, branches: int) -> None:
    shares = shares_of_breadth(sip("INVITE", BOB, ("Max-Breadth", str(breadth))), branches)
    assert shares is not None
    assert sum(shares) == breadth
    assert max(shares) - min(shares) <= 1
