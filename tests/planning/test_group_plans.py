"""Channel groups in a plan of subjects (SPEC J-08, T-10)."""

from __future__ import annotations

from wanderbus.planning import make_plan
from wanderbus.planning.group_plans import PlannedGroup, planned_groups
from wanderbus.planning.plan_file import PlacedSubject, Plan

LOADS = {"A1": 50, "A2": 30, "B1": 40, "B2": 20, "C1": 60, "D1": 0}


def plan_of(subjects: dict[str, tuple[int, int]]) -> Plan:
    """Return a plan with server and load of each subject."""
    whole = make_plan(LOADS, 3)
    return Plan(
        whole.form, whole.servers, {name: PlacedSubject(*each) for name, each in subjects.items()}, whole.figures
    )


def group_of(subject: str) -> int | None:
    """Return the number of the letter of a subject; D is decentralised."""
    return None if subject[0] == "D" else "ABC".index(subject[0])


def test_t10_a_group_goes_to_the_server_with_most_of_its_load() -> None:
    plan = plan_of({"A1": (1, 50), "A2": (2, 30), "A3": (2, 30), "B1": (3, 40), "D1": (1, 9)})
    assert planned_groups(plan, group_of) == {0: PlannedGroup(2, 110, 50), 1: PlannedGroup(3, 40, 0)}


def test_the_number_of_subjects_decides_between_equal_loads_and_then_the_lowest_server() -> None:
    equal = plan_of({"A1": (2, 10), "A2": (3, 5), "A3": (3, 5), "B1": (3, 0), "B2": (2, 0)})
    assert {group: each.server for group, each in planned_groups(equal, group_of).items()} == {0: 3, 1: 2}


def test_a_plan_of_units_keeps_each_on_one_server_and_moves_few() -> None:
    plan = make_plan(LOADS, 2, lambda subject: 1, unit_of=lambda subject: subject[0])
    groups = planned_groups(plan, group_of)
    assert all(each.elsewhere_us == 0 for each in groups.values())
    assert sorted(each.load_us for each in plan.servers) == [80, 120]
    assert plan.figures.load_us_least_max == 120, "two of three groups have one server"
    moved = {subject for subject, each in plan.subjects.items() if each.moves_from is not None}
    assert {subject[0] for subject in moved} == {"A"}


def test_a_unit_whose_subjects_are_on_several_servers_is_where_most_of_its_load_is() -> None:
    present = {"A1": 1, "A2": 2, "B1": 2, "B2": 2, "C1": 1, "D1": 1}
    plan = make_plan(LOADS, 2, present.__getitem__, unit_of=lambda subject: subject[0], slack=0.3)
    assert {name for name, each in plan.subjects.items() if each.moves_from is not None} == {"A2"}


def test_subjects_of_a_server_that_is_not_planned_get_others_and_move_from_nowhere() -> None:
    plan = make_plan(LOADS, 2, lambda subject: 1 if subject[0] == "A" else None, unit_of=lambda subject: subject[0])
    assert all(each.moves_from is None for each in plan.subjects.values())
    assert plan.subjects["A1"].server == 1
