"""The proxy's side of ng: retransmission, choice of relay, and hostile or broken relays (SPEC I)."""

from __future__ import annotations

from random import Random

import pytest

from tests.sip.phone_world import CountingRandom
from wanderbus.machine import Address, CancelTimer, DatagramReceived, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.relay import OpenPort, PortOpened, Relay, ng, ng_client
from wanderbus.relay.ng_client import (
    COMMANDS_MAX,
    DESCRIPTION_BYTES_MAX,
    LEFT_OUT_S,
    TRIES_MAX,
    RelayDriver,
)
from wanderbus.relay.ng_client_messages import RelayFound, RelayLost
from wanderbus.sip.proxy.anchoring import SOCKET, Describe, Described, Release

ONE: Address = ("192.0.2.1", 2223)
TWO: Address = ("192.0.2.2", 2223)
SDP = b"v=0\r\n"


def offer(key: str = "k", call_id: str = "call", **options: str) -> Describe:
    return Describe(key, "offer", SDP, call_id, "a", **options)


def answer(key: str = "k2", call_id: str = "call") -> Describe:
    return Describe(key, "answer", SDP, call_id, "a", "b")


class Desk:
    """A driver of relays, and the datagrams it has sent to them."""

    def __init__(self, *relays: Address) -> None:
        self.driver = RelayDriver(relays or (ONE,), CountingRandom())
        self.now = 50.0
        self.timers: dict[str, float] = {}
        self.sent: list[SendDatagram] = []
        self.reports: list[Output] = []

    def step(self, *given: object) -> None:
        for output in self.driver.step(given, self.now):  # type: ignore[arg-type]
            match output:
                case SendDatagram():
                    self.sent.append(output)
                case SetTimer(key=key, at=at):
                    self.timers[str(key)] = at
                case CancelTimer(key=key):
                    self.timers.pop(str(key))
                case _:
                    self.reports.append(output)

    def commands(self) -> list[tuple[Address, ng.Command]]:
        """Return and remove the sent commands, decoded."""
        read = [(each.destination, ng.read_command(each.data)) for each in self.sent]
        self.sent.clear()
        return read

    def reply(self, fields: ng.Fields, *, source: Address | None = None, cookie: bytes | None = None) -> None:
        """Respond to the last command."""
        (relay, command) = [(each.destination, ng.read_command(each.data)) for each in self.sent][-1]
        data = ng.write_reply(cookie or command.cookie, fields)
        self.sent.clear()
        self.step(DatagramReceived("ng", source or relay, data))

    def ok(self, sdp: str = "v=1\r\n") -> None:
        self.reply({"result": "ok", "sdp": sdp})

    def pass_silently(self) -> None:
        """Fire every timer and those that follow, until no relay is awaited."""
        while self.timers:
            self.fire()

    def fire(self) -> None:
        key, at = min(self.timers.items(), key=lambda item: (item[1], item[0]))
        del self.timers[key]
        self.now = max(self.now, at)
        self.step(TimerFired(key))

    def silence(self, relay: Address, call_id: str = "call") -> None:
        """Make ``relay``, which is the first choice for ``call_id``, not respond until it counts as down."""
        self.step(offer("lost", call_id))
        for _ in range(TRIES_MAX):
            self.fire()
        assert self.reports[0] == RelayLost(relay)


def first_of(call_id: str, *relays: Address) -> Address:
    """Return the relay that a fresh driver chooses first."""
    desk = Desk(*relays)
    desk.step(offer("x", call_id))
    return desk.commands()[0][0]


def other(relay: Address) -> Address:
    return TWO if relay == ONE else ONE


class TestOneRelay:
    def test_an_offer_is_described(self) -> None:
        desk = Desk()
        desk.step(offer(source_ip="192.0.2.11"))
        assert desk.reports == []
        (relay, command) = desk.commands()[0]
        assert relay == ONE
        assert (command.text("command"), command.text("call-id"), command.text("sdp")) == ("offer", "call", "v=0\r\n")
        assert (command.text("from-tag"), command.text("to-tag"), command.source_ip) == ("a", "", "192.0.2.11")
        desk.step(DatagramReceived("ng", ONE, ng.write_reply(command.cookie, {"result": "ok", "sdp": "v=1\r\n"})))
        assert desk.reports == [Described("k", b"v=1\r\n")]
        assert desk.timers == {}
        assert len(desk.driver) == 0

    def test_it_is_repeated_word_for_word_and_then_given_up(self) -> None:
        desk = Desk()
        desk.step(offer())
        times = []
        while desk.timers:
            times.append(desk.now)
            desk.fire()
        assert times == [50.0, 50.5, 51.0, 51.5], "a random 0.5 to 1 s apart, of which this source gives the least"
        assert len({each.data for each in desk.sent}) == 1
        assert len(desk.sent) == TRIES_MAX
        assert desk.reports == [RelayLost(ONE), Described("k", None, "192.0.2.1:2223 does not answer")]
        assert len(desk.driver) == 0

    def test_the_only_relay_is_asked_again_although_it_was_lost(self) -> None:
        """Leaving it out would refuse every call for half a minute after a restart of one second."""
        desk = Desk()
        desk.silence(ONE)
        desk.reports.clear()
        desk.sent.clear()
        desk.step(offer("again"))
        desk.ok()
        assert desk.reports == [RelayFound(ONE), Described("again", b"v=1\r\n")]

    @pytest.mark.parametrize(
        "fields",
        [
            {"result": "error", "error-reason": "No SDP"},
            {"result": "load limit", "message": "full"},
            {"result": "ok"},
            {"result": "ok", "sdp": ""},
            {"result": "ok", "sdp": ["v=0"]},
            {"result": 7},
            {},
        ],
    )
    def test_an_invalid_description_is_a_failure(self, fields: ng.Fields) -> None:
        desk = Desk()
        desk.step(offer())
        desk.reply(fields)
        (report,) = desk.reports
        assert isinstance(report, Described)
        assert report.sdp is None
        assert report.reason

    def test_bytes_that_are_no_text_come_back_as_they_were(self) -> None:
        desk = Desk()
        desk.step(Describe("k", "offer", b"v=0\r\ns=\xff\xfe\r\n", "call", "a"))
        (_, command) = desk.commands()[0]
        data = ng.write_reply(command.cookie, {"result": "ok", "sdp": command.text("sdp")})
        desk.step(DatagramReceived("ng", ONE, data))
        assert desk.reports == [Described("k", b"v=0\r\ns=\xff\xfe\r\n")]

    def test_commands_of_one_call_are_sent_in_order(self) -> None:
        """A deletion that is repeated late would end the call that the next offer began."""
        desk = Desk()
        desk.step(Release("call", "a"), offer(), offer("other", "another call"))
        assert [command.text("command") for _, command in desk.commands()] == ["delete", "offer"]
        assert len(desk.driver) == 3
        desk.step(Release("call", "a", "b"))
        assert desk.sent == []

    def test_the_next_goes_when_the_first_is_answered(self) -> None:
        desk = Desk()
        desk.step(Release("call", "a"), offer())
        desk.reply({"result": "ok", "warning": "unknown"})
        assert [command.text("command") for _, command in desk.commands()] == ["offer"]
        assert desk.reports == []

    def test_a_line_that_fails_fails_at_once(self) -> None:
        """However long it is."""
        desk = Desk()
        desk.step(offer())
        desk.step(*(answer(str(number)) for number in range(COMMANDS_MAX - 1)))
        for _ in range(TRIES_MAX):
            desk.fire()
        described = [report for report in desk.reports if isinstance(report, Described)]
        assert len(described) == COMMANDS_MAX
        assert all(report.sdp is None for report in described)
        assert len(desk.driver) == 0

    def test_a_call_without_an_answer_can_be_ended_alone(self) -> None:
        desk = Desk()
        end = Release("call", "a", unless_answered=True)
        desk.step(offer(), end)
        desk.ok()
        assert [command.text("command") for _, command in desk.commands()] == ["delete"]
        desk = Desk()
        desk.step(offer(), answer(), end, offer("k3"))
        desk.ok()
        desk.ok()
        assert [command.text("command") for _, command in desk.commands()] == ["offer"]

    def test_there_is_a_bound(self) -> None:
        desk = Desk()
        desk.step(*(offer(str(number), str(number)) for number in range(COMMANDS_MAX)))
        desk.sent.clear()
        desk.step(offer("beyond", "beyond"), Release("beyond", "a"))
        (report,) = desk.reports
        assert isinstance(report, Described)
        assert (report.key, report.sdp) == ("beyond", None)
        assert desk.sent == []
        assert len(desk.driver) == COMMANDS_MAX

    @pytest.mark.parametrize(
        "wish",
        [
            Describe("k", "offer", b"x" * (DESCRIPTION_BYTES_MAX + 1), "call", "a"),
            Describe("k", "offer", b"x" * DESCRIPTION_BYTES_MAX, "c" * 49_000, "a"),
            Describe("k", "answer", SDP, "call", "a", "b" * (ng.NAME_CHARACTERS_MAX + 1)),
        ],
    )
    def test_an_oversized_command_does_not_mark_the_relay_dead(self, wish: Describe) -> None:
        desk = Desk()
        desk.step(wish)
        (report,) = desk.reports
        assert isinstance(report, Described)
        assert report.sdp is None
        assert desk.sent == []


class TestStrangers:
    def test_only_responses_of_the_asked_relay_are_accepted(self) -> None:
        desk = Desk(ONE, TWO)
        desk.step(offer())
        (asked, command) = desk.commands()[0]
        data = ng.write_reply(command.cookie, {"result": "ok", "sdp": "v=6\r\n"})
        for source in (other(asked), ("203.0.113.6", 2223), (asked[0], 9)):
            desk.step(DatagramReceived("ng", source, data))
        assert desk.reports == []

    def test_a_reply_under_another_cookie_is_not_ours(self) -> None:
        desk = Desk()
        desk.step(offer())
        desk.reply({"result": "ok", "sdp": "v=6\r\n"}, cookie=b"guessed")
        assert desk.reports == []

    def test_a_reply_that_comes_twice_counts_once(self) -> None:
        desk = Desk()
        desk.step(offer())
        (_, command) = desk.commands()[0]
        data = ng.write_reply(command.cookie, {"result": "ok", "sdp": "v=1\r\n"})
        desk.step(DatagramReceived("ng", ONE, data), DatagramReceived("ng", ONE, data))
        assert len(desk.reports) == 1

    def test_cookies_cannot_be_guessed(self) -> None:
        """They come from the source of randomness, and are no count of ours."""
        drawn = CountingRandom()
        driver = RelayDriver([ONE], drawn)
        driver.step([offer()], 0.0)
        assert drawn.drawn == 1

    def test_nothing_that_comes_breaks_it(self) -> None:
        random, desk = Random(5), Desk()
        desk.step(offer())
        (_, command) = desk.commands()[0]
        for _ in range(2_000):
            body = random.choice([b"", b"d", b"de", b"d6:result2:oke", b"{", b"le", b"i1e", random.randbytes(9)])
            cookie = random.choice([command.cookie[:-1], b"", b" ", b"\xff", random.randbytes(4)])
            desk.step(DatagramReceived("ng", ONE, cookie + random.choice([b" ", b""]) + body))
        assert desk.reports == []
        assert len(desk.driver) == 1


class TestSeveralRelays:
    def test_calls_are_spread_and_a_call_stays(self) -> None:
        chosen = [first_of(f"call-{number}", ONE, TWO) for number in range(100)]
        assert 30 < chosen.count(ONE) < 70
        assert chosen == [first_of(f"call-{number}", TWO, ONE) for number in range(100)]

    @pytest.mark.parametrize("fields", [{"result": "error", "error-reason": "x"}, {"result": "load limit"}])
    def test_a_relay_that_refuses_is_followed_by_the_next(self, fields: ng.Fields) -> None:
        desk = Desk(ONE, TWO)
        desk.step(offer())
        first = desk.sent[-1].destination
        desk.reply(fields)
        assert desk.sent[-1].destination == other(first)
        desk.ok()
        assert desk.reports == [Described("k", b"v=1\r\n")]

    def test_a_relay_that_refused_is_not_left_out(self) -> None:
        desk = Desk(ONE, TWO)
        desk.step(offer())
        first = desk.sent[-1].destination
        desk.reply({"result": "load limit"})
        desk.ok()
        desk.step(offer("k3", _like("c", first)))
        assert desk.sent[-1].destination == first

    def test_a_relay_that_does_not_answer_is_left_out_for_a_while(self) -> None:
        desk = Desk(ONE, TWO)
        first = first_of("call", ONE, TWO)
        desk.silence(first)
        assert desk.sent[-1].destination == other(first)
        desk.ok()
        desk.reports.clear()
        desk.step(offer("soon", _like("s", first)))
        assert desk.sent[-1].destination == other(first)
        desk.ok()
        desk.now += LEFT_OUT_S
        desk.step(offer("later", _like("l", first)))
        assert desk.sent[-1].destination == first
        desk.ok()
        assert RelayFound(first) in desk.reports

    def test_the_relay_lost_for_longest_is_asked_if_all_are_lost(self) -> None:
        desk = Desk(ONE, TWO)
        first = first_of("call", ONE, TWO)
        desk.step(offer())
        desk.pass_silently()
        assert [report for report in desk.reports if isinstance(report, RelayLost)] == [
            RelayLost(first),
            RelayLost(other(first)),
        ]
        assert isinstance(desk.reports[-1], Described)
        desk.step(offer("again", "any other"))
        assert desk.sent[-1].destination == first
        desk.pass_silently()
        assert desk.reports[-1] == Described("again", None, f"{first[0]}:2223 does not answer")

    def test_an_answer_goes_to_where_its_offer_went(self) -> None:
        """And to no other relay, whatever the result."""
        desk = Desk(ONE, TWO)
        desk.step(offer())
        first = desk.sent[-1].destination
        desk.reply({"result": "load limit"})
        desk.ok()
        desk.step(answer())
        assert desk.sent[-1].destination == other(first)
        desk.reply({"result": "error"})
        assert desk.sent == []
        (_, report) = desk.reports
        assert isinstance(report, Described)
        assert report.sdp is None

    def test_a_deletion_goes_there_too(self) -> None:
        desk = Desk(ONE, TWO)
        desk.step(offer())
        first = desk.sent[-1].destination
        desk.reply({"result": "load limit"})
        desk.ok()
        desk.step(Release("call", "a", "b"))
        assert desk.sent[-1].destination == other(first)

    def test_the_next_offer_goes_to_the_calls_own_relay_or_where_that_is_lost_elsewhere(self) -> None:
        desk = Desk(ONE, TWO)
        desk.step(offer())
        first = desk.sent[-1].destination
        desk.reply({"result": "load limit"})
        desk.ok()
        desk.step(offer("k3"))
        assert desk.sent[-1].destination == other(first)
        for _ in range(TRIES_MAX):
            desk.fire()
        assert desk.sent[-1].destination == first

    def test_an_answer_whose_relay_is_lost_fails_at_once(self) -> None:
        desk = Desk(ONE, TWO)
        first = first_of("call", ONE, TWO)
        desk.step(offer())
        desk.ok()
        call = _like("c", first)
        desk.step(offer("k3", call))
        for _ in range(TRIES_MAX):
            desk.fire()
        desk.sent.clear()
        desk.step(answer())
        assert desk.sent == []
        assert desk.reports[-1] == Described("k2", None, "the call's media relay does not answer")

    def test_it_forgets_old_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ng_client, "HOMES_MAX", 2)
        desk = Desk(ONE, TWO)
        for number in range(5):
            desk.step(offer(str(number), str(number)))
            desk.ok()
        assert len(desk.driver._call_relays) == 2


def _like(call_id: str, relay: Address) -> str:
    return next(f"{call_id}{n}" for n in range(99) if first_of(f"{call_id}{n}", ONE, TWO) == relay)


def test_our_relay_understands_it() -> None:
    """An offer, its answer and the end, to the machine itself."""
    relay = Relay(CountingRandom(), address="198.51.100.1", ports=range(30_000, 30_010))
    driver = RelayDriver([ONE], CountingRandom())
    sdp = b"v=0\r\no=- 1 1 IN IP4 10.0.0.5\r\ns=-\r\nc=IN IP4 10.0.0.5\r\nt=0 0\r\nm=application 4000 UDP x\r\n"
    described: list[Described] = []

    def carry(outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case SendDatagram(destination=destination, data=data) if destination == ONE:
                    carry(relay.step([DatagramReceived("ng", TWO, data)], 0.0))
                case SendDatagram(data=data):
                    carry(driver.step([DatagramReceived("ng", ONE, data)], 0.0))
                case OpenPort(side=side, port=port):
                    carry(relay.step([PortOpened(side, port)], 0.0))
                case Described():
                    described.append(output)

    carry(driver.step([Describe("o", "offer", sdp, "call", "a", source_ip="192.0.2.11")], 0.0))
    carry(driver.step([Describe("a", "answer", sdp, "call", "a", "b")], 0.0))
    assert [each.key for each in described] == ["o", "a"]
    assert all(each.sdp is not None and b"c=IN IP4 198.51.100.1" in each.sdp for each in described)
    assert len(relay.calls) == 1
    carry(driver.step([Release("call", "b", "a")], 0.0))
    assert relay.calls == {}


@pytest.mark.parametrize("reason", [b'"' + b"x" * 60_000 + b'"', b"[" * 900 + b"]" * 900, b"{}", b"7", b'""'])
def test_a_reason_of_any_size_or_form_is_one_short_text(reason: bytes) -> None:
    desk = Desk(ONE)
    desk.step(offer())
    ((_, command),) = desk.commands()
    reply = command.cookie + b' {"result":"error","error-reason":' + reason + b"}"
    desk.step(DatagramReceived(SOCKET, ONE, reply))
    (report,) = [each for each in desk.reports if isinstance(each, Described)]
    assert report.sdp is None
    assert 0 < len(report.reason) < 1_100


def test_a_description_that_no_message_can_carry_is_a_failure_and_the_next_relay_is_asked() -> None:
    desk = Desk(ONE, TWO)
    desk.step(offer())
    first = desk.sent[-1].destination
    desk.ok("v=0\r\n" + "a=x\r\n" * 12_000)
    assert desk.sent[-1].destination == other(first)
    desk.ok("v=0\r\n" + "a=x\r\n" * 7_000)
    (report,) = desk.reports
    assert isinstance(report, Described)
    assert report.sdp is None


@pytest.mark.parametrize("seed", range(20))
def test_relays_that_lie_cost_each_call_a_bounded_number_of_commands_and_one_answer(seed: int) -> None:
    """They refuse, garble, answer twice, late, for others or never; at the end no state is left over."""
    random, desk = Random(seed), Desk(ONE, TWO)
    sent: list[SendDatagram] = []
    calls = [str(number) for number in range(30)]
    for call_id in calls:
        desk.step(offer(f"o{call_id}", call_id), answer(f"a{call_id}", call_id), Release(call_id, "a", "b"))
    while desk.sent or desk.timers:
        commands, desk.sent = desk.sent, []
        sent += commands
        for _ in commands:
            lie(random, desk, random.choice(sent))
        if desk.timers and not desk.sent:
            desk.fire()
    described = [report.key for report in desk.reports if isinstance(report, Described)]
    assert sorted(described) == sorted(f"{kind}{call_id}" for kind in "oa" for call_id in calls)
    assert len(sent) <= len(calls) * TRIES_MAX * 4, "an offer at both relays, an answer and a deletion at one"
    assert len(desk.driver) == 0


def lie(random: Random, desk: Desk, command: SendDatagram) -> None:
    """Answer a command, of now or of earlier, with something."""
    cookie = ng.read_command(command.data).cookie
    port, host = random.choice([0, 53, 70_000]), random.choice(["127.0.0.1", "224.0.0.1", "no.address", ""])
    sdp = f"v=0\r\nc=IN IP4 {host}\r\nm=application {port} UDP x\r\n"
    replies: list[ng.Fields] = [
        {"result": "ok", "sdp": sdp * random.choice([1, 2_000])},
        {"result": "ok"},
        {"result": random.choice(["error", "load limit", "what"]), "error-reason": "x" * random.choice([0, 60_000])},
        {},
    ]
    source = random.choice([command.destination, command.destination, ONE, TWO, ("203.0.113.6", 2223)])
    cookie = random.choice([cookie, cookie, cookie[:-1], cookie + b"0"])
    for _ in range(random.choice([0, 1, 1, 2])):
        desk.step(DatagramReceived(SOCKET, source, ng.write_reply(cookie, random.choice(replies))[:65_507]))
