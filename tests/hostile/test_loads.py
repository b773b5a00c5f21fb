"""Loads of measurements: the server is idle before them, and they last to the end."""

from __future__ import annotations

import itertools

import pytest

from harness import loads
from harness.loads import LoadEndedError, wait_until_idle
from hostile import __main__ as command
from hostile.scene import check_lasted
from hostile.table import BY_NAME


def test_waits_until_the_server_uses_no_more_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "QUIET_S", 0.001)
    used_s = iter([0.0, 0.9, 1.8, 2.5, 2.5, 9.0])
    wait_until_idle(lambda: next(used_s))
    assert next(used_s) == 9.0


def test_a_server_that_is_never_idle_is_no_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "QUIET_S", 0.001)
    monkeypatch.setattr(loads, "IDLE_S_MAX", 0.01)
    used_s = itertools.count()
    with pytest.raises(RuntimeError, match="not idle"):
        wait_until_idle(lambda: next(used_s))


def test_an_attack_that_ends_before_its_phase_is_not_measured() -> None:
    check_lasted("attack", {"lasted_s": 15.9}, 16.0)
    with pytest.raises(LoadEndedError, match=r"the phase baseline lasted for 2\.1 of 8 s"):
        check_lasted("baseline", {"lasted_s": 2.1}, 8.0)


def test_a_run_whose_attack_ended_has_no_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(*arguments: object, is_federated: bool) -> None:
        raise LoadEndedError("the load of the phase attack lasted for 2.1 of 16 s")

    monkeypatch.setattr(command, "scene", ended)
    figures = command.run(BY_NAME["garbage"], 8.0, 16.0, 1)
    assert all(each["value"] is None for each in command.goals(BY_NAME["garbage"], figures))
    assert capsys.readouterr().err == "garbage failed: the load of the phase attack lasted for 2.1 of 16 s\n"
