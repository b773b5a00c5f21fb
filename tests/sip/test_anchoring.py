"""Calls through a media relay: messages that wait for the relay, their order, and its release (SPEC I; RFC 3264)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tests.sip.phone_world import BOB, CountingRandom, Phone, World
from tests.sip.proxy_desk import Desk, Script, answer, responses, sent, sip, statuses
from wanderbus.machine import Address, DatagramReceived, SendDatagram
from wanderbus.relay import ng
from wanderbus.relay.ng_client import RelayDriver
from wanderbus.sip.message.message import Request, encode_message, make_response
from wanderbus.sip.proxy import media_queue
from wanderbus.sip.proxy import proxy as proxy_module
from wanderbus.sip.proxy.anchoring import Describe, Described, RelayCalls, Release
from wanderbus.sip.proxy.bindings import Binding
from wanderbus.sip.proxy.proxy_signals import Command
from wanderbus.sip.proxy.routing_script import Forward
from wanderbus.sip.transaction.transaction_layer import (
    CancelReceived,
    Respond,
    ResponseReceived,
    SendRequest,
    TransactionTimedOut,
)

SDP = ("Content-Type", "application/sdp")
OFFER = b"v=0\r\no=offer\r\n"
WANTS_RELAY = OFFER + b"m=application 7 UDP x-wanderbus\r\na=wanderbus-relay\r\n"
BY_RELAY = b"v=0\r\no=relay\r\n"
CONTACT = ("Contact", "<sip:alice@10.0.0.1:7>")
BEHIND_NAT = ("Contact", "<sip:alice@172.16.0.1:7>")
OUTSIDE: Address = ("192.0.2.11", 40001)


def offering(
    method: str = "INVITE",
    uri: str = BOB,
    *extra: tuple[str, str],
    to_tag: str | None = None,
    contact: tuple[str, str] = BEHIND_NAT,
) -> Request:
    request = sip(method, uri, contact, SDP, *extra, to_tag=to_tag)
    return msgspec.structs.replace(request, body=OFFER)


def asking_for_a_relay() -> Request:
    return msgspec.structs.replace(offering(contact=CONTACT), body=WANTS_RELAY)


def answering(
    branch: SendRequest, status: int, body: bytes = b"v=0\r\no=answer\r\n", **options: str
) -> ResponseReceived:
    said = answer(branch, status, [SDP, ("Contact", options.get("contact", "<sip:bob@10.0.0.2:5062>"))])
    response = msgspec.structs.replace(said.response, body=body)
    return ResponseReceived(said.transaction, response, ("10.0.0.2", 5062))


def asked(commands: Sequence[Command]) -> list[Describe]:
    return [command for command in commands if isinstance(command, Describe)]


def released(commands: Sequence[Command]) -> list[Release]:
    return [command for command in commands if isinstance(command, Release)]


class Anchor:
    """A proxy with a relay whose descriptions the test gives."""

    def __init__(self, desk: Desk | None = None) -> None:
        self.desk = desk or Desk(relay="nat")

    def invite(self, request: Request | None = None, transaction: str = "s1") -> list[SendRequest]:
        """Forward an offer as the relay describes it."""
        (wish,) = asked(self.desk.ask(request or offering(), transaction))
        return sent(self.describe(wish.key))

    def describe(self, key: str, sdp: bytes | None = BY_RELAY) -> list[Command]:
        return self.desk.step(Described(key, sdp))


@pytest.fixture
def anchor() -> Anchor:
    return Anchor()


def route(desk: Desk) -> tuple[str, str]:
    """Return the Route of a dialog that the proxy stays with."""
    (branch,) = Anchor(desk).invite(transaction="first")
    desk.step(answer(branch, 200))
    return "Route", branch.request.headers_all("Record-Route")[0]


class TestOffers:
    def test_an_offer_waits_for_the_relay(self, anchor: Anchor) -> None:
        commands = anchor.desk.ask(offering())
        assert statuses(commands) == [100]
        assert sent(commands) == []
        assert asked(commands) == [Describe("s1", "offer", OFFER, "call-1", "a", "", "10.0.0.1")]
        (branch,) = sent(anchor.describe("s1"))
        assert branch.request.body == BY_RELAY
        assert branch.request.header("Content-Type") == "application/sdp"
        assert len(branch.request.record_routes) == 1

    def test_without_a_relay_it_goes_nowhere(self, anchor: Anchor) -> None:
        anchor.desk.ask(offering())
        commands = anchor.describe("s1", None)
        (refused,) = responses(commands)
        assert (refused.status, refused.reason) == (503, "Media Relay Unreachable")
        assert sent(commands) == []
        assert released(commands) == []
        assert len(anchor.desk.proxy) == 0

    def test_all_its_branches_have_the_same_description(self) -> None:
        branches = Anchor(Desk(3, relay="nat")).invite()
        assert [branch.request.body for branch in branches] == [BY_RELAY] * 3

    def test_a_cancel_while_it_waits(self, anchor: Anchor) -> None:
        """The relay may have the offer already: its call is released, and its description is discarded."""
        request = offering()
        anchor.desk.ask(request)
        commands = anchor.desk.step(CancelReceived("s1", sip("CANCEL")))
        assert statuses(commands) == [487]
        assert released(commands) == [Release("call-1", "a")]
        assert anchor.describe("s1") == []
        assert len(anchor.desk.proxy) == 0

    def test_a_cancelled_offer_within_a_call_ends_nothing_that_was_answered(self, anchor: Anchor) -> None:
        anchor.desk.ask(offering("INVITE", "sip:bob@10.0.0.2:5062", to_tag="b"))
        commands = anchor.desk.step(CancelReceived("s1", sip("CANCEL")))
        assert statuses(commands) == [487]
        assert released(commands) == [Release("call-1", "a", unless_answered=True)]

    def test_an_update_that_waited_too_long_is_forgotten(self, anchor: Anchor) -> None:
        """RFC 4320 4.2."""
        commands = anchor.desk.ask(offering("UPDATE", "sip:bob@10.0.0.2:5062", to_tag="b"))
        assert statuses(commands) == []
        assert anchor.desk.step(TransactionTimedOut("s1")) == [Release("call-1", "a", unless_answered=True)]
        assert anchor.describe("s1") == []
        assert len(anchor.desk.proxy) == 0

    def test_those_that_wait_are_under_way(self, anchor: Anchor, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(proxy_module, "PROXIED_TRANSACTIONS_MAX", 2)
        anchor.desk.ask(offering(), "s1")
        anchor.invite(transaction="s2")
        assert len(anchor.desk.proxy) == 2
        assert statuses(anchor.desk.ask(offering(), "s3")) == [503]
        assert statuses(anchor.desk.ask(sip(), "s4")) == [503]

    def test_an_unforwardable_offer_releases_the_relay(self) -> None:
        desk = Desk(1, Script(Forward(targets=("sip:bob@a.host.name",), relay=True)), relay="nat")
        desk.ask(offering())
        commands = desk.step(Described("s1", BY_RELAY))
        assert statuses(commands) == [502]
        assert released(commands) == [Release("call-1", "a")]
        assert len(desk.proxy) == 0

    @pytest.mark.parametrize(
        "request_",
        [
            sip("INVITE", BOB, BEHIND_NAT),
            msgspec.structs.replace(sip("INVITE", BOB, BEHIND_NAT, ("Content-Type", "text/plain")), body=OFFER),
            msgspec.structs.replace(sip("INVITE", BOB, BEHIND_NAT, SDP, ("Content-Encoding", "gzip")), body=OFFER),
            msgspec.structs.replace(sip("MESSAGE", BOB, BEHIND_NAT, SDP), body=OFFER),
        ],
    )
    def test_messages_without_an_offer_pass(self, anchor: Anchor, request_: Request) -> None:
        (branch,) = anchor.desk.forked(request_)
        assert branch.request.body == request_.body


class TestWhichCalls:
    @pytest.mark.parametrize(
        ("contact", "calls", "verdict", "anchored"),
        [
            (CONTACT, "nat", Forward(), False),
            (BEHIND_NAT, "nat", Forward(), True),
            (CONTACT, "all", Forward(), True),
            (CONTACT, "nat", Forward(relay=True), True),
            (BEHIND_NAT, "nat", Forward(relay=False), False),
            (BEHIND_NAT, "all", Forward(relay=False), False),
            (BEHIND_NAT, None, Forward(relay=True), False),
        ],
    )
    def test_setting_and_script(
        self, contact: tuple[str, str], calls: str | None, verdict: Forward, anchored: bool
    ) -> None:
        desk = Desk(1, Script(verdict), calls)  # type: ignore[arg-type]
        commands = desk.ask(offering(contact=contact))
        assert bool(asked(commands)) is anchored
        if anchored:
            (branch,) = sent(desk.step(Described("s1", BY_RELAY)))
            assert len(branch.request.record_routes) == 1, "or nobody would tell the relay of the end"
        else:
            assert sent(commands)[0].request.body == OFFER

    @pytest.mark.parametrize("relay", ["nat", None])
    def test_a_requested_relay_is_used_without_nat(self, relay: RelayCalls | None) -> None:
        commands = Desk(relay=relay).ask(asking_for_a_relay())
        assert [wish.source_ip for wish in asked(commands)] == ([""] if relay else [])
        assert len(sent(commands)) == (0 if relay else 1)

    def test_a_script_may_refuse_one(self) -> None:
        desk = Desk(relay="nat", routing=Script(Forward(relay=False)))
        assert asked(desk.ask(asking_for_a_relay())) == []

    def test_a_requested_relay_that_does_not_answer_is_left_out(self, anchor: Anchor) -> None:
        anchor.desk.ask(asking_for_a_relay())
        commands = anchor.describe("s1", None)
        (branch,) = sent(commands)
        assert branch.request.body == WANTS_RELAY
        assert responses(commands) == []
        anchor.desk.step(answering(branch, 200))
        assert len(anchor.desk.proxy._media._under_way) == 0

    @pytest.mark.parametrize("body", [b"v=0\r\na=wanderbus-relays\r\n", b"v=0\r\ns=a=wanderbus-relay\r\n"])
    def test_only_the_attribute_asks_for_one(self, body: bytes) -> None:
        request = msgspec.structs.replace(offering(contact=CONTACT), body=body)
        assert asked(Desk(relay="nat").ask(request)) == []

    def test_a_called_device_behind_nat_is_enough(self) -> None:
        desk = Desk(relay="nat")
        contacts = ("sip:bob@10.0.0.2", "sip:bob@172.16.0.9;alias=192.0.2.11~40001~1")
        desk.location.replace(BOB, [Binding(contact, 1000.0, contact, 1) for contact in contacts])
        (wish,) = asked(desk.ask(offering(contact=CONTACT)))
        assert wish.source_ip == ""

    def test_the_proxy_stays_on_the_path_with_a_relay(self) -> None:
        """I-07: a side may move behind NAT later."""
        for calls, recorded in (("nat", 1), (None, 0)):
            desk = Desk(relay=calls)  # type: ignore[arg-type]
            (branch,) = desk.forked(offering(contact=CONTACT))
            assert len(branch.request.record_routes) == recorded

    def test_a_script_receives_the_call(self) -> None:
        script = Script(Forward())
        Desk(1, script, "nat").ask(offering())
        Desk(1, script).ask(offering(contact=CONTACT))
        assert [(context.behind_nat, context.relay) for _, context in script.asked] == [(True, True), (False, False)]

    def test_offers_passed_on_by_another_proxy_are_left_alone(self) -> None:
        desk = Desk(relay="nat")
        request = offering().with_first("Via", "SIP/2.0/UDP 203.0.113.1;branch=z9hG4bKedge")
        assert len(desk.forked(request)) == 1
        (wish,) = asked(Desk(relay="all").ask(request))
        assert wish.source_ip == ""


class TestAnswers:
    def test_an_answer_waits_too(self, anchor: Anchor) -> None:
        (branch,) = anchor.invite()
        commands = anchor.desk.step(answering(branch, 200))
        assert responses(commands) == []
        assert asked(commands) == [Describe("s1/answer-1", "answer", b"v=0\r\no=answer\r\n", "call-1", "a", "s1-0", "")]
        (passed,) = responses(anchor.describe("s1/answer-1"))
        assert (passed.status, passed.body, len(passed.vias)) == (200, BY_RELAY, 1)

    def test_one_that_the_relay_does_not_describe_passes_as_it_came(self, anchor: Anchor) -> None:
        (branch,) = anchor.invite()
        (wish,) = asked(anchor.desk.step(answering(branch, 200)))
        (passed,) = responses(anchor.describe(wish.key, None))
        assert passed.body == b"v=0\r\no=answer\r\n"

    def test_the_relay_receives_the_source_of_its_device(self, anchor: Anchor) -> None:
        (branch,) = anchor.invite()
        said = answering(branch, 200, contact="<sip:bob@172.16.0.9>")
        (wish,) = asked(anchor.desk.step(msgspec.structs.replace(said, source=OUTSIDE)))
        assert wish.source_ip == OUTSIDE[0]

    def test_responses_to_a_caller_stay_in_order(self) -> None:
        first = Anchor(Desk(2, relay="nat"))
        branches = first.invite()
        (early,) = asked(first.desk.step(answering(branches[0], 183, b"v=0\r\no=early\r\n")))
        (other,) = asked(first.desk.step(answering(branches[1], 183, b"v=0\r\no=other\r\n")))
        assert responses(first.desk.step(answer(branches[0], 180))) == []
        (last,) = asked(first.desk.step(answering(branches[0], 200)))
        assert first.describe(last.key) == first.describe(other.key) == []
        passed = responses(first.describe(early.key))
        assert [response.status for response in passed] == [183, 183, 180, 200]
        assert [response.body for response in passed] == [BY_RELAY, BY_RELAY, b"", BY_RELAY]

    def test_a_refusal_does_not_overtake_an_early_answer(self, anchor: Anchor) -> None:
        (branch,) = anchor.invite()
        (early,) = asked(anchor.desk.step(answering(branch, 183)))
        assert responses(anchor.desk.step(answer(branch, 486))) == []
        assert [response.status for response in responses(anchor.describe(early.key))] == [183, 486]

    def test_others_need_not_wait(self, anchor: Anchor) -> None:
        (branch,) = anchor.invite()
        anchor.desk.step(answering(branch, 200))
        assert statuses(anchor.desk.ask(sip("OPTIONS", "sip:example.org"), "s2")) == [200]

    def test_a_200_that_is_repeated_is_described_again(self, anchor: Anchor) -> None:
        """RFC 3261 13.3.1.4: the caller has received none of them yet, so it must be able to use each."""
        (branch,) = anchor.invite()
        for number in (1, 2):
            (wish,) = asked(anchor.desk.step(answering(branch, 200)))
            assert wish.key == f"s1/answer-{number}"
            again = anchor.desk.step(answering(branch, 200))
            assert (asked(again), responses(again)) == ([], []), "one that waits already is not asked for twice"
            assert [response.body for response in responses(anchor.describe(wish.key))] == [BY_RELAY]

    def test_the_line_is_bounded(self, anchor: Anchor) -> None:
        (branch,) = anchor.invite()
        for number in range(media_queue.RESPONSES_HELD_MAX):
            assert len(asked(anchor.desk.step(answering(branch, 183, b"v=%d" % number)))) == 1
        assert asked(anchor.desk.step(answering(branch, 183, b"v=x"))) == []
        anchor.desk.step(*[answer(branch, 180)] * 50)
        anchor.desk.step(answer(branch, 486))
        for number in range(1, media_queue.RESPONSES_HELD_MAX + 1):
            passed = responses(anchor.describe(f"s1/answer-{number}"))
        assert [response.status for response in passed] == [183, 486]

    def test_a_late_offer_and_its_answer_pass_as_they_are(self, anchor: Anchor) -> None:
        """The 200 offers, and the ACK answers."""
        (branch,) = anchor.desk.forked(sip("INVITE", BOB, BEHIND_NAT))
        (passed,) = responses(anchor.desk.step(answering(branch, 200)))
        assert passed.body == b"v=0\r\no=answer\r\n"

    def test_an_answer_without_description_passes(self, anchor: Anchor) -> None:
        (branch,) = anchor.invite()
        assert statuses(anchor.desk.step(answer(branch, 180))) == [180]

    def test_an_update_is_answered_after_it_is_forgotten(self, anchor: Anchor) -> None:
        (branch,) = anchor.invite(offering("UPDATE", "sip:bob@10.0.0.2:5062", to_tag="b"))
        (wish,) = asked(anchor.desk.step(answering(branch, 200)))
        assert len(anchor.desk.proxy) == 0
        assert [response.body for response in responses(anchor.describe(wish.key))] == [BY_RELAY]

    def test_an_offer_of_the_called_side(self, anchor: Anchor) -> None:
        """The tags are those of the offerer and of the answerer, whichever of them made the call."""
        back = route(anchor.desk)
        request = offering("INVITE", "sip:alice@172.16.0.1:7;alias=192.0.2.11~40001~1", back, contact=CONTACT)
        request = request.replacing("From", f"<{BOB}>;tag=b").replacing("To", "<sip:alice@example.org>;tag=a")
        (wish,) = asked(anchor.desk.ask(request))
        assert (wish.from_tag, wish.to_tag, wish.source_ip) == ("b", "a", "")
        (branch,) = sent(anchor.describe(wish.key))
        said = answering(branch, 200, contact="<sip:alice@172.16.0.1:7>")
        (wish,) = asked(anchor.desk.step(msgspec.structs.replace(said, source=OUTSIDE)))
        assert (wish.from_tag, wish.to_tag, wish.source_ip) == ("b", "a", OUTSIDE[0])


class TestTheEnd:
    def test_a_bye_lets_the_relay_go(self, anchor: Anchor) -> None:
        back = route(anchor.desk)
        commands = anchor.desk.ask(sip("BYE", "sip:bob@10.0.0.2:5062", back, to_tag="b"))
        assert len(sent(commands)) == 1
        assert released(commands) == [Release("call-1", "a", "b")]

    def test_a_bye_that_goes_nowhere_does_not(self, anchor: Anchor) -> None:
        assert released(anchor.desk.ask(sip("BYE", "sip:x@10.9.9.9", to_tag="b"))) == []

    def test_a_bye_without_the_tags_of_both_does_not(self, anchor: Anchor) -> None:
        """The Call-ID alone is not enough to end a call."""
        back = route(anchor.desk)
        request = sip("BYE", "sip:bob@10.0.0.2:5062", back)
        assert released(anchor.desk.ask(request)) == []
        assert released(anchor.desk.ask(request.replacing("From", f"<{BOB}>"), "s2")) == []

    def test_without_relays_no_command_is_sent(self) -> None:
        desk = Desk(1, Script(Forward(stay_on_path=True)))
        (branch,) = desk.forked(offering(), "first")
        back = "Route", branch.request.headers_all("Record-Route")[0]
        assert released(desk.ask(sip("BYE", "sip:bob@10.0.0.2:5062", back, to_tag="b"))) == []

    def test_a_move_out_of_nat_releases_the_relay_after_the_answer(self, anchor: Anchor) -> None:
        back = route(anchor.desk)
        request = offering("INVITE", "sip:bob@10.0.0.2:5062", back, to_tag="b", contact=CONTACT)
        commands = anchor.desk.ask(request)
        (branch,) = sent(commands)
        assert branch.request.body == OFFER
        assert released(commands) == released(anchor.desk.step(answer(branch, 180))) == []
        said = answering(branch, 200)
        commands = anchor.desk.step(said)
        assert released(commands) == [Release("call-1", "a", "b")]
        assert [response.body for response in responses(commands)] == [b"v=0\r\no=answer\r\n"]
        assert released(anchor.desk.step(said)) == []

    def test_a_refused_offer_leaves_the_call_unchanged(self, anchor: Anchor) -> None:
        back = route(anchor.desk)
        (branch,) = anchor.desk.forked(offering("INVITE", BOB, back, to_tag="b", contact=CONTACT))
        assert released(anchor.desk.step(answer(branch, 488))) == []

    @pytest.mark.parametrize("status", [486, 603, 401, 407])
    def test_a_call_that_is_refused_needs_no_relay(self, anchor: Anchor, status: int) -> None:
        """Nor does one that is challenged, or strangers would hold the ports of all others."""
        (branch,) = anchor.invite()
        assert released(anchor.desk.step(answer(branch, status))) == [Release("call-1", "a")]

    def test_a_call_that_nobody_answers_needs_none(self, anchor: Anchor) -> None:
        (branch,) = anchor.invite()
        assert released(anchor.desk.step(TransactionTimedOut(branch.transaction))) == [Release("call-1", "a")]

    @pytest.mark.parametrize("status", [401, 420, 481, 491])
    def test_a_refused_offer_within_a_call_ends_nothing_that_was_answered(self, anchor: Anchor, status: int) -> None:
        """Anybody can write a To tag: without such a call, the relay keeps nothing."""
        (branch,) = anchor.invite(offering("INVITE", BOB, to_tag="b"))
        commands = anchor.desk.step(answer(branch, status))
        assert released(commands) == [Release("call-1", "a", unless_answered=True)]

    def test_i07_an_offer_that_crossed_one_of_the_other_side_ends_nothing(self, anchor: Anchor) -> None:
        """A proxy that has restarted does not know whether the call was answered."""
        first = offering("INVITE", BOB, to_tag="b")
        (branch,) = anchor.invite(first)
        crossing = first.replacing("From", "<sip:bob@a.test>;tag=b").replacing("To", "<sip:alice@a.test>;tag=a")
        (other,) = anchor.invite(crossing, "s2")
        assert released(anchor.desk.step(answer(branch, 491))) == []
        assert released(anchor.desk.step(answer(other, 488))) == [Release("call-1", "b", unless_answered=True)]

    def test_a_request_without_a_tag_ends_nothing(self, anchor: Anchor) -> None:
        """A relay would take that for the whole call, whoever is in it."""
        anchor.desk.ask(offering().replacing("From", "<sip:alice@example.org>"))
        assert released(anchor.desk.step(CancelReceived("s1", sip("CANCEL")))) == []

    def test_an_update_that_nobody_answers_keeps_nothing_either(self, anchor: Anchor) -> None:
        (branch,) = anchor.invite(offering("UPDATE", BOB, to_tag="b"))
        commands = anchor.desk.step(TransactionTimedOut(branch.transaction))
        assert released(commands) == [Release("call-1", "a", unless_answered=True)]

    def test_each_caller_of_one_call_id_is_let_go(self, anchor: Anchor) -> None:
        """Other transactions with that Call-ID make no difference."""
        other = offering().replacing("From", "<sip:alice@example.org>;tag=a2")
        (first,), (second,) = anchor.invite(), anchor.invite(other, "s2")
        assert released(anchor.desk.step(answer(first, 401))) == [Release("call-1", "a")]
        assert released(anchor.desk.step(answer(second, 401))) == [Release("call-1", "a2")]

    def test_a_repeated_call_from_elsewhere_keeps_the_relay(self, anchor: Anchor) -> None:
        """A caller that moved before it was answered repeats its INVITE, and the first one is refused."""
        (first,) = anchor.invite(transaction="s1")
        (second,) = anchor.invite(transaction="s2")
        assert released(anchor.desk.step(answer(first, 487))) == []
        assert released(anchor.desk.step(answer(second, 486))) == [Release("call-1", "a")]


class TestTheServer:
    RELAY: Address = ("192.0.2.200", 2223)

    def test_joins_proxy_and_relay(self) -> None:
        """Datagrams on "ng", retransmission timers, and a call whose two descriptions are the relay's."""
        world = World(media=RelayDriver([self.RELAY], CountingRandom()), relay_calls="all")
        alice, bob = Phone(world, "alice", ("198.51.100.1", 6000)), Phone(world, "bob", ("198.51.100.2", 7000))
        assert bob.register().status == 200
        commands: list[ng.Command] = []

        def perform(given: DatagramReceived) -> None:
            outputs = world.server.step([given], world.now)
            for output in outputs:
                if isinstance(output, SendDatagram) and output.socket == "ng":
                    assert output.destination == self.RELAY
                    commands.append(ng.read_command(output.data))
            world.perform([o for o in outputs if not (isinstance(o, SendDatagram) and o.socket == "ng")])

        def reply() -> None:
            data = ng.write_reply(commands.pop().cookie, {"result": "ok", "sdp": BY_RELAY.decode()})
            perform(DatagramReceived("ng", self.RELAY, data))

        world.know(alice.address)
        request = alice.request("INVITE", BOB, SDP)
        perform(DatagramReceived("sip", alice.address, encode_message(Request("INVITE", BOB, request.headers, OFFER))))
        assert alice.statuses() == [100]
        assert bob.take() == []
        assert any(key[0] == "media" for key in world.timers if isinstance(key, tuple))
        reply()
        assert not any(key[0] == "media" for key in world.timers if isinstance(key, tuple))
        received = bob.taken_request()
        assert received.body == BY_RELAY
        said = make_response(received, 200, to_tag="b", headers=[("Contact", bob.contact), SDP], body=OFFER)
        perform(DatagramReceived("sip", bob.address, encode_message(said)))
        reply()
        (passed,) = alice.take()
        assert passed.body == BY_RELAY

    def test_a_server_without_relays_ignores_that_socket(self) -> None:
        world = World()
        assert world.server.step([DatagramReceived("ng", self.RELAY, b"1 de")], world.now) == []


def test_each_transaction_has_its_own_line() -> None:
    anchor = Anchor()
    (one,), (two,) = anchor.invite(transaction="s1"), anchor.invite(transaction="s2")
    (first,) = asked(anchor.desk.step(answering(one, 200)))
    (second,) = asked(anchor.desk.step(answering(two, 200)))
    passed = anchor.describe(second.key)
    assert [command.transaction for command in passed if isinstance(command, Respond)] == ["s2"]
    assert len(responses(anchor.describe(first.key))) == 1
