"""The attacks of ``./do hostile``: their names, and their goals in the list of all goals."""

from __future__ import annotations

import re

import pytest

from bench import goals as listed
from hostile import __main__ as command
from hostile.table import ATTACKS, BY_NAME
from hostile.tally import Figures


def test_names_are_words_and_each_is_one_attack() -> None:
    assert len(BY_NAME) == len(ATTACKS)
    for attack in ATTACKS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", attack.name)
        assert attack.summary
        assert not attack.summary.endswith(".")


def test_every_goal_of_every_attack_is_in_the_list_of_goals() -> None:
    (measurement,) = [each for each in listed.read() if each.name == "hostile"]
    emitted = {str(each["name"]): each["goal"] for attack in ATTACKS for each in command.goals(attack, Figures())}
    emitted |= {str(each["name"]): each["goal"] for each in command.costliest([(each, Figures()) for each in ATTACKS])}
    bounds = {each.name: float(each.bound.partition(" ")[2]) for each in measurement.goals}
    assert bounds == emitted


def test_only_attacks_by_the_input_of_users_count_for_the_costliest_input() -> None:
    base = ATTACKS[0]._replace(user_input=True)
    stopped = base._replace(name="stopped", user_input=False)
    (found,) = command.costliest([(base, Figures(good_p99_ratio=1.2)), (stopped, Figures(good_p99_ratio=40.0))])
    assert (found["value"], found["met"]) == (1.2, True)
    (found,) = command.costliest([(base, Figures(good_p99_ratio=1.2)), (base, Figures(good_p99_ratio=1.7))])
    assert (found["value"], found["met"]) == (1.7, False)
    assert command.costliest([(stopped, Figures(good_p99_ratio=40.0))]) == []


def test_the_costliest_input_is_not_known_if_one_attack_was_aborted() -> None:
    base = ATTACKS[0]._replace(user_input=True)
    (found,) = command.costliest([(base, Figures(good_p99_ratio=1.2)), (base, Figures())])
    assert found["met"] is not True


def test_attacks_by_the_input_of_users_have_a_bound_of_latency_and_leave_the_server_running() -> None:
    chosen = [each for each in ATTACKS if each.user_input]
    assert chosen
    assert not [each.name for each in chosen if "good_p99_ratio" in each.spares or each.damage or each.has_hole]
    rows = {each.load.__module__.rpartition(".")[2] for each in chosen}
    assert {"filters", "patterns"} <= rows
    assert all(each.user_input for each in ATTACKS if each.load.__module__.endswith((".filters", ".patterns")))


def test_the_short_form_of_the_list_names_attacks_and_has_their_goals_alone() -> None:
    (measurement,) = [each for each in listed.read() if each.name == "hostile"]
    program, option, *names = measurement.quick.split()
    assert (program, option) == ("hostile", "--quick")
    assert set(names) <= BY_NAME.keys()
    quick = {each.name.partition(":")[0] for each in measurement.goals if each.quick}
    assert quick == {*names, "costliest_input_p99_ratio"}


def test_the_list_is_shown_without_an_attack(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [attack.name for attack in ATTACKS]


def test_an_unknown_attack_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["charm"]) == 2
    assert "no attack is called charm" in capsys.readouterr().err


def test_without_root_one_line_names_the_requirement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert command.main([ATTACKS[0].name]) == 2
    assert "hostile: making network namespaces takes root" in capsys.readouterr().err
