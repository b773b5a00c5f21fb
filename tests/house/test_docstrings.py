"""Every public name has a docstring, and no docstring in the project begins with a question word (SPEC Q-04)."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import wanderbus
from wanderbus.api import extending, rudp, sip_mobility

QUESTION_NAME = re.compile(
    r"test_(?:[a-z]+\d+_(?:\d+_)*|design_(?:\d+_)+)*(?:what|who|whom|whoever|whatever|how|of|where|when|whether)_"
)
QUESTION_WORD = re.compile(r"(?:What|Who|How|Of|As|Where|Whatever|Whoever|Whether)\b")


def undocumented(name: str, thing: object) -> list[str]:
    """Return the names without a docstring: of the public name itself, its public methods and properties."""
    # Only the own docstring of a class counts, not that of its base.
    own = vars(thing).get("__doc__") if inspect.isclass(thing) else inspect.getdoc(thing)
    is_alias = not inspect.isclass(thing) and not inspect.isroutine(thing)
    found = [] if own or is_alias else [name]
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if not member.startswith("_") and inspect.isfunction(function) and not function.__doc__:
                found.append(f"{name}.{member}")
    return found


@pytest.mark.parametrize("name", wanderbus.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    assert undocumented(name, getattr(wanderbus, name)) == []


@pytest.mark.parametrize("module", [rudp, sip_mobility, extending], ids=lambda module: module.__name__)
def test_every_name_of_the_user_agent_and_of_reliable_udp_is_documented(module: ModuleType) -> None:
    assert [fault for name in module.__all__ for fault in undocumented(name, getattr(module, name))] == []


def test_the_checker_sees_what_is_missing() -> None:
    class Thing:
        """Documented."""

        def method(self) -> None: ...

        @property
        def value(self) -> int:
            return 1

        @classmethod
        def make(cls) -> None: ...

    assert undocumented("Thing", Thing) == ["Thing.method", "Thing.value", "Thing.make"]


def questions(tree: ast.Module) -> list[int]:
    """Return the lines of docstrings, of attributes too, that begin with a question word."""
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    return sorted(
        text.lineno
        for text in texts
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and QUESTION_WORD.match(text.value.lstrip())
    )


def test_docstrings_begin_with_a_noun_or_a_verb(modules: dict[Path, ast.Module]) -> None:
    found = [f"{path}:{line}" for path, tree in modules.items() for line in questions(tree)]
    assert found == [], "begin with the thing itself, or with a verb"


def test_a_docstring_that_begins_with_a_question_word_is_seen() -> None:
    assert questions(ast.parse('"""What it is."""\n\n\ndef f():\n    """As is."""\n\n\nX = 1\n"""Of X."""\n')) == [
        1,
        5,
        9,
    ]
    assert questions(ast.parse('"""Assets."""\n\n\ndef f():\n    """Return what it is."""\n')) == []


def riddles(tree: ast.Module) -> list[str]:
    """Return the names of tests that begin with a question word, also behind the id of a requirement."""
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [name for name in names if QUESTION_NAME.match(name)]


def test_names_of_tests_begin_with_a_noun(modules: dict[Path, ast.Module]) -> None:
    found = [f"{path}: {name}" for path, tree in modules.items() for name in riddles(tree)]
    assert found == [], "name the thing and what happens to it: test_a_full_queue_drops_its_oldest"


def test_a_test_that_is_named_as_a_question_is_seen() -> None:
    names = (
        "test_what_waits_is_bounded",
        "test_u02_x3_who_moves_knows",
        "test_design_5_2_of_many",
        "test_a_503_of_a_callee",
    )
    assert riddles(ast.parse("".join(f"def {name}(): ...\n" for name in names))) == list(names[:3])
