"""Seeded worlds of reliable UDP: every promise holds, seeds repeat themselves, and broken endpoints are noticed.

Each sabotage takes one safeguard out of the endpoint; the problem that the worlds then report has to name it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from wanderbus.api.detecting import Judgement, Observed, Verdict
from wanderbus.detection import RetriesDetector
from wanderbus.rudp import Endpoint, RudpConfig
from wanderbus.rudp.ack_tracker import PacketNumbers
from wanderbus.rudp.connection import Connection
from wanderbus.rudp.frames import HEADER_BYTES, DataFrame, decode_frames
from wanderbus.rudp.packets import Packets
from wanderbus.rudp.paths import PathValidation
from wanderbus.rudp.probing import Probing
from wanderbus.rudp.receiving import Receiver
from wanderbus.rudp.recovery import RoundTrip
from wanderbus.rudp.sealing import SEAL_BYTES, Sealer
from wanderbus.rudp.sending import Sender
from wanderbus.simulation.rudp import party
from wanderbus.simulation.rudp.scenario import RudpScenario

CALM_SEED = next(seed for seed in range(1, 100) if RudpScenario(seed).calm)
ROUGH_SEED = next(seed for seed in range(1, 100) if not RudpScenario(seed).calm)
SEEDS = range(1, 201)
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", range(1, 31))
def test_every_promise_holds(seed: int) -> None:
    """SPEC F-02 to F-10, X15, X16, U-07: once, in order and in time; failures are reported; forgeries are refused."""
    assert RudpScenario.run_seed(seed).problems == []


@pytest.mark.parametrize("seed", range(1, 9))
def test_g26_worlds_with_a_detector_of_the_application(seed: int, monkeypatch: Patch) -> None:
    """Every promise holds with a detector that probes while it waits, and decides as the default does."""
    asked: list[Observed] = []

    class Probing:
        def judge(self, observed: Observed) -> Verdict:
            asked.append(observed)
            judgement: Judgement = "alive" if observed.waiting_since is None else "probe"
            if observed.retries > RudpConfig().retries_max:
                judgement = "gone"
            return Verdict(judgement, overdue_s=5.0, at_retries=True)

    class Detecting(Endpoint):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named, make_detector=Probing)

    monkeypatch.setattr(party, "Endpoint", Detecting)
    assert RudpScenario.run_seed(seed).problems == []
    assert asked


def test_thirty_seeds_have_enough_happening_in_them() -> None:
    """A checker would accept any history without events."""
    results = [RudpScenario.run_seed(seed) for seed in range(1, 31)]
    for field, least in (
        ("messages", 3_000),
        ("moves", 20),
        ("rebindings", 10),
        ("learnt", 5),
        ("failures", 2),
        ("resets", 2),
        ("injected", 500),
    ):
        assert sum(result.counts[field] for result in results) > least, field


@pytest.mark.parametrize("seed", [CALM_SEED, ROUGH_SEED])
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    """SPEC U-07."""
    first, second = (RudpScenario(seed, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace


def test_different_seeds_give_different_histories() -> None:
    assert RudpScenario.run_seed(CALM_SEED).fingerprint != RudpScenario.run_seed(ROUGH_SEED).fingerprint


def believe_repeated_packets(patch: Patch) -> None:
    patch.setattr(PacketNumbers, "is_new", lambda self, number: True)


def deliver_repeated_frames(patch: Patch) -> None:
    take = Receiver.take

    def take_all(self: Receiver, frames: list[DataFrame]) -> list[bytes]:
        again = [payload for number, _, payload in frames if number < self._due]
        return again + take(self, frames)

    patch.setattr(Receiver, "take", take_all)


def deliver_out_of_order(patch: Patch) -> None:
    take = Receiver.take

    def take_early(self: Receiver, frames: list[DataFrame]) -> list[bytes]:
        if frames and frames[0][0] > self._due:
            self._due = frames[0][0]
        return take(self, frames)

    patch.setattr(Receiver, "take", take_early)


def never_retransmit(patch: Patch) -> None:
    give_up = Sender._give_up

    def forget(self: Sender, bundle: Any, sent_at: float | None) -> None:
        give_up(self, bundle, sent_at)
        bundle.confirmed = True

    patch.setattr(Sender, "_give_up", forget)


def never_give_up(patch: Patch) -> None:
    patch.setattr(RetriesDetector, "judge", lambda _self, _observed: Verdict(at_retries=True))


def give_up_early(patch: Patch) -> None:
    def impatient(_self: RetriesDetector, observed: Observed) -> Verdict:
        return Verdict("gone" if observed.retries > 2 else "alive", at_retries=True)

    patch.setattr(RetriesDetector, "judge", impatient)


def never_back_off(patch: Patch) -> None:
    patch.setattr(RoundTrip, "backed_off_s", lambda self, retries: self.timeout_s)


def back_off_too_much(patch: Patch) -> None:
    patch.setattr(RoundTrip, "backed_off_s", lambda self, retries: self.timeout_s * 3**retries)


def learn_paths_without_challenge(patch: Patch) -> None:
    def look(self: Connection, header: Any, source: Any, *rest: Any) -> None:
        if header[-1] == self._arrivals.newest and source != self.remote:
            self._switch_path(source)

    patch.setattr(Connection, "_check_path", look)


def never_learn_paths(patch: Patch) -> None:
    patch.setattr(Connection, "_check_path", lambda *arguments: None)


def challenge_without_measure(patch: Patch) -> None:
    received = PathValidation.received
    patch.setattr(PathValidation, "received", lambda self, source, size_bytes: received(self, source, 10 * size_bytes))
    patch.setattr("wanderbus.rudp.paths.CHALLENGES_MAX", 50)


def believe_old_generations(patch: Patch) -> None:
    def change(self: Connection, remote: Any, generation: int) -> None:
        self._peer_generation = generation
        self._switch_path(remote)

    patch.setattr(Connection, "change_path", change)


def never_say_where_we_are(patch: Patch) -> None:
    patch.setattr(Connection, "change_path", lambda *arguments: None)


def send_beyond_the_grant(patch: Patch) -> None:
    make = Sender.__init__

    def made(self: Sender, *arguments: Any) -> None:
        make(self, *arguments)
        self.granted = 2**62

    patch.setattr(Sender, "__init__", made)


def never_grant_more(patch: Patch) -> None:
    patch.setattr(Receiver, "next_grant", lambda self: None)


def ignore_tags(patch: Patch) -> None:
    """A packet with an invalid tag is read as the frames of the last genuine packet."""
    opening = Sealer.open
    last = b"\x04"

    def opened(self: Sealer, packet: bytes, number: int, epoch: int) -> bytes | None:
        nonlocal last
        frames = opening(self, packet, number, epoch)
        if frames is not None:
            last = frames
        return frames if frames is not None or len(packet) < HEADER_BYTES + SEAL_BYTES else last

    patch.setattr(Sealer, "open", opened)


def take_plain_for_sealed(patch: Patch) -> None:
    opening = Packets.open

    def opened(self: Packets, header: Any, packet: bytes) -> Any:
        if header[2] == 0x03 and self._sealer is not None:
            return decode_frames(packet, HEADER_BYTES)
        return opening(self, header, packet)

    patch.setattr(Packets, "open", opened)


def believe_any_reset(patch: Patch) -> None:
    patch.setattr("wanderbus.rudp.endpoint.hmac.compare_digest", lambda left, right: True)


def use_numbers_again(patch: Patch) -> None:
    send = Packets.send

    def repeat(self: Packets, *arguments: Any) -> None:
        send(self, *arguments)
        self.next_number -= self.next_number == 20

    patch.setattr(Packets, "send", repeat)


def acknowledge_the_next(patch: Patch) -> None:
    acknowledge = PacketNumbers.acknowledge
    patch.setattr(PacketNumbers, "acknowledge", lambda self, number: acknowledge(self, number + (number == 20)))


def acknowledge_some(patch: Patch) -> None:
    acknowledge = PacketNumbers.acknowledge
    patch.setattr(PacketNumbers, "acknowledge", lambda self, number: number % 16 and acknowledge(self, number))


def keep_what_is_done_with(patch: Patch) -> None:
    acknowledged = Sender.acknowledged

    def hoard(self: Sender, ack: Any, now: float) -> None:
        acknowledged(self, ack, now)
        self._earlier[-1 - len(self._earlier)] = (ack, now)  # no packet has such a number

    patch.setattr(Sender, "acknowledged", hoard)


def leave_timers(patch: Patch) -> None:
    patch.setattr(Connection, "close", lambda self, outputs: None)


def never_answer_probes(patch: Patch) -> None:
    patch.setattr(Probing, "receive", lambda *arguments: None)


def never_finish(patch: Patch) -> None:
    patch.setattr(Sender, "finish", lambda self: None)


def acknowledge_last_words_once(patch: Patch) -> None:
    patch.setattr(PacketNumbers, "acknowledge_again", lambda self: None)


def ping_for_ever(patch: Patch) -> None:
    see_to_timer = Connection._update_timer

    def restless(self: Connection, deadline: float | None, outputs: Any) -> None:
        see_to_timer(self, 1e6 if deadline is None else deadline, outputs)

    patch.setattr(Connection, "_update_timer", restless)


SABOTAGES: dict[Callable[[Patch], None], str] = {
    believe_repeated_packets: "as fresh again",
    deliver_repeated_frames: "is not the one that was sent",
    deliver_out_of_order: "is not the one that was sent",
    never_retransmit: "are outstanding",
    never_give_up: "into silence",
    give_up_early: "failed though",
    never_back_off: "repeated DATA",
    back_off_too_much: "repeated DATA",
    learn_paths_without_challenge: "more than came from there",
    never_learn_paths: "failed in a calm world",
    challenge_without_measure: "more than came from there",
    believe_old_generations: "failed in a mended world",
    never_say_where_we_are: "failed in a calm world",
    send_beyond_the_grant: "were granted",
    never_grant_more: "are outstanding",
    ignore_tags: "which never arrived",
    take_plain_for_sealed: "which never arrived",
    believe_any_reset: "was reset though the peer lives",
    use_numbers_again: "used packet number 19 again",
    acknowledge_the_next: "which never arrived",
    acknowledge_some: "did not acknowledge",
    keep_what_is_done_with: "the endpoint keeps",
    leave_timers: "timers are left",
    never_answer_probes: "no probe of a failed connection",
    never_finish: "did not hear that this was all",
    acknowledge_last_words_once: "may leave while the peer waits",
    ping_for_ever: "timers are left at rest",
}


_NOTICED_BY: Final[dict[Callable[[Patch], None], int]] = {challenge_without_measure: 84, never_answer_probes: 35}
"""A seed that notices, to be tried first, where that saves many others."""


@pytest.mark.integration
@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.__name__)
def test_the_worlds_notice(sabotage: Callable[[Patch], None], monkeypatch: Patch) -> None:
    sabotage(monkeypatch)
    found: set[str] = set()
    for seed in (_NOTICED_BY.get(sabotage, SEEDS.start), *SEEDS):
        found.update(RudpScenario.run_seed(seed).problems)
        if any(SABOTAGES[sabotage] in problem for problem in found):
            return
    pytest.fail(f"{len(SEEDS)} seeds did not notice; they found {sorted(found)[:5]}")
