"""The registry of paths and the cases: every kind of question is put somewhere, and docs/paths.md says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.paths.cases import drawn_case, small_case
from tests.conformance.paths.questions import KINDS, Question, kinds_of, shown
from tests.conformance.paths.reference import right_answer
from tests.conformance.paths.registry import PATHS
from tests.conformance.paths.suite import small_form

ROOT = Path(__file__).resolve().parents[3]


def test_the_document_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "paths.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_names_and_kinds_of_the_registry_exist() -> None:
    names = [path.name for path in PATHS]
    assert len(set(names)) == len(names)
    for path in PATHS:
        assert {*path.refuses, *path.lacks} <= KINDS.keys(), path.name
        assert path.refuses.keys().isdisjoint(path.lacks), path.name


def test_the_small_form_asks_every_path_and_every_question() -> None:
    case = small_case()
    wanted = small_form(case)
    asked = {(path.name, question.name) for path in PATHS for question in case.questions if wanted(path, question)}
    assert {name for name, _ in asked} == {path.name for path in PATHS}
    assert {name for _, name in asked} == {question.name for question in case.questions}
    kinds = {kind for question in case.questions for kind in kinds_of(case, question)}
    assert kinds == KINDS.keys()
    for path in PATHS:
        kinds = {kind for q in case.questions if wanted(path, q) for kind in kinds_of(case, q)}
        assert path.refuses.keys() <= kinds, f"{path.name}: not every refusal is tried"


@pytest.mark.parametrize("seed", range(20))
def test_drawn_cases_have_answers(seed: int) -> None:
    case = drawn_case(seed)
    assert len(case.questions) > 3
    assert all(shown(event) for event in case.events)
    for question in case.questions:
        assert right_answer(case, question, "events") is not None


def test_the_answers_of_the_small_case_differ_from_each_other() -> None:
    case = small_case()
    numbers = {q.name: right_answer(case, q, "numbers") for q in case.questions}
    assert [name for name, found in numbers.items() if not found] == ["never", "night"]
    without = case._replace(parents={})
    changed = {q.name for q in case.questions if right_answer(without, q, "numbers") != numbers[q.name]}
    assert changed >= {"parent", "eci", "pattern"}
    assert right_answer(case, Question("x", "Reply"), "count") == 4
