"""The fuzzer in short: two thousand inputs for each parser; it finds inserted faults (DESIGN 9)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from random import Random

import pytest

from fuzz import __main__ as command
from fuzz import sip, sip_grammar, target_runs
from fuzz.target_runs import Broken, Target
from tests.short_fuzz import check_run, short_run
from wanderbus.errors import SIPParseError
from wanderbus.sip.authentication.digest_values import Challenge, Credentials
from wanderbus.sip.message.message import parse_message

INPUTS = 2_000
BY_NAME = {target.name: target for target in sip.TARGETS}


def target(handle: object = lambda data: True, examine: object = lambda data: None) -> Target:
    return Target("sip-sdp", lambda random: random.randbytes(8), handle, examine)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_breaks_and_both_ways_are_gone(name: str) -> None:
    tally = short_run(BY_NAME[name], INPUTS)
    check_run(tally, INPUTS)
    assert tally.memory_measured > INPUTS / target_runs.SAMPLED_EACH
    assert 0 < tally.peak_bytes <= target_runs.MEMORY_BYTES_MAX


def test_inputs_depend_on_seed_target_and_index_alone() -> None:
    one = [target_runs.input_of(BY_NAME["sip-message"], 3, index) for index in range(20)]
    assert one == [target_runs.input_of(BY_NAME["sip-message"], 3, index) for index in range(20)]
    assert len(set(one)) > 15
    assert one != [target_runs.input_of(BY_NAME["sip-message"], 4, index) for index in range(20)]


def test_the_largest_messages_are_read() -> None:
    sizes = []
    for seed in range(60):
        data = sip_grammar.swollen(Random(seed))
        try:
            parse_message(data)
        except SIPParseError:
            continue
        sizes.append(len(data))
    assert max(sizes) > 14_000


def test_every_way_to_break_is_seen() -> None:
    def undeclared(data: bytes) -> bool:
        raise IndexError("x")

    def different(data: bytes) -> bool:
        raise Broken("x")

    def slow(data: bytes) -> bool:
        began = time.process_time()
        while time.process_time() - began <= target_runs.CPU_S_MAX:
            pass
        return True

    def examine(data: bytes) -> None:
        raise KeyError("x")

    broken = [target(undeclared), target(different), target(slow), target(examine=examine)]
    judged = [target_runs.judge(each, b"x")[2] for each in broken]
    assert [failure and failure.kind for failure in judged] == ["undeclared", "broken", "slow", "undeclared"]
    assert target_runs.judge(target(), b"x")[2] is None


def test_too_much_memory_is_seen() -> None:
    tally = target_runs.run_chunk(target(lambda data: bool(bytes(target_runs.MEMORY_BYTES_MAX + 1))), 1, range(2))
    assert {failure.kind for failure in tally.failures} == {"memory"}


def test_all_processors_come_to_what_one_does() -> None:
    def figures(jobs: int) -> list[tuple[int, int, int]]:
        tallies = [target_runs.run(each, 300, seed=5, until=time.monotonic() + 60, jobs=jobs) for each in sip.TARGETS]
        return [(tally.inputs, tally.accepted, tally.largest_input_bytes) for tally in tallies]

    assert figures(2) == figures(1)


def test_a_run_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_runs, "CHUNK_INPUTS", 10)
    tally = target_runs.run(target(), 1_000, seed=1, until=time.monotonic(), jobs=1)
    assert tally.inputs == 10


def test_command_writes_figures_and_goals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "figures.json"
    arguments = ["sip", "--inputs", "40", "--jobs", "1", "--strict", "--json", str(written)]
    assert command.main(arguments) == 0
    figures = json.loads(written.read_text(encoding="utf-8"))
    assert figures["command"] == "fuzz sip"
    assert [(result["target"], result["inputs"]) for result in figures["results"]] == [(name, 40) for name in BY_NAME]
    goals = {goal["name"]: goal for goal in figures["goals"]}
    assert goals["fuzz_unhandled"] == {"name": "fuzz_unhandled", "value": 0, "unit": "inputs", "goal": 0, "met": True}
    assert command.main([*arguments, "--seconds", "0", "--inputs", "9000"]) == 1
    assert "not met: fuzz_inputs" in capsys.readouterr().err


def test_command_saves_what_failed_and_replays_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def odd(data: bytes) -> bool:
        if data[0] % 2:
            raise ValueError("odd")
        return True

    monkeypatch.setitem(command.NAMES, "sip", [target(odd)])
    assert command.main(["sip", "--inputs", "20", "--jobs", "1", "--failures", str(tmp_path)]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "--replay" in line]
    saved = [Path(line.rpartition(" ")[2]) for line in lines]
    assert saved
    assert set(saved) == set(tmp_path.iterdir())
    assert command.main(["sip", "--replay", str(saved[0])]) == 1
    assert "ValueError: odd" in capsys.readouterr().out
    good = tmp_path / "sip-sdp-good"
    good.write_bytes(b"\0")
    assert command.main(["sip", "--replay", str(good)]) == 0
    assert command.main(["sip", "--replay", str(tmp_path / "other")]) == 2


def test_a_digest_value_may_grow_when_it_is_written_again() -> None:
    """The bound is on the unescaped value: escapes, and lower-case letters longer than their capitals, do not count."""
    for text in ('Digest realm="' + "\x01" * 600 + '", nonce="n"', f'Digest realm="a",nonce="n",qop="{"İ" * 1024}"'):
        challenge = Challenge.parse(text)
        assert Challenge.parse(str(challenge)) == challenge
    credentials = Credentials.parse(f'Digest username="u",realm="a",nonce="n",uri="u",response="{"İ" * 1024}"')
    assert Credentials.parse(str(credentials)) == credentials
