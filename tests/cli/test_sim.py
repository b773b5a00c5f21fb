"""``wanderbus sim`` and the command's manners: help, exit statuses, files it cannot write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shell import Shell, one_line
from wanderbus.cli import sim
from wanderbus.cli.application import run
from wanderbus.simulation.layers import SCENARIOS, Layer
from wanderbus.simulation.scenario import Result, Scenario

pytestmark = pytest.mark.integration


def test_a_seed_gives_the_same_history_every_time(shell: Shell) -> None:
    """DESIGN rule 3: two processes, two hash seeds, one trace."""
    outputs = []
    for number in (1, 2):
        environment = {"PYTHONHASHSEED": str(number)}
        words = ["sim", "--seed", "5", "--trace", f"trace{number}", "--json", f"results{number}.json"]
        status, out, err = shell.run(*words, environment=environment)
        assert (status, err) == (0, "")
        outputs.append(out.rpartition(", ")[0])
    traces = [(shell.directory / f"trace{number}").read_bytes() for number in (1, 2)]
    assert traces[0] == traces[1]
    assert len(traces[0]) > 10_000
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("1 seeds, 0 failed; ")
    report = json.loads((shell.directory / "results1.json").read_text())
    assert report["command"] == "sim"
    assert report["goals"] == [{"name": "failed", "value": 0, "unit": "seeds", "goal": 0, "met": True}]
    assert report["results"][0]["seed"] == 5


def test_another_seed_gives_another_history(shell: Shell) -> None:
    for seed in ("5", "6"):
        assert shell.run("sim", "--seed", seed, "--trace", f"trace{seed}")[0] == 0
    assert (shell.directory / "trace5").read_bytes() != (shell.directory / "trace6").read_bytes()


def test_several_seeds_run_and_are_counted(shell: Shell) -> None:
    status, out, _ = shell.run("sim", "--seeds", "2", "--first-seed", "40", "--json", "results.json")
    assert (status, out.startswith("2 seeds, 0 failed; ")) == (0, True)
    results = json.loads((shell.directory / "results.json").read_text())["results"]
    assert [each["seed"] for each in results] == [40, 41]


def test_the_layer_of_weeks_counts_what_happened_in_them(shell: Shell) -> None:
    status, out, err = shell.run("sim", "--layer", "weeks", "--seeds", "2", "--json", "results.json")
    assert (status, err) == (0, "")
    assert out.startswith("2 seeds, 0 failed; ")
    report = json.loads((shell.directory / "results.json").read_text())
    assert (report["layer"], report["goals"][0]["met"]) == ("weeks", True)
    assert report["summary"]["days"] == sum(each["days"] for each in report["results"]) >= 14


def test_a_broken_promise_is_exit_status_1_and_names_its_replay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(Scenario):
        def _play(self) -> None:
            self.problems.append("event 7 was lost")

        def _check_promises(self) -> None:
            raise RuntimeError("no state")

        def counts(self) -> dict[str, float]:
            return {}

    monkeypatch.setitem(SCENARIOS, Layer.BROKER, Broken)
    assert run(["sim", "--seed", "9"]) == 1
    printed = capsys.readouterr()
    line = Broken._check_promises.__code__.co_firstlineno + 1
    assert printed.err.splitlines() == [
        "wanderbus: seed 9: event 7 was lost",
        f"wanderbus: seed 9: RuntimeError: no state in _check_promises, test_sim.py:{line}",
        "wanderbus: replay with: wanderbus sim --seed 9 --trace FILE",
    ]
    assert printed.out.startswith("1 seeds, 1 failed; ")


@pytest.mark.parametrize("option", ["--json", "--trace"])
def test_an_unwritable_file_is_reported_before_the_work(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*arguments: object) -> Result:
        raise AssertionError("the work was begun")

    monkeypatch.setattr(sim, "_replay", work)
    for path in (tmp_path / "none" / "file", tmp_path):
        assert run(["sim", "--seed", "1", option, str(path)]) == 2
        assert f"{path} cannot be written" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--help"], 0),
        (["up", "--help"], 0),
        (["pub", "--help"], 0),
        (["sub", "--help"], 0),
        (["sim", "--help"], 0),
        ([], 2),
        (["nonsense"], 2),
        (["up"], 2),
        (["up", "--users", "u", "--port", "65536"], 2),
        (["up", "--users", "u", "--port", "-1"], 2),
        (["pub"], 2),
        (["sub", "Departure", "--user", "a@b", "--count", "0"], 2),
        (["sim", "--seeds", "0"], 2),
        (["sim", "--seeds", "x"], 2),
        (["sim", "--trace", "file"], 2),
    ],
)
def test_exit_statuses(words: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == status
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    assert (printed.out if status == 0 else printed.out + printed.err).strip()


def test_the_module_is_the_command(shell: Shell) -> None:
    status, out, err = shell.run("--help")
    assert (status, err) == (0, "")
    for command in ("up", "pub", "sub", "sim"):
        assert f"\n  {command} " in out
