"""Size of responses to unknown sources: never larger than their request (DESIGN 6: no amplification over UDP)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sip.phone_world import BOB, UNLIMITED, CountingRandom, Phone, World
from tests.sip.proxy_desk import Script
from wanderbus.machine import Address, DatagramReceived, SendDatagram, SetTimer, TimerFired
from wanderbus.sip.authentication.digest import Challenge
from wanderbus.sip.message.message import Request, Response, encode_message, make_response, parse_message
from wanderbus.sip.proxy.routing_script import Redirect, Reject
from wanderbus.sip.transaction.message_editor import fitted
from wanderbus.sip.transaction.transaction_layer import RequestReceived, Respond, TransactionLayer

ATTACKER: Address = ("10.6.6.6", 666)
MANDATORY = ("v:SIP/2.0/UDP x;branch=z9hG4bK1{rport}", "f:<sip:a@b>;tag=1", "t:<sip:c@d>", "i:1", "CSeq:1 {method}")


def tiny(method: str, uri: str, *extra: str, rport: bool = False, padding: int = 0) -> bytes:
    """Return one of the smallest requests there are."""
    lines = [line.format(method=method, rport=";rport" if rport else "") for line in MANDATORY]
    pad = [f"X:{'x' * padding}"] if padding else []
    return "\r\n".join([f"{method} {uri} SIP/2.0", *lines, *extra, *pad, "", ""]).encode()


METHODS = ("REGISTER", "OPTIONS", "INVITE", "BYE", "CANCEL", "MESSAGE", "SUBSCRIBE", "NOSUCH", "ACK")
URIS = ("sip:example.org", "sip:bob@example.org", "sip:carol@example.org", "sip:x@y", "tel:1", "sips:bob@10.0.0.9")
EXTRAS = (
    (),
    ("Proxy-Require: a", "Require: b"),
    ("Max-Forwards: 0",),
    ("Max-Breadth: 0",),
    ("Route: <sip:10.0.0.50;lr>",),
    ("Authorization: Digest x",),
    ("Contact: *", "Contact: *"),
    ("Content-Length: 99",),
    ("Timestamp: 1",),
)
CORPUS = [
    tiny(method, uri, *extra, rport=rport)
    for method in METHODS
    for uri in URIS
    for extra in EXTRAS
    for rport in (False, True)
]
CORPUS += [datagram.replace(b"SIP/2.0\r\n", b"SIP/7.0\r\n", 1) for datagram in CORPUS[::9]]
CORPUS += [datagram[:-3] for datagram in CORPUS[::7]]
CORPUS = [datagram.replace(b"z9hG4bK1", f"z9hG4bK{number}".encode()) for number, datagram in enumerate(CORPUS)]


@pytest.mark.parametrize("routing", [None, Script(Redirect()), Script(Reject(480, "Somebody said so" * 20))])
def test_an_answer_is_no_longer_than_its_request(routing: Script | None) -> None:
    """Each datagram of the corpus alone, sent twice, and its first half afterwards: every response is at most as
    large.
    """
    world = World(routing=routing, flood=UNLIMITED)
    for n in range(3):
        phone = Phone(world, "bob", (f"10.0.0.{n}", 5060))
        assert phone.register_at(f"<sip:bob@10.0.0.{n}:5060>").status == 200
    answered = 0
    for number, data in enumerate(CORPUS):
        source: Address = (f"10.6.{number // 250}.{number % 250}", 666)
        for copy in (data, data, data[: len(data) // 2]):
            world.send(source, copy)
            for answer in world.bytes_at(source) + world.bytes_at((source[0], 5060)):
                answered += 1
                assert len(answer) <= len(copy), (copy, answer)
    assert answered > len(CORPUS) / 4


def test_late_answers_are_bounded_too() -> None:
    """Our 408 is sent half a minute after the INVITE; its retransmissions have the same size."""
    world = World()
    assert Phone(world, "bob", ("10.0.0.2", 5060)).register().status == 200
    invite = tiny("INVITE", BOB, "Max-Forwards: 70", "Contact: <sip:a@b>")
    world.send(ATTACKER, invite)
    world.advance(40.0)
    late = world.bytes_at((ATTACKER[0], 5060))
    assert any(answer.startswith(b"SIP/2.0 408") for answer in late)
    assert max(map(len, late)) <= len(invite)


def test_all_challenges_come_if_they_fit_else_the_one_that_every_client_knows() -> None:
    """RFC 8760 2.4, RFC 3261 22.4: a client with a single algorithm has MD5; without room for a challenge, a refusal
    says that TCP has room.
    """
    seen = {}
    for padding in range(0, 400, 5):
        world = World()
        request = tiny("REGISTER", "sip:example.org", padding=padding)
        world.send(ATTACKER, request)
        answers = [parse_message(data) for data in world.bytes_at((ATTACKER[0], 5060))]
        seen[padding] = [
            (a.status, [Challenge.parse(value).algorithm for value in a.headers_all("WWW-Authenticate")])
            for a in answers
            if isinstance(a, Response)
        ]
    stages = [stage for n, stage in enumerate(seen.values()) if n == 0 or stage != list(seen.values())[n - 1]]
    assert stages == [[], [(400, [])], [(401, ["MD5"])], [(401, ["SHA-256", "MD5"])]]


@pytest.mark.parametrize(("name", "status"), [("a", 400), ("alice", 400), ("alice.of.example", 401)])
def test_a_short_request_with_all_mandatory_fields_is_told_to_use_tcp(name: str, status: int) -> None:
    """RFC 3261 8.1.1: some 230 to 290 bytes have no room for a challenge, and silence would explain nothing."""
    world = World()
    request = (
        f"REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP 10.6.6.6:666;branch=z9hG4bK{name};rport\r\n"
        f"Max-Forwards: 70\r\nFrom: <sip:{name}@example.org>;tag=1\r\nTo: <sip:{name}@example.org>\r\n"
        f"Call-ID: 1\r\nCSeq: 1 REGISTER\r\nContact: <sip:{name}@10.6.6.6>\r\nContent-Length: 0\r\n\r\n"
    ).encode()
    assert 230 < len(request) < 310
    world.send(ATTACKER, request)
    (answer,) = world.bytes_at(ATTACKER)
    assert len(answer) <= len(request)
    read = parse_message(answer)
    assert isinstance(read, Response)
    assert (read.status, read.reason) == (status, "Use TCP" if status == 400 else "")


def test_an_ordinary_phone_can_still_register() -> None:
    """The request of a common test tool is large enough for a challenge it can use, and so is any real phone's."""
    world = World()
    request = (
        b"REGISTER sip:example.org SIP/2.0\r\n"
        b"Via: SIP/2.0/UDP 127.0.0.1:5061;branch=z9hG4bK-12345-1-0;rport\r\n"
        b"Max-Forwards: 70\r\nFrom: <sip:alice@example.org>;tag=12345r1\r\nTo: <sip:alice@example.org>\r\n"
        b"Call-ID: 1-12345@127.0.0.1\r\nCSeq: 1 REGISTER\r\nContact: <sip:alice@127.0.0.1:5062;transport=UDP>\r\n"
        b"Expires: 300\r\nContent-Length: 0\r\n\r\n"
    )
    world.send(("127.0.0.1", 5061), request)
    (answer,) = world.messages_at(("127.0.0.1", 5061))
    assert isinstance(answer, Response)
    assert answer.status == 401
    assert answer.headers_all("WWW-Authenticate")


def test_a_shorter_copy_does_not_fetch_the_answer_to_a_longer_one() -> None:
    """The copy has the same transaction and another, perhaps forged, source."""
    world = World()
    large = tiny("OPTIONS", "sip:example.org", padding=500)
    world.send(ATTACKER, large)
    assert len(world.bytes_at((ATTACKER[0], 5060))) == 1
    victim: Address = ("10.9.9.9", 1)
    world.send(victim, tiny("OPTIONS", "sip:example.org"))
    assert world.bytes_at((victim[0], 5060)) == []
    world.send(ATTACKER, large)
    assert len(world.bytes_at((ATTACKER[0], 5060))) == 1


def test_a_user_who_proved_to_be_one_gets_all_of_the_answer() -> None:
    """A list of 16 contacts is larger than the question."""
    world = World()
    phone = Phone(world, "bob", ("10.0.0.2", 5060))
    for n in range(16):
        assert phone.register_at(f"<sip:bob@10.0.0.{n}:5060;with=a-long-parameter-to-make-it-longer>").status == 200
    query = phone.request("REGISTER", "sip:example.org", to=f"<{BOB}>").without("Contact")
    phone.send(phone.digest.authorize(query))
    (response,) = phone.take()
    assert len(response.contacts) == 16


def test_only_marked_answers_are_cut_and_only_over_udp() -> None:
    layer = TransactionLayer(CountingRandom())
    data = tiny("OPTIONS", "sip:example.org")

    def answer(within_request: bool) -> list[bytes]:
        layer_ = TransactionLayer(CountingRandom())
        (received, *_) = layer_.step([DatagramReceived("sip", ATTACKER, data)], 0.0)
        assert isinstance(received, RequestReceived)
        large = make_response(received.request, 200, headers=[("Unsupported", "x" * 500)])
        outputs = layer_.step([Respond(received.transaction, large, within_request)], 0.0)
        return [output.data for output in outputs if isinstance(output, SendDatagram)]

    assert answer(within_request=True) == []
    (whole,) = answer(within_request=False)
    assert len(whole) > 500
    assert layer.dropped == 0


def test_the_layers_own_answers_are_cut_too() -> None:
    """RFC 3261 17.2.1: the 100 of the layer when an INVITE has no response for 200 ms."""
    layer = TransactionLayer(CountingRandom())
    layer.peers.know_everybody()
    data = tiny("INVITE", "sip:c@d", "Timestamp: 1234567890.12345", rport=True)
    started = layer.step([DatagramReceived("sip", ("10.66.66.66", 66666), data)], 0.0)
    (timer,) = [output for output in started if isinstance(output, SetTimer)]
    (trying,) = [o.data for o in layer.step([TimerFired(timer.key)], timer.at) if isinstance(o, SendDatagram)]
    assert trying.startswith(b"SIP/2.0 100")
    assert len(trying) <= len(data)


def sample(status: int, *headers: tuple[str, str]) -> Response:
    data = tiny("OPTIONS", "sip:example.org")
    request = parse_message(data)
    assert isinstance(request, Request)
    return make_response(request, status, to_tag="abcd", headers=headers)


SAMPLES = [
    sample(200, ("Allow", "INVITE, ACK"), ("Accept", "*/*"), ("Supported", "")),
    sample(405, ("Allow", "INVITE, ACK")),
    sample(302, *(("Contact", f"<sip:b@10.0.0.{n}>") for n in range(5))),
    sample(401, *(("WWW-Authenticate", f'Digest realm="r", nonce="{n}"') for n in range(3))),
    sample(423, ("Min-Expires", "60")),
]


@given(response=st.sampled_from(SAMPLES), bytes_max=st.integers(0, 700))
def test_a_shortened_response_has_the_same_meaning(response: Response, bytes_max: int) -> None:
    """RFC 3261 20: status, To tag, Via and the fields that the status requires are kept."""
    data = fitted(response, bytes_max)
    if data is None:
        assert bytes_max < len(encode_message(response))
        return
    assert len(data) <= bytes_max
    cut = parse_message(data)
    assert isinstance(cut, Response)
    assert (cut.status, cut.to, cut.call_id, cut.cseq) == (
        response.status,
        response.to,
        response.call_id,
        response.cseq,
    )
    assert (cut.via.branch, cut.via.host, cut.via.rport) == (response.via.branch, "x", response.via.rport)
    needed = {405: "Allow", 302: "Contact", 401: "WWW-Authenticate", 423: "Min-Expires"}.get(response.status)
    if needed is not None:
        read = Challenge.parse if response.status == 401 else str
        assert {read(value) for value in cut.headers_all(needed)} <= {read(v) for v in response.headers_all(needed)}
        assert cut.headers_all(needed)


def test_nothing_is_cut_that_need_not_be() -> None:
    for response in SAMPLES:
        whole = encode_message(response)
        assert fitted(response, len(whole)) == whole
        assert fitted(response, len(whole) - 1) != whole


def test_the_least_useful_goes_first() -> None:
    response = SAMPLES[0]
    data = fitted(response, len(encode_message(response)) - 1)
    assert data is not None
    cut = parse_message(data)
    assert cut.header("Supported") is None
    assert cut.header("Allow") == "INVITE, ACK"
