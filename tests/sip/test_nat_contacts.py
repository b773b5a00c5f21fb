"""Signalling through NAT: the alias in a Contact, and the way back that it is (SPEC I; RFC 3581; RFC 5626 4.4, 5.3)."""

from __future__ import annotations

from random import Random

import pytest

from tests.sip.phone_world import BOB, PASSWORDS, SERVER, CountingRandom, Phone, World
from tests.sip.proxy_desk import Desk, Script, answer, responses, sip
from wanderbus.errors import SIPParseError
from wanderbus.machine import (
    Address,
    DatagramReceived,
    Output,
    SendDatagram,
    SendOnStream,
    StreamClosed,
    StreamReceived,
)
from wanderbus.sip.authentication.digest import DigestClient
from wanderbus.sip.message.headers import NameAddr
from wanderbus.sip.message.message import Message, Request, Response, encode_message, make_response, parse_message
from wanderbus.sip.message.targets import Target, Transport
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy.bindings import Binding
from wanderbus.sip.proxy.nat_contacts import alias_target, is_behind_nat, marked
from wanderbus.sip.proxy.routing_script import Forward, Redirect
from wanderbus.sip.proxy.sip_server import SIPServer
from wanderbus.sip.transaction.transaction_layer import RequestReceived, ResponseReceived, SendRequest

INSIDE: Address = ("10.0.0.5", 5060)
OUTSIDE: Address = ("192.0.2.11", 40001)
ELSEWHERE: Address = ("192.0.2.99", 40002)


class NATPhone(Phone):
    """A phone that is seen at another address than its own."""

    def __init__(self, world: World, user: str, seen_at: Address = OUTSIDE, device: str = "") -> None:
        super().__init__(world, user, INSIDE)
        self.seen_at = seen_at
        self.device = device

    def request(self, method: str, uri: str, *extra: tuple[str, str], to: str | None = None) -> Request:
        agent = ("User-Agent", "a phone whose name is long enough for a challenge")
        request = super().request(method, uri, *extra, agent, to=to)
        branch = f"{request.via.branch}{self.seen_at[1]}{self.device}"
        request = request.replacing("Via", str(request.via.with_param("branch", branch)))
        return request.replacing("Call-ID", f"{request.call_id}{self.device}")

    def send(self, message: Message) -> None:
        self.world.send(self.seen_at, encode_message(message))

    def take(self) -> list[Message]:
        return self.world.messages_at(self.seen_at)

    def register_plainly(self, expires_s: int = 60) -> Response:
        """Register without naming the device."""
        while True:
            request = self.request("REGISTER", "sip:example.org", ("Expires", str(expires_s)), to=f"<{BOB}>")
            self.send(self.digest.authorize(request))
            (response,) = self.take()
            assert isinstance(response, Response)
            if response.status != 401 or not self.digest.learn(response):
                return response


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def alice(world: World) -> Phone:
    return Phone(world, "alice", ("198.51.100.1", 6000))


@pytest.fixture
def bob(world: World) -> NATPhone:
    phone = NATPhone(world, "bob")
    assert phone.register().status == 200
    return phone


def contacts(world: World) -> tuple[str, ...]:
    return world.server.location.contacts(BOB, world.now)


def invite(contact: str = "<sip:alice@10.0.0.5:5060>") -> Request:
    return sip("INVITE", BOB, ("Contact", contact))


class TestTheAlias:
    @pytest.mark.parametrize(
        ("contact", "source", "transport", "expected"),
        [
            ("<sip:a@10.0.0.5:5060>", OUTSIDE, "UDP", "<sip:a@10.0.0.5:5060;alias=192.0.2.11~40001~1>"),
            ("<sip:a@10.0.0.5>;expires=5", OUTSIDE, "TCP", "<sip:a@10.0.0.5;alias=192.0.2.11~40001~2>;expires=5"),
            ("<sips:a@10.0.0.5>", OUTSIDE, "TLS", "<sips:a@10.0.0.5;alias=192.0.2.11~40001~3>"),
            ("<sip:a@10.0.0.5>", ("2001:db8::1", 7), "UDP", "<sip:a@10.0.0.5;alias=[2001:db8::1]~7~1>"),
            ("<sip:a@10.0.0.5;alias=203.0.113.6~6~1;x>", OUTSIDE, "UDP", "<sip:a@10.0.0.5;x;alias=192.0.2.11~40001~1>"),
            ("<sip:a@0.0.0.0>", OUTSIDE, "UDP", "<sip:a@0.0.0.0;alias=192.0.2.11~40001~1>"),
            ("<sip:a@192.0.2.11;%61Lias=203.0.113.6~6~1>", OUTSIDE, "UDP", "<sip:a@192.0.2.11>"),
        ],
    )
    def test_content_of_a_contact(self, contact: str, source: Address, transport: Transport, expected: str) -> None:
        """An alias that the sender wrote itself is removed, also when none is needed."""
        assert marked(invite(contact), source, transport).header("Contact") == expected

    @pytest.mark.parametrize(
        ("contact", "source"),
        [
            ("<sip:a@192.0.2.11:5060>", OUTSIDE),
            ("<sip:a@127.0.0.1:5060>", ("127.0.0.1", 9999)),
            ("<sip:a@192.0.2.11>", ("::ffff:192.0.2.11", 9)),
            ("<sip:a@[2001:db8:0::1]>", ("2001:db8::1", 9)),
            ("<sip:a@[fe80::1]>", ("fe80::1%eth0", 9)),
            ("<sip:a@phone.example.org>", OUTSIDE),
            ("<tel:+1234>", OUTSIDE),
            ("*", OUTSIDE),
        ],
    )
    def test_senders_that_are_not_behind_nat(self, contact: str, source: Address) -> None:
        """The same IP address with any port; a host name gives no evidence, and is left unchanged."""
        request = invite(contact)
        assert marked(request, source, "UDP") is request
        assert not is_behind_nat(request, source)

    def test_sips_is_not_led_over_anything_but_tls(self) -> None:
        """RFC 3261 26.2.2."""
        request = invite("<sips:a@10.0.0.5;alias=192.0.2.1~1~1>")
        assert marked(request, OUTSIDE, "UDP").header("Contact") == "<sips:a@10.0.0.5>"
        assert alias_target(SIPUri.parse("sips:a@10.0.0.5;alias=192.0.2.1~1~1")) is None
        assert alias_target(SIPUri.parse("sips:a@10.0.0.5;alias=192.0.2.1~1~3")) == Target("TLS", ("192.0.2.1", 1))

    def test_each_of_several_contacts_is_judged(self) -> None:
        request = invite('"A, B" <sip:a@10.0.0.5>;q=0.5, <sip:a@192.0.2.11>')
        assert marked(request, OUTSIDE, "UDP").headers_all("Contact") == [
            '"A, B" <sip:a@10.0.0.5;alias=192.0.2.11~40001~1>;q=0.5',
            "<sip:a@192.0.2.11>",
        ]

    @pytest.mark.parametrize("text", ["[2001:db8::1]~7~1", "2001:db8::1~7~1"])
    def test_ipv6_is_read_with_and_without_brackets(self, text: str) -> None:
        assert alias_target(SIPUri.parse(f"sip:a@10.0.0.5;alias={text}")) == Target("UDP", ("2001:db8::1", 7))

    @pytest.mark.parametrize(
        "text",
        [
            "192.0.2.1~0~1",
            "192.0.2.1~000~1",
            "192.0.2.1~65536~1",
            "192.0.2.1~-1~1",
            "192.0.2.1~+1~1",
            "192.0.2.1~1~0",
            "192.0.2.1~1~4",
            "192.0.2.1~1~01",
            "192.0.2.1~1",
            "192.0.2.1~1~1~1",
            "192.0.2.1",
            "~~",
            "host.example.org~1~1",
            "192.0.2~1~1",
            "192.0.2.01~1~1",
            "224.0.0.1~1~1",
            "0.0.0.0~1~1",
            "[::]~1~1",
            "[ff02::1]~1~1",
            "[fe80::1%25]~1~1",
            "[192.0.2.1~1~1",
            "192.0.2.1~" + "9" * 5000 + "~1",
            "1" * 60_000 + "~1~1",
        ],
    )
    def test_an_alias_that_leads_nowhere_is_none(self, text: str) -> None:
        assert alias_target(SIPUri.parse(f"sip:a@10.0.0.5;alias={text}")) is None

    def test_one_given_twice_is_no_uri(self) -> None:
        with pytest.raises(SIPParseError):
            SIPUri.parse("sip:a@10.0.0.5;alias=192.0.2.1~1~1;%61lias=192.0.2.2~1~1")


class TestRegistration:
    def test_the_way_back_is_stored_and_not_shown(self, world: World, bob: NATPhone) -> None:
        assert contacts(world) == ("sip:bob@10.0.0.5:5060;alias=192.0.2.11~40001~1",)
        (listed,) = bob.register().contacts
        assert str(listed.uri) == "sip:bob@10.0.0.5:5060"

    def test_two_devices_with_one_private_address_are_two(self, world: World) -> None:
        first, second = NATPhone(world, "bob", device="1"), NATPhone(world, "bob", ELSEWHERE, device="2")
        assert first.register_plainly().status == 200
        listed = second.register_plainly().contacts
        assert [str(contact.uri) for contact in listed] == ["sip:bob@10.0.0.5:5060"] * 2
        assert len(contacts(world)) == 2
        second.register_plainly(0)
        assert contacts(world) == ("sip:bob@10.0.0.5:5060;alias=192.0.2.11~40001~1",)

    def test_a_device_that_its_nat_moved_is_still_one(self, world: World, bob: NATPhone) -> None:
        """RFC 5626 6: by its instance."""
        bob.seen_at = ELSEWHERE
        assert bob.register().status == 200
        assert contacts(world) == ("sip:bob@10.0.0.5:5060;alias=192.0.2.99~40002~1",)

    def test_a_nameless_device_that_its_nat_moved_is_still_one(self, world: World) -> None:
        """RFC 3261 10.2: all registrations of a user agent have one Call-ID."""
        phone = NATPhone(world, "bob")
        phone.register_plainly()
        phone.seen_at = ELSEWHERE
        phone.register_plainly()
        assert contacts(world) == ("sip:bob@10.0.0.5:5060;alias=192.0.2.99~40002~1",)

    def test_a_device_that_left_its_nat_is_still_one(self, world: World) -> None:
        phone = NATPhone(world, "bob")
        phone.register_plainly()
        phone.seen_at, phone.device = INSIDE, "of-a-new-life"
        phone.register_plainly()
        assert contacts(world) == ("sip:bob@10.0.0.5:5060",)

    @pytest.mark.parametrize("edge", [True, False])
    def test_contacts_passed_on_by_a_known_proxy_are_left_alone(self, edge: bool) -> None:
        """An alias that the known proxy wrote is kept, and none is added; requests of other proxies get an alias of
        their source.
        """
        world = World(edge_proxies=[OUTSIDE[0]] if edge else [])
        bob = NATPhone(world, "bob")
        bob.register()
        theirs = "<sip:bob@10.0.0.5:5060;alias=203.0.113.1~4~1>"
        request = bob.request("REGISTER", "sip:example.org", to=f"<{BOB}>").replacing("Contact", theirs)
        request = request.with_header("Via", "SIP/2.0/UDP 10.0.0.5:5060;branch=z9hG4bKedge")
        bob.send(request)
        (challenge,) = bob.take()
        assert isinstance(challenge, Response)
        bob.digest.learn(challenge)
        following = request.replacing("CSeq", "9 REGISTER").with_first("Via", request.headers_all("Via")[0] + "9")
        bob.send(bob.digest.authorize(following))
        assert bob.statuses() == [200]
        alias = "203.0.113.1~4~1" if edge else "192.0.2.11~40001~1"
        assert f"sip:bob@10.0.0.5:5060;alias={alias}" in contacts(world)

    @pytest.mark.parametrize("vias", [1, 2])
    def test_nobody_registers_somebody_else(self, world: World, alice: Phone, vias: int) -> None:
        """Otherwise a stranger's OPTIONS of 266 bytes sends 44 KB to any host that the contact names."""
        bob = NATPhone(world, "bob")
        victim = ("198.51.100.7", 5060)
        named = ", ".join(f"<sip:bob{number}@{victim[0]}>" for number in range(10))
        statuses: list[int] = []
        while statuses in ([], [401]):
            request = bob.request("REGISTER", "sip:example.org", to=f"<{BOB}>").replacing("Contact", named)
            if vias > 1:
                request = request.with_header("Via", f"SIP/2.0/UDP {victim[0]};branch=z9hG4bKedge")
            bob.send(bob.digest.authorize(request))
            (response,) = bob.take()
            assert isinstance(response, Response)
            bob.digest.learn(response)
            statuses.append(response.status)
        assert len(contacts(world)) == 10
        alice.send(alice.request("OPTIONS", BOB))
        world.advance(40.0)
        assert world.bytes_at(victim) == []

    def test_it_survives_a_restart(self, world: World, bob: NATPhone, alice: Phone) -> None:
        kept = world.server.location.snapshot()
        world.server = SIPServer("example.org", SERVER, PASSWORDS.get, CountingRandom(), b"k" * 32)
        world.perform(world.server.restore(kept, world.now))
        alice.send(alice.request("INVITE", BOB))
        assert bob.taken_request().uri == "sip:bob@10.0.0.5:5060"


class TestCalls:
    @pytest.fixture
    def accepted(self, alice: Phone, bob: NATPhone) -> tuple[Request, Response]:
        """Let bob accept a call of alice; return the INVITE that he received, and the 200 that she received."""
        alice.world.know(alice.address)
        alice.send(alice.request("INVITE", BOB))
        received = bob.taken_request()
        bob.send(make_response(received, 200, to_tag="of-bob", headers=[("Contact", bob.contact)]))
        (_, answered) = alice.take()
        assert isinstance(answered, Response)
        return received, answered

    def within(self, phone: Phone, method: str, target: str, like: Message, *, calling: bool) -> Request:
        """Return a request within the dialog that ``like`` is of, by its routes."""
        near, far = (like.from_, like.to) if calling else (like.to, like.from_)
        request = phone.request(method, target, to=str(far)).replacing("From", str(near))
        for value in like.headers_all("Record-Route"):
            request = request.with_header("Route", value)
        return request.replacing("Call-ID", like.call_id)

    def test_a_call_to_behind_nat(self, accepted: tuple[Request, Response], alice: Phone, bob: NATPhone) -> None:
        """The device sees its own contact, the caller one that leads through the NAT; all stays with the proxy."""
        received, answered = accepted
        assert received.uri == "sip:bob@10.0.0.5:5060"
        assert len(received.record_routes) == 1
        assert answered.header("Contact") == "<sip:bob@10.0.0.5:5060;alias=192.0.2.11~40001~1>"
        target = "sip:bob@10.0.0.5:5060;alias=192.0.2.11~40001~1"
        for method in ("ACK", "INVITE", "BYE"):
            alice.send(self.within(alice, method, target, answered, calling=True))
            came = bob.taken_request()
            assert (came.method, came.uri, came.routes) == (method, "sip:bob@10.0.0.5:5060", [])

    def test_a_call_from_behind_nat(self, world: World, alice: Phone, bob: NATPhone) -> None:
        assert alice.register().status == 200
        bob.send(bob.request("INVITE", "sip:alice@example.org"))
        bob.take()
        received = alice.taken_request()
        assert received.header("Contact") == "<sip:bob@10.0.0.5:5060;alias=192.0.2.11~40001~1>"
        alice.send(make_response(received, 200, to_tag="of-alice", headers=[("Contact", alice.contact)]))
        (answered,) = bob.take()
        assert answered.header("Contact") == "<sip:alice@198.51.100.1:6000>"
        tagged = make_response(received, 200, to_tag="of-alice")
        alice.send(self.within(alice, "BYE", "sip:bob@10.0.0.5:5060;alias=192.0.2.11~40001~1", tagged, calling=False))
        assert bob.taken_request().uri == "sip:bob@10.0.0.5:5060"

    def test_without_nat_the_proxy_steps_aside(self, world: World, alice: Phone) -> None:
        """SPEC D-09."""
        bob = Phone(world, "bob", ("198.51.100.2", 7000))
        bob.register()
        alice.send(alice.request("INVITE", BOB))
        assert bob.taken_request().record_routes == []

    def test_the_registration_knows_better_than_an_old_dialog(
        self, accepted: tuple[Request, Response], alice: Phone, bob: NATPhone
    ) -> None:
        """The NAT gave bob another address since, and he has registered: there is but one device that it can be."""
        bob.seen_at = ELSEWHERE
        bob.register()
        target = "sip:bob@10.0.0.5:5060;alias=192.0.2.11~40001~1;x=y"
        alice.send(self.within(alice, "BYE", target, accepted[1], calling=True))
        assert bob.taken_request().uri == "sip:bob@10.0.0.5:5060;x=y"

    def test_the_dialog_decides_between_two_possible_devices(
        self, world: World, accepted: tuple[Request, Response], alice: Phone, bob: NATPhone
    ) -> None:
        bob.register(0)
        for number, seen_at in enumerate((ELSEWHERE, ("192.0.2.98", 5))):
            assert NATPhone(world, "bob", seen_at, device=str(number)).register_plainly().status == 200
        target = "sip:bob@10.0.0.5:5060;alias=192.0.2.11~40001~1"
        alice.send(self.within(alice, "BYE", target, accepted[1], calling=True))
        assert bob.taken_request().method == "BYE"

    def test_nobody_but_the_user_named_has_that_word(
        self, world: World, accepted: tuple[Request, Response], alice: Phone, bob: NATPhone
    ) -> None:
        """A user who registers the contact of another under their own name does not get that user's requests."""
        bob.register(0)
        mallory = NATPhone(world, "carol", ELSEWHERE)
        mallory.user, carol = "bob", mallory.user
        request = mallory.request("REGISTER", "sip:example.org", to=f"<sip:{carol}@example.org>")
        mallory.send(mallory.digest.authorize(request))
        (challenge,) = mallory.take()
        assert isinstance(challenge, Response)
        mallory.digest.learn(challenge)
        request = mallory.request("REGISTER", "sip:example.org", to=f"<sip:{carol}@example.org>")
        mallory.send(mallory.digest.authorize(request))
        assert mallory.statuses() == [200]
        target = "sip:bob@10.0.0.5:5060;alias=192.0.2.11~40001~1"
        alice.send(self.within(alice, "BYE", target, accepted[1], calling=True))
        assert mallory.take() == []
        assert bob.taken_request().method == "BYE"

    @pytest.mark.parametrize(
        ("target", "claimed", "where"),
        [
            ("sip:x@192.0.2.7:5062", "sip:x@192.0.2.7:5062;alias=203.0.113.6~6~1", ("192.0.2.7", 5062)),
            ("sip:x@10.0.0.5;alias=192.0.2.11~40001~1", "sip:x@10.0.0.5", OUTSIDE),
            ("sip:x@10.0.0.5;alias=192.0.2.11~40001~1", "sip:x@10.0.0.5;%61lias=203.0.113.6~6~1", OUTSIDE),
        ],
    )
    def test_nobody_else_leads_a_dialog_elsewhere(self, target: str, claimed: str, where: Address) -> None:
        """Nor where the registration and the dialog differ in that one of them has no alias."""
        desk = Desk(routing=Script(Forward(stay_on_path=True)))
        (branch,) = desk.forked(sip())
        desk.step(answer(branch, 200))
        route = ("Route", branch.request.headers_all("Record-Route")[0])
        desk.location.replace("sip:carol@example.org", [Binding(claimed, 1000.0, "c", 1)])
        (passed,) = desk.forked(sip("BYE", target, route, to_tag="b"), "s2")
        assert passed.destination == Target("UDP", where)

    def test_a_contact_that_got_behind_nat_is_followed_there(
        self, world: World, accepted: tuple[Request, Response], alice: Phone, bob: NATPhone
    ) -> None:
        """The dialog has no alias yet, but the registration does."""
        alice.send(self.within(alice, "BYE", "sip:bob@10.0.0.5:5060", accepted[1], calling=True))
        assert bob.taken_request().method == "BYE"

    def test_without_our_route_an_alias_leads_nowhere(self, alice: Phone, bob: NATPhone) -> None:
        """No open relay."""
        for target in ("sip:bob@10.0.0.6;alias=192.0.2.11~40001~1", "sip:x@10.0.0.5:5060;alias=192.0.2.11~40001~1"):
            alice.send(alice.request("BYE", target, to=f"<{BOB}>;tag=b"))
            assert alice.statuses() == [403]
        assert bob.take() == []

    def test_a_registered_contact_is_followed_within_a_dialog(self, alice: Phone, bob: NATPhone) -> None:
        target = "sip:bob@10.0.0.5:5060;alias=192.0.2.11~40001~1"
        alice.send(alice.request("BYE", target, to=f"<{BOB}>;tag=b"))
        assert bob.taken_request().uri == "sip:bob@10.0.0.5:5060"

    def test_a_redirect_shows_no_alias(self, alice: Phone, bob: NATPhone) -> None:
        world = World(routing=Script(Redirect()))
        phone = NATPhone(world, "bob")
        phone.register()
        caller = Phone(world, "alice", ("198.51.100.1", 6000))
        caller.send(caller.request("INVITE", BOB))
        (redirected,) = caller.take()
        assert redirected.headers_all("Contact") == ["<sip:bob@10.0.0.5:5060>"]


class TestMessagesThroughOthers:
    THEIRS = ("Record-Route", "<sip:203.0.113.1;lr>")

    def passed(self, desk: Desk, branch: SendRequest, *headers: tuple[str, str], status: int = 200) -> str | None:
        """Return the Contact of an answer from behind NAT, as the proxy passes it on."""
        said = answer(branch, status, [("Contact", "<sip:bob@10.0.0.5>"), *headers])
        report = ResponseReceived(said.transaction, said.response, OUTSIDE)
        (passed,) = responses(desk.step(report))
        return passed.header("Contact")

    def test_a_request_with_two_vias_is_left_alone(self) -> None:
        request = invite().with_first("Via", "SIP/2.0/UDP 203.0.113.1;branch=z9hG4bKedge")
        (branch,) = Desk().forked(request)
        assert branch.request.header("Contact") == "<sip:alice@10.0.0.5:5060>"
        assert branch.request.record_routes == []

    def test_an_answer_straight_from_the_device(self) -> None:
        desk = Desk()
        (branch,) = desk.forked(invite("<sip:alice@10.0.0.1>"))
        assert self.passed(desk, branch) == "<sip:bob@10.0.0.5;alias=192.0.2.11~40001~1>"

    def test_an_answer_that_another_proxy_recorded_is_left_alone(self) -> None:
        desk = Desk()
        (branch,) = desk.forked(invite("<sip:alice@10.0.0.1>"))
        assert self.passed(desk, branch, self.THEIRS) == "<sip:bob@10.0.0.5>"

    def test_an_answer_by_a_route_that_was_left_is_left_alone(self) -> None:
        """Also for a retransmission, after the request has been forgotten."""
        desk = Desk()
        (recorded,) = Desk().forked(invite(), "other")
        route = recorded.request.headers_all("Record-Route")[0]
        target = "sip:bob@10.0.0.5;alias=192.0.2.77~7~1"
        request = sip("INVITE", target, ("Route", f"{route}, <sip:203.0.113.1;lr>"), to_tag="b")
        (branch,) = desk.forked(request)
        assert branch.request.uri == target, "the alias is for whom it was written"
        assert branch.destination == Target("UDP", ("203.0.113.1", 5060))
        assert [self.passed(desk, branch) for _ in range(2)] == ["<sip:bob@10.0.0.5>"] * 2

    def test_the_contacts_of_a_redirect_are_others(self) -> None:
        """RFC 3261 8.3: they are not where the answer came from."""
        desk = Desk()
        (branch,) = desk.forked(invite("<sip:alice@10.0.0.1>"))
        assert self.passed(desk, branch, status=302) == "<sip:bob@10.0.0.5>"


class StreamDesk:
    """A server over UDP, TCP and TLS, and its outputs."""

    def __init__(self) -> None:
        streams = {"TCP": SERVER, "TLS": (SERVER[0], 5061)}
        self.server = SIPServer("example.org", SERVER, PASSWORDS.get, CountingRandom(), b"k" * 32, streams=streams)
        self.outputs: list[Output] = []

    def step(self, given: object) -> list[Output]:
        return self.server.step([given], 100.0)  # type: ignore[list-item]

    def send(self, connection: int, source: Address, message: Message) -> list[Output]:
        return self.step(StreamReceived("sip", connection, source, encode_message(message)))


def bob_over_tcp(method: str, uri: str, *extra: tuple[str, str], to: str = f"<{BOB}>", cseq: int = 1) -> Request:
    headers = (
        ("Via", f"SIP/2.0/TCP 10.0.0.5:5060;rport;branch=z9hG4bKbob{cseq}{method}"),
        ("From", f"<{BOB}>;tag=of-bob"),
        ("To", to),
        ("Call-ID", "call-of-bob"),
        ("CSeq", f"{cseq} {method}"),
        ("Contact", "<sip:bob@10.0.0.5:5060;transport=tcp>"),
        ("Max-Forwards", "70"),
        *extra,
    )
    return Request(method, uri, headers)


class TestStreams:
    @pytest.fixture
    def desk(self) -> StreamDesk:
        """A server with bob registered on connection 3."""
        desk, digest = StreamDesk(), DigestClient("bob", "builder", CountingRandom())
        for cseq in (1, 2):
            request = digest.authorize(bob_over_tcp("REGISTER", "sip:example.org", cseq=cseq))
            sent = desk.send(3, OUTSIDE, request)
            (response,) = [parse_message(each.data) for each in sent if isinstance(each, SendOnStream)]
            assert isinstance(response, Response)
            if cseq == 1:
                digest.learn(response)
        assert isinstance(response, Response)
        assert response.status == 200
        return desk

    def invited(self, desk: StreamDesk, number: int = 1) -> list[Output]:
        request = sip("INVITE", BOB, ("Contact", "<sip:alice@10.0.0.1:7>"), call_id=f"call-{number}")
        via = f"SIP/2.0/UDP 10.0.0.1:7;branch=z9hG4bKcaller{number}"
        data = encode_message(request.replacing("Via", via))
        desk.server._layer.peers.note("10.0.0.1", 0.0)
        outputs = desk.step(DatagramReceived("sip", ("10.0.0.1", 7), data))
        return [each for each in outputs if isinstance(each, SendOnStream | SendDatagram)]

    def test_a_request_takes_the_connection_of_the_device(self, desk: StreamDesk) -> None:
        (_, sent) = self.invited(desk)
        assert isinstance(sent, SendOnStream)
        assert (sent.target, sent.connection) == (Target("TCP", OUTSIDE), 3)
        request = parse_message(sent.data)
        assert isinstance(request, Request)
        assert request.uri == "sip:bob@10.0.0.5:5060;transport=tcp"
        routes = [NameAddr.parse(value).uri for value in request.headers_all("Record-Route")]
        assert [uri.param("transport") for uri in routes] == ["tcp", None], "RFC 5658: to each side over its transport"

    def test_without_that_connection_nobody_is_there(self, desk: StreamDesk) -> None:
        """A port that a NAT gave to a connection accepts no other, so none is opened to it."""
        desk.step(StreamClosed("sip", 3, "gone"))
        (sent,) = self.invited(desk)
        assert isinstance(sent, SendDatagram)
        refused = parse_message(sent.data)
        assert isinstance(refused, Response)
        assert refused.status == 480

    def test_the_next_connection_from_there_is_the_one(self, desk: StreamDesk) -> None:
        """A late notice of the old connection's end does not remove the new one."""
        desk.send(4, OUTSIDE, bob_over_tcp("OPTIONS", "sip:example.org"))
        desk.step(StreamClosed("sip", 3, "gone"))
        (_, sent) = self.invited(desk)
        assert isinstance(sent, SendOnStream)
        assert sent.connection == 4


def test_a_large_request_to_behind_nat_stays_on_udp() -> None:
    """Contrary to RFC 3261 18.1.1, since a TCP connection could not pass the NAT."""
    world = World(streams={"TCP": SERVER})
    bob, alice = NATPhone(world, "bob"), Phone(world, "alice", ("198.51.100.1", 6000))
    assert bob.register().status == 200
    request = alice.request("INVITE", BOB)
    alice.send(Request(request.method, request.uri, request.headers, b"x" * 1_400))
    assert len(bob.taken_request().body) == 1_400


def test_no_alias_does_harm() -> None:
    """Thousands of them in a Contact and a Request-URI: at worst the request is refused."""
    random = Random(11)
    pieces = [
        "192.0.2.1",
        "~",
        "1",
        "40000",
        "[2001:db8::1]",
        "::",
        "%00",
        "%7E",
        "2",
        "3",
        "~~",
        "999999",
        "[",
        "]",
        "$",
    ]
    for number in range(3_000):
        text = "".join(random.choice(pieces) for _ in range(random.randrange(8)))
        uri = f"sip:bob@10.0.0.5:5060;alias={text}" if text else "sip:bob@10.0.0.5:5060;alias"
        try:
            request = invite(f"<{uri}>")
            again = marked(request, OUTSIDE, "UDP")
            assert [str(contact.uri) for contact in again.contacts] == [
                "sip:bob@10.0.0.5:5060;alias=192.0.2.11~40001~1"
            ]
            target = alias_target(SIPUri.parse(uri))
            assert target is None or 0 < target.address[1] < 65_536
            Desk().step(RequestReceived(f"s{number}", sip("BYE", uri, to_tag="b"), OUTSIDE))
        except SIPParseError:
            continue
