"""Repetitions of an attack that misses its ratio of latencies, and the exit status."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.workers import WorkerError
from hostile import __main__ as command
from hostile.scene import damaged
from hostile.table import BY_NAME
from hostile.tally import Figures


class Ratios:
    """Replaces the scenes: each run of an attack has the next of these ratios."""

    def __init__(self, *ratios: float) -> None:
        self.left = list(ratios)

    @contextlib.contextmanager
    def __call__(self, *arguments: object, is_federated: bool) -> Iterator[Ratios]:
        yield self

    def play(self) -> Figures:
        ratio = self.left.pop(0)
        if ratio < 0:
            raise WorkerError("Traceback\nthe process of a job ended")
        beside = {"p99_ms_baseline": 1.0, "p99_ms_attack": ratio}
        return Figures(0, 0, 0, ratio, 0.1, 0.0, 0, 1.0, beside=beside)


@pytest.mark.parametrize(
    ("name", "ratios", "median", "left"),
    [
        ("garbage", (1.5, 9), 1.5, 1),
        ("garbage", (4, 1.2, 1.1), 1.2, 0),
        ("garbage", (4, 1.2, 3), 3, 0),
        ("damaged_state", (4, 1.2, 1.1), 4, 2),
    ],
)
def test_a_ratio_that_is_not_met_is_measured_twice_more(
    monkeypatch: pytest.MonkeyPatch, name: str, ratios: tuple[float, ...], median: float, left: int
) -> None:
    scenes = Ratios(*ratios)
    monkeypatch.setattr(command, "scene", scenes)
    assert command.run(BY_NAME[name], 1, 1, 3).good_p99_ratio == median
    assert len(scenes.left) == left


@pytest.mark.parametrize(
    ("arguments", "ratio", "status"), [([], 1.4, 0), (["--quick"], 1.6, 1), (["--ci"], 1.6, 0), (["--ci"], -1, 1)]
)
def test_the_exit_status_goes_by_all_goals_but_for_ratios_in_continuous_integration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], ratio: float, status: int
) -> None:
    monkeypatch.setattr(command, "scene", Ratios(ratio))
    report = tmp_path / "report.json"
    assert command.main([*arguments, "garbage", "--json", str(report)]) == status
    written: dict[str, Any] = json.loads(report.read_text())
    met = {goal["name"].partition(":")[2]: goal["met"] for goal in written["goals"]}
    assert met["good_p99_ratio"] == (None if ratio < 0 else ratio <= 1.5)


def test_damage_is_one_byte_of_a_subscription() -> None:
    row = b"\xb3sip:alice@localhost\xa7session\xa7default\xa7subject\xa4Fact\xaaexpression"
    content = b"sip:alice@localhost/1" + bytes(50) + row + bytes(20)
    changed = damaged(content)
    assert [at for at, (old, new) in enumerate(zip(content, changed, strict=True)) if old != new] == [
        content.index(b"Fact")
    ]
    with pytest.raises(RuntimeError, match="no subscription"):
        damaged(bytes(100))
