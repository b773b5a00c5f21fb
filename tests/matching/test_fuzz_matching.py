"""The long comparison of the index with evaluation, in short; it finds inserted faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fuzz import __main__ as command
from fuzz import matching, target_runs
from tests.short_fuzz import short_run
from wanderbus.event import Event
from wanderbus.filters import Filter
from wanderbus.matching import Index

INPUTS = 20
CPU_S_MAX = 2.0
"""Guard against endless loops; `./do fuzz` checks the promised bound."""
BY_NAME = {target.name: target for target in matching.TARGETS}


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_differs_and_most_inputs_match(name: str) -> None:
    tally = short_run(BY_NAME[name], INPUTS, CPU_S_MAX)
    assert [(failure.kind, failure.detail) for failure in tally.failures] == []
    assert tally.inputs == INPUTS
    assert tally.accepted > INPUTS / 2


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_differs_among_many(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "CROWDED_EACH", 1)
    BY_NAME[name].examine(target_runs.input_of(BY_NAME[name], 7, 0))


def test_an_input_compares_the_declared_number_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    plays: list[matching.Play] = []
    step = matching.Play.step

    def noted(play: matching.Play) -> None:
        plays.append(play)
        step(play)

    monkeypatch.setattr(matching.Play, "step", noted)
    target = BY_NAME["matching-numpy"]
    target.handle(target_runs.input_of(target, 7, 0))
    assert plays[-1].pairs >= target.pairs > 0


class Wrong(Index):
    """An index that does ``wrong`` to the answer of each event."""

    wrong: Callable[[list[str]], list[str]] = staticmethod(lambda ids: ids)

    def match(self, events: Sequence[Event]) -> list[list[str]]:
        return [self.wrong(ids) for ids in super().match(events)]


class Keeping(Index):
    """An index that removes nothing."""

    def remove(self, id: str) -> None:
        pass


class ForgettingMany(Index):
    """An index that is right until it has a thousand filters, and then puts no more in."""

    def add(self, id: str, subject: str, filter: Filter) -> None:
        super().add(id, subject, filter)
        if len(self) > 1_000:
            super().remove(id)
            super().add(id, "another subject", filter)


def broken(monkeypatch: pytest.MonkeyPatch, index: type[Index], inputs: int = 20) -> list[str]:
    """Return how the first inputs fail with an index that is wrong."""
    monkeypatch.setattr(matching, "index_of", lambda kernel: index())
    target = BY_NAME["matching-numpy"]
    tally = short_run(target, inputs, CPU_S_MAX)
    return [failure.detail for failure in tally.failures]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda ids: ids[1:], "missing (alone too)"),
        (lambda ids: ids if len(ids) < 2 else ids[1:], "missing (among others only)"),
        (lambda ids: ids + ids[:1], "an id came more than once"),
        (lambda ids: [*ids, "nobody"], "too many: 'nobody', which was removed"),
    ],
)
def test_wrong_answers_are_seen(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[list[str]], list[str]], said: str
) -> None:
    monkeypatch.setattr(Wrong, "wrong", staticmethod(wrong))
    assert any(detail.startswith(said) for detail in broken(monkeypatch, Wrong))


def test_a_missing_removal_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken(monkeypatch, Keeping)


def test_a_fault_that_needs_many_filters_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not broken(monkeypatch, ForgettingMany, inputs=3)
    monkeypatch.setattr(matching, "CROWDED_EACH", 1)
    details = broken(monkeypatch, ForgettingMany, inputs=3)
    assert details
    assert all(detail.startswith("missing (among others only)") for detail in details)


def test_a_difference_is_saved_with_its_replay_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(matching, "index_of", lambda kernel: Wrong())
    line = ["matching", "--target", "matching-numpy", "--jobs", "1", "--failures", str(tmp_path)]
    assert command.main([*line, "--pairs", "1200"]) == 0
    monkeypatch.setattr(Wrong, "wrong", staticmethod(lambda ids: ids[1:]))
    assert command.main([*line, "--pairs", "1200"]) == 1
    replayed = capsys.readouterr().err.rsplit("replay it with: ./do fuzz ", 1)[1].split()
    assert command.main(replayed) == 1
    monkeypatch.setattr(Wrong, "wrong", staticmethod(lambda ids: ids))
    assert command.main(replayed) == 0


def test_pairs_are_so_many_inputs_of_each_target() -> None:
    assert command.inputs_asked(matching.TARGETS, None, 1_000_000) * matching.PAIRS == 1_000_000
    assert command.inputs_asked(matching.TARGETS, 5, 1_000_000) == 5
    assert command.inputs_asked(command.NAMES["sip"], None, 1_000_000) == command.INPUTS
