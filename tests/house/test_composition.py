"""Machines are composed in one way: by the worklist of :mod:`wanderbus.composition` (decision 0055)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = Path("src/wanderbus")
ROOMS = (
    *("broker", "client/machine", "datachannel", "access", "peers", "federation", "filters", "matching"),
    *("mobility", "protocol", "relay", "rudp", "sip", "tcp"),
)
STARTS = {"step", "start"}
"""Methods of a machine that its owner calls, and that may run the worklist."""

AROUND_ONE_PART = {
    *("broker/servers/decentralised_events.py", "rudp/handshake.py"),
    *("federation/exports.py", "federation/gateway.py"),
}
"""Machines around a single part, whose outputs cause nothing further, or only for the time after them."""

SETTING = {"broker/core.py", "rudp/connection.py", "rudp/sending.py", "tcp/connection.py"}
"""Files that set attributes of their objects. Do not add any."""


def is_self(node: ast.expr) -> bool:
    """Return whether ``node`` is an attribute of ``self``, at any depth."""
    return isinstance(node, ast.Attribute) and (
        (isinstance(node.value, ast.Name) and node.value.id == "self") or is_self(node.value)
    )


def steps_of_parts(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that call the step of another machine: a method ``step`` with inputs and a time."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="step"), args=[_, _, *_]):
                yield node.lineno


def runs_elsewhere(tree: ast.AST) -> Iterator[int]:
    """Yield the lines outside of ``step`` and ``start`` that run a worklist or take its outputs."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name not in STARTS:
            for node in ast.walk(function):
                match node:
                    case ast.Call(func=ast.Attribute(value=owner, attr="run" | "take_outputs")) if is_self(owner):
                        yield node.lineno


def attributes_set(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that set an attribute of an object that belongs to ``self``."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets):
                every = [each for target in targets for each in ast.walk(target)]
            case ast.AnnAssign(target=target):
                every = [target]
            case _:
                continue
        for each in every:
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and is_self(each.value):
                yield node.lineno


def faults(modules: Mapping[Path, ast.Module]) -> list[str]:
    found = []
    for path, tree in modules.items():
        if not any(path.is_relative_to(PACKAGE / room) for room in ROOMS):
            continue
        name = path.relative_to(PACKAGE).as_posix()
        if name not in AROUND_ONE_PART:
            found += [
                f"{name}:{line}: give the part its inputs, instead of calling its step" for line in steps_of_parts(tree)
            ]
        if "wanderbus.composition" in ast.dump(tree):
            found += [f"{name}:{line}: only step and start run the worklist" for line in runs_elsewhere(tree)]
        if name not in SETTING:
            found += [f"{name}:{line}: pass it in an input or an argument" for line in attributes_set(tree)]
    return found


def test_machines_are_composed_by_the_worklist(modules: dict[Path, ast.Module]) -> None:
    assert faults(modules) == []


def test_the_composed_machines_use_it(modules: dict[Path, ast.Module]) -> None:
    """The files that construct a worklist, except simulated servers: those that ARCHITECTURE.md lists."""
    composed = {
        path.relative_to(PACKAGE).as_posix()
        for path, tree in modules.items()
        if path.is_relative_to(PACKAGE) and not path.is_relative_to(PACKAGE / "simulation")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("Composition[")
    }
    text = (Path(__file__).parents[2] / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("## How machines are composed")[2].partition("\n## ")[0]
    assert composed == {
        "client/machine/core.py",
        "datachannel/transports.py",
        "access/access_server.py",
        "peers/links.py",
        "mobility/user_agent.py",
        "sip/proxy/sip_server.py",
    }
    assert {name for name in composed if f"`{name}`" not in section} == set()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("class A:\n def _route(self, outputs, now):\n  self._route(self._part.step(outputs, now), now)", "its step"),
        ("class A:\n def _route(self, outputs, now):\n  self._parts.run(now)", "run the worklist"),
        ("class A:\n def _route(self, outputs, now):\n  return self._parts.take_outputs()", "run the worklist"),
        ("class A:\n def _move(self, to):\n  self._part.local = to", "an argument"),
        ("class A:\n def _move(self, to):\n  former, self._a.b.local = self._a.b.local, to", "an argument"),
        ("class A:\n def _move(self, to):\n  self._part.local: Address = to", "an argument"),
    ],
)
def test_the_checker_sees_a_fault(text: str, fault: str) -> None:
    tree = ast.parse(f"from wanderbus.composition import Composition\n{text}")
    (found,) = faults({PACKAGE / "sip" / "proxy" / "sip_server.py": tree})
    assert fault in found


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n def step(self, inputs, now):\n  self._parts.give('a', inputs)\n  self._parts.run(now)",
        "class A:\n def _sweep(self):\n  return self._sweep.step(least_us)",
        "class A:\n def _count(self):\n  self.counters.dropped += 1",
        "class A:\n def _count(self):\n  self._timers[0] = 1\n  self._now, other = 1, 2",
    ],
)
def test_the_checker_leaves_the_rest_alone(text: str) -> None:
    tree = ast.parse(f"from wanderbus.composition import Composition\n{text}")
    assert faults({PACKAGE / "sip" / "proxy" / "sip_server.py": tree}) == []
