"""bench/goals.toml is the only list of goals: measurements and list have the same names and bounds."""

from __future__ import annotations

import ast
import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import goals
from bench.goals import Listed, Measurement

PLACES = (
    *("bench", "demo", "faults", "fuzz", "hostile", "tests/interop"),
    *("src/wanderbus/evaluation", "src/wanderbus/cli"),
)
BOUNDS = ("least", "most")
CONSTRUCTORS = ("goal", "_goal", "exactly", "within", "at_most")
KINDS = {"{kind}": ("lost", "repeated", "out_of_order", "integrity_errors", "seam_lost", "seam_repeated")}
"""Names that are composed at run time."""


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def emitted(root: Path) -> Iterator[tuple[str, float | None]]:
    """Return the names of the goals that code reports with a bound, as patterns, and the bounds that are numbers."""
    for place in PLACES:
        for file in sorted((root / place).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and called(node) in CONSTRUCTORS and node.args:
                    bound = [each.value for each in node.keywords if each.arg in BOUNDS]
                    if bound or called(node) in ("exactly", "within", "at_most") or len(node.args) > 3:
                        number = bound[0].value if bound and isinstance(bound[0], ast.Constant) else None
                        yield pattern(node.args[0]), number  # type: ignore[misc]
                elif isinstance(node, ast.Dict):
                    row = dict(zip(map(literal, node.keys), node.values, strict=True))
                    is_goal = {"name", "value", "unit", "goal", "met"} <= set(row) and literal(row["name"])
                    if is_goal and not isinstance(row["met"], ast.Constant):
                        yield re.escape(str(literal(row["name"]))), None


def literal(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def pattern(node: ast.expr) -> str:
    """Return the regular expression of a name, in which parts inserted at run time match any word."""
    if isinstance(node, ast.Constant):
        return re.escape(str(node.value))
    if isinstance(node, ast.JoinedStr):
        return "".join(pattern(each) if isinstance(each, ast.Constant) else r"\w+" for each in node.values)
    return "|".join(name for names in KINDS.values() for name in names)


@pytest.fixture(scope="module")
def listed() -> list[Measurement]:
    return goals.read()


def test_every_goal_that_is_reported_is_listed_and_the_reverse(root: Path, listed: list[Measurement]) -> None:
    names = {goal.name for each in listed for goal in each.goals}
    patterns = {name for name, _ in emitted(root)}
    assert len(patterns) > 40
    assert [each for each in patterns if not any(re.fullmatch(each, name) for name in names)] == [], "not listed"
    assert [name for name in names if not any(re.fullmatch(each, name) for each in patterns)] == [], "not reported"


def test_the_bounds_are_those_of_the_code(root: Path, listed: list[Measurement]) -> None:
    bounds = {goal.name: goal.bound for each in listed for goal in each.goals}
    numbers = {name: number for name, number in emitted(root) if number is not None}
    assert len(numbers) > 20
    for name, number in numbers.items():
        if (match := goals.COMPARED.fullmatch(bounds.get(name, ""))) is not None:
            assert float(match[2]) == number, name


def test_every_row_has_a_command_and_a_date(listed: list[Measurement]) -> None:
    commands = ("bench ", "demo", "wanderbus ", "faults ", "fuzz ", "hostile", "tests.interop")
    for each in listed:
        assert each.minutes > 0
        assert each.command.startswith(commands), each.name
        assert not each.quick or each.quick.startswith(each.command.split()[0]), each.name
        assert bool(each.quick) == (each.quick_minutes > 0), each.name
        for goal in each.goals:
            assert re.fullmatch(r"not recorded|[-\d.e+]+, \d{4}-\d\d-\d\d, \d+ processors", goal.last), goal.name
            if goal.quick not in ("", goal.bound):
                assert goals.COMPARED.fullmatch(goal.quick), goal.name
    assert sum(each.quick_minutes for each in listed) <= 11.7, "--quick takes about twelve minutes"


def test_list_and_table_fit_80_columns(listed: list[Measurement]) -> None:
    lines = list(goals.listing(listed))
    checked = [goals.Checked("x", goal, goal.bound, 123456.78, None) for each in listed for goal in each.goals]
    lines += map(goals.line_of, checked)
    assert [line for line in lines if len(line) > 80 and ": " not in line] == []
    assert len(checked) > 80


# Checking ----------------------------------------------------------------------------------------------------------


FEW = Listed("few", "<= 3", "<= 9", "s", "not recorded")
MANY = Listed("many", ">= 5", ">= 5", "1/s", "not recorded")
LONG = Listed("long", ">= 5", "", "1/s", "not recorded")
ONE = Measurement("one", "bench one", 3.0, "bench one --quick", 0.1, (FEW, MANY, LONG))
TWO = Measurement("two", "bench two", 3.0, "", 0.0, (FEW._replace(name="other", quick=""),))


def report(**values: float | None) -> dict[str, Any]:
    return {"goals": [{"name": name, "value": value, "met": value == 5} for name, value in values.items()]}


def test_the_report_has_each_verdict_and_short_forms_have_own_bounds() -> None:
    full = goals.check(ONE, report(few=5, many=4, long=None), quick=False)
    assert [each.met for each in full] == [True, False, None]
    [one] = goals.chosen([ONE, TWO], [], quick=True)
    assert [goal.name for goal in one.goals] == ["few", "many"]
    assert [each.met for each in goals.check(one, report(few=8, many=5), quick=True)] == [True, True]
    assert [each.met for each in goals.check(one, report(few=10, many=5), quick=True)] == [False, True]
    assert [each.met for each in goals.check(one, None, quick=True)] == [None, None]


def test_names_choose_goals_or_measurements() -> None:
    assert goals.chosen([ONE, TWO], [], quick=False) == [ONE, TWO]
    assert goals.chosen([ONE, TWO], ["two"], quick=False) == [TWO]
    [one] = goals.chosen([ONE, TWO], ["many"], quick=False)
    assert [goal.name for goal in one.goals] == ["many"]
    with pytest.raises(SystemExit, match="no goal or measurement is called nobody"):
        goals.chosen([ONE, TWO], ["many", "nobody"], quick=False)


def test_bounds_are_compared() -> None:
    assert all(goals.holds(3, bound) for bound in ("<= 3", ">= 3", "= 3"))
    assert not any((goals.holds(3.1, "<= 3"), goals.holds(2.9, ">= 3"), goals.holds(2, "= 3")))
    with pytest.raises(ValueError, match="no comparison"):
        goals.holds(1, "nearly 0")


def test_figures_are_recorded_in_the_row_of_their_measurement() -> None:
    rows = '[{0}.goals]\nlost = {{ bound = "<= 0", last = "9, old" }}\nother = {{ last = "x" }}\n'
    text = rows.format("one") + "\n" + rows.format("two")
    lost = Listed("lost", "<= 0", "<= 0", "", "9, old")
    done = goals.recorded(text, [goals.Checked("two", lost, "<= 0", 0.0, True)], datetime.date(2026, 1, 2))
    assert done.count('"9, old"') == 1
    assert re.search(r'\[two.goals\]\nlost = { bound = "<= 0", last = "0, 2026-01-02, \d+ processors" }', done)


@pytest.mark.parametrize(("value", "status"), [("5", 0), ("4", 1), ("None", 1)])
def test_the_exit_status_is_0_if_all_are_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str, status: int
) -> None:
    (tmp_path / "short.py").write_text(
        "import json, sys\n"
        f"goals = [{{'name': 'many', 'value': {value}, 'met': {value} == 5}}]\n"
        "json.dump({'goals': goals}, open(sys.argv[2], 'w'))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    short = Measurement("short", "short", 0.1, "", 0.0, (MANY,))
    monkeypatch.setattr(goals, "read", lambda: [short])
    assert goals.main(["--json", str(tmp_path / "report.json")]) == status
    written = json.loads((tmp_path / "report.json").read_text())
    assert set(written) == {"command", "machine", "results", "goals"}
    [goal] = written["goals"]
    met = {"5": True, "4": False, "None": None}[value]
    assert (goal["name"], goal["goal"], goal["met"]) == ("short.many", ">= 5", met)
    assert written["results"][0]["exit_status"] == 0
    assert ("1 of 1 goals met" in capsys.readouterr().out) == (status == 0)
