"""The data channel in SDP, and when an answer means the same connection (DESIGN 6.1, 6.3, SPEC A-08, C-17)."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.errors import SIPParseError
from wanderbus.machine import Address, DatagramReceived, Output, SendDatagram, TimerFired
from wanderbus.mobility.data_channel import ChannelEnd, DataChannel, describe_end, read_end
from wanderbus.rudp import Endpoint, MessageReceived, SendMessage
from wanderbus.sip.sdp import MediaDescription, SessionDescription

HERE: Address = ("10.0.0.1", 40_000)
THERE: Address = ("10.0.0.2", 40_000)


class SeededRandom:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def token(self, n_bytes: int) -> bytes:
        return self._random.randbytes(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


ends = st.builds(
    ChannelEnd,
    st.tuples(st.sampled_from(["10.0.0.1", "2001:db8::1"]), st.integers(1, 65_535)),
    st.integers(1, 2**64 - 1),
    st.integers(0, 2**32 - 1),
)


@given(end=ends)
def test_c17_an_end_survives_its_description_and_its_sdp(end: ChannelEnd) -> None:
    media = describe_end(end)
    assert read_end(media) == end
    whole = SessionDescription("alice", 1, 1, end.address[0], (media,))
    assert read_end(SessionDescription.parse(whole.encode()).media[0]) == end


def test_the_description_reads_as_documented() -> None:
    media = describe_end(ChannelEnd(("10.0.0.1", 40_000), 0x1F00C3A8D2B94E61, 3))
    sdp = SessionDescription("alice", 1, 1, "10.0.0.1", (media,)).encode().decode()
    assert "m=application 40000 UDP x-wanderbus\r\n" in sdp
    assert "a=rudp-connection:1f00c3a8d2b94e61\r\n" in sdp
    assert "a=rudp-generation:3\r\n" in sdp


@pytest.mark.parametrize(
    "attributes",
    [
        (),
        (("rudp-connection", "1f"),),
        (("rudp-generation", "1"),),
        (("rudp-connection", None), ("rudp-generation", "1")),
        (("rudp-connection", "xyz"), ("rudp-generation", "1")),
        (("rudp-connection", "0"), ("rudp-generation", "1")),
        (("rudp-connection", "-1"), ("rudp-generation", "1")),
        (("rudp-connection", "1" + "0" * 16), ("rudp-generation", "1")),
        (("rudp-connection", "1f"), ("rudp-generation", "-1")),
        (("rudp-connection", "1f"), ("rudp-generation", str(2**32))),
        (("rudp-connection", "1f"), ("rudp-generation", "1.5")),
        (("rudp-connection", "1f"), ("rudp-generation", "9" * 5_000)),
    ],
)
def test_a_description_without_an_end_is_answered_488(attributes: tuple[tuple[str, str | None], ...]) -> None:
    with pytest.raises(SIPParseError) as caught:
        read_end(MediaDescription(address="10.0.0.1", port=1, attributes=attributes))
    assert caught.value.status == 488


class Side:
    """One end of a call: an endpoint, the channel, and where it is."""

    def __init__(self, seed: int, address: Address) -> None:
        self.endpoint = Endpoint(SeededRandom(seed))
        self.channel = DataChannel(self.endpoint)
        self.address = address
        self.generation = 0

    @property
    def end(self) -> ChannelEnd:
        return ChannelEnd(self.address, self.channel.local, self.generation)


class Call(NamedTuple):
    caller: Side
    callee: Side

    def agree(self, *, lost_answer: bool = False) -> tuple[bool | None, bool]:
        """Offer and answer once; whether each side thinks that the connection is new."""
        self.caller.channel.offer(0.0)
        callee_new, callee_out = self.callee.channel.accept(self.caller.end, 0.0)
        if lost_answer:
            return None, callee_new
        caller_new, caller_out = self.caller.channel.agreed(self.callee.end, 0.0)
        self.carry(self.caller, caller_out)
        self.carry(self.callee, callee_out)
        return caller_new, callee_new

    def carry(self, sender: Side, outputs: list[Output]) -> list[bytes]:
        """Deliver datagrams that are sent to where the other side is, and all that follows; what was heard."""
        heard: list[bytes] = []
        queue = [(sender, output) for output in outputs]
        while queue:
            side, output = queue.pop(0)
            other = self.callee if side is self.caller else self.caller
            match output:
                case SendDatagram(destination=destination, data=data) if destination == other.address:
                    received = other.endpoint.step([DatagramReceived("data", side.address, data)], 0.0)
                    queue += [(other, each) for each in received]
                case MessageReceived(payload=payload):
                    heard.append(payload)
        return heard

    def send(self, sender: Side, payload: bytes) -> list[bytes]:
        return self.carry(sender, sender.endpoint.step([SendMessage(sender.channel.local, payload)], 0.0))


@pytest.fixture
def call() -> Call:
    return Call(Side(1, HERE), Side(2, THERE))


def test_the_first_agreement_opens_the_connection_on_both_sides(call: Call) -> None:
    assert call.agree() == (True, True)
    assert call.send(call.caller, b"one") == [b"one"]
    assert call.send(call.callee, b"two") == [b"two"]


@pytest.mark.parametrize("mover", ["caller", "callee"])
def test_a_move_keeps_the_connection_and_changes_its_path(call: Call, mover: str) -> None:
    call.agree()
    ids = (call.caller.channel.local, call.callee.channel.local)
    side: Side = getattr(call, mover)
    side.address, side.generation = ("10.0.9.9", 40_000), 1
    assert call.agree() == (False, False)
    assert (call.caller.channel.local, call.callee.channel.local) == ids
    other = call.callee if side is call.caller else call.caller
    assert call.send(other, b"follows") == [b"follows"]


def test_a_lost_connection_is_begun_anew_on_both_sides_with_fresh_ids(call: Call) -> None:
    call.agree()
    ids = {call.caller.channel.local, call.callee.channel.local}
    call.caller.channel.lost()
    assert call.agree() == (True, True)
    assert ids.isdisjoint({call.caller.channel.local, call.callee.channel.local})
    assert call.send(call.caller, b"anew") == [b"anew"]


def test_a_callee_that_lost_it_answers_with_a_fresh_id_and_the_caller_follows(call: Call) -> None:
    """As after a restart of the broker, when the agent has not noticed yet."""
    call.agree()
    call.callee.channel.lost()
    assert call.agree() == (True, True)
    assert call.send(call.callee, b"anew") == [b"anew"]


def test_a_callee_that_was_restarted_opens_anew() -> None:
    call = Call(Side(1, HERE), Side(2, THERE))
    call.agree()
    restarted = Call(call.caller, Side(3, THERE))
    assert restarted.agree() == (True, True)
    assert restarted.send(restarted.caller, b"anew") == [b"anew"]


@pytest.mark.parametrize(("loser", "second"), [("caller", (True, True)), ("callee", (True, False))])
def test_an_answer_that_was_lost_does_not_part_the_two(call: Call, loser: str, second: tuple[bool, bool]) -> None:
    call.agree()
    getattr(call, loser).channel.lost()
    assert call.agree(lost_answer=True) == (None, True)
    assert call.agree() == second
    assert call.send(call.caller, b"one") == [b"one"]
    assert call.send(call.callee, b"two") == [b"two"]


def test_an_old_path_cannot_override_a_new_one(call: Call) -> None:
    """A late answer to an earlier offer names an address that is no more (DESIGN 6.1)."""
    call.agree()
    old = call.callee.end
    call.callee.address, call.callee.generation = ("10.0.9.9", 40_000), 2
    call.agree()
    _, outputs = call.caller.channel.agreed(old, 0.0)
    assert outputs == []
    assert call.send(call.caller, b"there") == [b"there"]


def test_offering_twice_while_nothing_is_agreed_forgets_the_first_id(call: Call) -> None:
    call.caller.channel.offer(0.0)
    first = call.caller.channel.local
    call.caller.channel.offer(0.0)
    assert call.caller.channel.local != first
    assert call.agree() == (True, True)


def test_a_closed_channel_hears_nothing_more(call: Call) -> None:
    call.agree()
    call.callee.channel.close(0.0)
    assert call.send(call.caller, b"late") == []
    assert call.callee.channel.remote is None
    assert call.callee.endpoint.step([TimerFired(call.callee.channel.local)], 9.0) == []
