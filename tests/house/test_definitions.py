"""Definitions of structs and enums live apart from machines, so that machines can be compiled (decision 0058)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import pytest

PACKAGE = Path("src/wanderbus")
ROOMS = (
    *("broker", "client/machine", "datachannel", "access", "peers", "federation", "filters", "matching", "patterns"),
    *("mobility", "relay", "rudp", "sip", "tcp"),
)
DEFINITIONS = {"Struct", "Enum", "IntEnum", "StrEnum", "Flag", "IntFlag", "NamedTuple", "TypedDict", "Input", "Output"}
ERRORS = {"BaseException", "Exception", "Protocol", "Warning"}

Kind = Literal["definition", "machine", "other"]


def name_of(node: ast.expr) -> str:
    """Return the last name of a base class or decorator."""
    match node:
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return name_of(inner)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def classes_in(tree: ast.AST) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def kind_of(node: ast.ClassDef, known: Mapping[str, ast.ClassDef]) -> Kind:
    """Return the kind of a class, by its bases in all files; a class with methods and no special base is a machine."""
    bases = [name_of(base) for base in node.bases]
    if DEFINITIONS & set(bases) or any(name_of(each) == "dataclass" for each in node.decorator_list):
        return "definition"
    if ERRORS & set(bases) or any(base.endswith("Error") for base in bases):
        return "other"
    above = {kind_of(known[base], known) for base in bases if base in known and known[base] is not node}
    if "definition" in above:
        return "definition"
    has_methods = any(isinstance(each, ast.FunctionDef) for each in node.body)
    return "other" if "other" in above or not (has_methods or "machine" in above) else "machine"


def mixed_in(modules: Mapping[Path, ast.Module]) -> set[str]:
    """Return the files of the vocabulary and the machine rooms that define a machine and a definition."""
    ours = {path: tree for path, tree in modules.items() if path.is_relative_to(PACKAGE)}
    known = {node.name: node for tree in ours.values() for node in classes_in(tree)}
    found = set()
    for path, tree in ours.items():
        kinds = {kind_of(node, known) for node in classes_in(tree)}
        is_ours = path.parent == PACKAGE or any(path.is_relative_to(PACKAGE / room) for room in ROOMS)
        if {"definition", "machine"} <= kinds and is_ours:
            found.add(path.relative_to(PACKAGE).as_posix())
    return found


def test_no_file_mixes_definitions_and_machines(modules: dict[Path, ast.Module]) -> None:
    assert mixed_in(modules) == set(), "move the structs and enums of these files into a module of definitions"


@pytest.mark.parametrize(
    "definition",
    [
        "class Sent(Output, frozen=True): pass",
        "class State(enum.Enum): IDLE = 1",
        "class Reached(SendMessage): pass",
        "class Size(NamedTuple): width: int",
        "@dataclass(frozen=True)\nclass Size: width: int",
    ],
)
def test_the_checker_sees_a_breach(definition: str) -> None:
    machine = "class Sender:\n    def step(self): pass"
    base = ast.parse("class SendMessage(Input): pass")
    path = PACKAGE / "rudp" / "sending.py"
    for text in (f"{definition}\n{machine}", f"{machine}\n    {'class Inner(msgspec.Struct): pass'}\n{definition}"):
        assert mixed_in({PACKAGE / "transport.py": base, path: ast.parse(text)}) == {"rudp/sending.py"}


def test_the_checker_permits_what_is_no_machine() -> None:
    text = """
class TooLong(ValueError):
    def __str__(self): return ""
class Sized(Protocol):
    def size(self): ...
class Size(msgspec.Struct):
    def area(self): return 0
def area(size): return 0
"""
    assert mixed_in({PACKAGE / "rudp" / "sending.py": ast.parse(text)}) == set()
