"""The fuzzer of the data channel in short: some hundred inputs for each target; it finds inserted faults (DESIGN 9)."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz import __main__ as command
from fuzz import channel, rudp, rudp_endpoint, rudp_grammar, rudp_openings, target_runs
from fuzz.script import acts_of, written
from tests.short_fuzz import check_run, short_run
from wanderbus.datachannel import Parties
from wanderbus.rudp import connection, frames
from wanderbus.rudp.paths import PathValidation
from wanderbus.rudp.receiving import Receiver
from wanderbus.rudp.sending import Sender
from wanderbus.tcp import frames as tcp_frames

INPUTS = 500
BY_NAME = {target.name: target for target in rudp.TARGETS}
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_breaks_and_both_ways_are_gone(name: str) -> None:
    tally = short_run(BY_NAME[name], INPUTS)
    check_run(tally, INPUTS, least=50)
    assert 0 < tally.peak_bytes <= target_runs.MEMORY_BYTES_MAX


@pytest.mark.parametrize("name", BY_NAME)
def test_inputs_depend_on_seed_target_and_index_alone(name: str) -> None:
    one = [target_runs.input_of(BY_NAME[name], 3, index) for index in range(20)]
    assert one == [target_runs.input_of(BY_NAME[name], 3, index) for index in range(20)]
    assert len(set(one)) > 15


def test_a_script_is_read_as_it_was_written_and_any_bytes_are_one() -> None:
    acts = [(3, b"abc"), (255, b""), (0, bytes(65_535))]
    assert list(acts_of(written(acts))) == acts
    assert list(acts_of(b"\x01")) == [(1, b"")]
    assert list(acts_of(b"\x01\x00\x05ab")) == [(1, b"ab")]


@pytest.mark.parametrize("sealed", [False, True])
def test_the_peers_packets_are_taken(sealed: bool) -> None:
    """Otherwise the scripts would test only the first checks."""
    victim = rudp_endpoint.Victim(sealed=sealed)
    for packet in rudp_grammar.packets(sealed=sealed):
        victim.receive(packet)
    assert victim.delivered == 6
    assert victim.endpoint.counters.dropped == 0


def test_a_peer_of_the_tcp_endpoint_that_has_the_secret_is_listened_to() -> None:
    for act in (0, 1):
        victim = channel.Victim()
        victim.act(3, bytes([act]))
        victim.act(1, b"\0" + tcp_frames.encode(tcp_frames.DATA, 0, b"hello"))
        assert victim.delivered == 1


def test_a_hello_with_the_secret_is_welcomed() -> None:
    for sealed in (False, True):
        target = rudp_openings.Target(sealed=sealed)
        target.act(0, bytes([1] * 8) + b"\0")
        assert target.accepted == 1


def leave_out_checks(patch: Patch) -> None:
    """A FINISH frame that is cut short."""
    patch.setattr("wanderbus.rudp.frames.struct.error", KeyError)


def grow_without_end(patch: Patch) -> None:
    take = Receiver.take

    def hoard(self: Receiver, given: Any) -> list[bytes]:
        self._ahead |= {2**32 + len(self._ahead) + more: given[0] for more in range(1_000)}
        return take(self, given)

    patch.setattr(Receiver, "take", hoard)


def answer_more_than_was_asked(patch: Patch) -> None:
    patch.setattr(PathValidation, "received", lambda self, source, size: setattr(self, "_credit_bytes", 10**6))
    patch.setattr("wanderbus.rudp.paths.CHALLENGES_MAX", 1_000)


def ping_back(patch: Patch) -> None:
    transmit = connection.Connection._transmit

    def chatty(self: Any, now: float, outputs: Any) -> bool:
        for _ in range(20):
            self._packets.send(frames.PING_FRAME, self.remote, outputs)
        return transmit(self, now, outputs)

    patch.setattr(connection.Connection, "_transmit", chatty)


def trust_acknowledgements(patch: Patch) -> None:
    """One for a packet that was never sent."""
    acknowledged = Sender.acknowledged

    def careless(self: Sender, ack: Any, now: float) -> None:
        acknowledged(self, ack, now)
        if ack[0] > 2**60:
            raise OverflowError("of an ACK")

    patch.setattr(Sender, "acknowledged", careless)

    def take(self: Any, acks: Any, now: float) -> None:
        for ack in acks:
            careless(self.sender, ack, now)

    patch.setattr(connection.Connection, "_take_acks", take)


def believe_any_description(patch: Patch) -> None:
    patch.setattr(Parties, "check", lambda self, end, *, encryption: None)


BROKEN = {
    leave_out_checks: ("rudp-frames", "undeclared"),
    grow_without_end: ("rudp-endpoint", "broken"),
    answer_more_than_was_asked: ("rudp-endpoint", "broken"),
    ping_back: ("rudp-endpoint", "broken"),
    trust_acknowledgements: ("rudp-endpoint", "undeclared"),
    believe_any_description: ("channel-sdp", "broken"),
}


@pytest.mark.parametrize("sabotage", BROKEN, ids=lambda sabotage: sabotage.__name__)
def test_the_fuzzer_notices(sabotage: Any, monkeypatch: Patch) -> None:
    name, kind = BROKEN[sabotage]
    sabotage(monkeypatch)
    target = BY_NAME[name]
    judged = (target_runs.judge(target, target_runs.input_of(target, 1, index))[2] for index in range(2_000))
    assert any(failure is not None and failure.kind == kind for failure in judged)


def test_the_goals_are_those_of_every_fuzzer(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    path = tmp_path / "figures.json"
    assert command.main(["rudp", "--inputs", "20", "--jobs", "1", "--json", str(path)]) == 0
    assert '"fuzz_unhandled"' in path.read_text(encoding="utf-8")
    assert capsys.readouterr().out.count(" failures") == len(rudp.TARGETS)
