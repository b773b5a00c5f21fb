"""One tree of errors, as its docstring draws it; refusals carry the values a caller needs (SPEC U, DESIGN words)."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest

from wanderbus import errors
from wanderbus.errors import (
    ConnectionLost,
    FilterError,
    LimitExceeded,
    NoResponse,
    RemoteProtocolError,
    SIPParseError,
    Unreachable,
    WanderbusError,
)

CLASSES = {
    name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and kind.__module__ == errors.__name__
}


def drawn() -> dict[str, str]:
    """Parent of each error by the drawing in the module's docstring."""
    parents: dict[str, str] = {}
    path = ["WanderbusError"]
    for line in (errors.__doc__ or "").splitlines():
        name = next((word for word in line.split() if word in CLASSES), None)
        if name is None or name == "WanderbusError":
            continue
        depth = (line.index(name) - 4) // 4
        path[depth:] = [name]
        parents[name] = path[depth - 1]
    return parents


def test_the_tree_is_the_one_that_is_drawn() -> None:
    assert drawn() == {name: kind.__bases__[0].__name__ for name, kind in CLASSES.items() if kind is not WanderbusError}


def test_every_error_is_in_this_tree_and_documented() -> None:
    for kind in CLASSES.values():
        assert issubclass(kind, WanderbusError)
        assert kind.__doc__


def test_timeouts_and_lost_connections_are_also_those_of_python() -> None:
    bases = {
        name: {"ConnectionError", "TimeoutError"} & {each.__name__ for each in kind.__mro__}
        for name, kind in CLASSES.items()
    }
    assert {name: found for name, found in bases.items() if found} == {
        "ConnectionLost": {"ConnectionError"},
        "Unreachable": {"ConnectionError"},
        "NoResponse": {"ConnectionError", "TimeoutError"},
    }


def test_errors_that_are_also_of_the_system_have_one_line_and_no_number() -> None:
    for kind in (ConnectionLost, NoResponse, Unreachable):
        error = pickle.loads(pickle.dumps(kind("192.0.2.1:5060 does not respond; check the network")))
        assert type(error) is kind
        assert str(error) == "192.0.2.1:5060 does not respond; check the network"
        assert error.errno is None


def test_the_table_in_the_documentation_has_every_error_with_its_bases() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text.partition("## Errors")[2], flags=re.MULTILINE)
    assert {name: re.findall(r"`(\w+)`", bases) for name, bases in rows} == {
        name: [base.__name__ for base in kind.__bases__] for name, kind in CLASSES.items()
    }


def test_a_parse_error_carries_the_status_to_answer_with_or_none_to_drop() -> None:
    assert SIPParseError("no").status == 400
    assert RemoteProtocolError("no", 481).status == 481
    assert SIPParseError("no", None).status is None


@pytest.mark.parametrize(
    ("text", "position", "line", "caret"),
    [
        ("A == ", 5, "  A == ", "       ^"),
        ("A == 1\nand (B\nor C", 11, "  and (B", "      ^"),
        ("x\nyy", 2, "  yy", "  ^"),
        ("", 0, "  ", "  ^"),
        ("\ta ==\t,", 6, "   a == ,", "        ^"),
        ("x" * 500 + "," + "y" * 500, 500, "  " + "x" * 60 + "," + "y" * 59, "  " + " " * 60 + "^"),
    ],
)
def test_a_filter_error_points_at_the_character_in_its_line(text: str, position: int, line: str, caret: str) -> None:
    error = FilterError("expected a value", text, position)
    assert str(error) == f"expected a value at character {position + 1}"
    assert error.pointed().split("\n") == [str(error), line, caret]


def test_a_limit_is_named() -> None:
    error = LimitExceeded("the session has 3, as many as it may", "subscriptions_max")
    assert (str(error), error.limit) == ("the session has 3, as many as it may", "subscriptions_max")
