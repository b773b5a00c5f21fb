"""Machines and vocabulary are pure: no I/O, clock, randomness or thread (DESIGN 2.1)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path("src/wanderbus")
PURE = {
    "filters",
    "matching",
    "patterns",
    "sip",
    "mobility",
    "rudp",
    "tcp",
    "datachannel",
    "relay",
    "broker",
    "protocol",
    "channels",
    "planning",
    "client/machine",
    "access",
    "peers",
    "federation",
}

WORLD = {
    *("socket", "ssl", "select", "selectors", "socketserver", "asyncio", "uvloop", "http", "urllib", "ftplib"),
    *("threading", "multiprocessing", "concurrent", "subprocess", "signal", "sched", "queue"),
    *("time", "secrets", "uuid", "os", "io", "pathlib", "tempfile", "shutil", "glob", "mmap", "fcntl"),
    *("sqlite3", "apsw", "logging", "structlog", "sys", "platform", "locale", "ctypes"),
}
MODULES_BANNED = WORLD | {"random"}
"""Modules with effects outside the process, or with state that a seed does not control."""

# The simulator draws from random.Random(seed) only; it has no access to the outside either.
MODULES_BANNED_IN_SIMULATION = {"socket", "ssl", "select", "asyncio", "uvloop", "threading", "secrets", "uuid"}

CALLS_BANNED = {"open", "print", "input", "exec", "eval", "__import__"}
CLOCK_CALLS = {"now", "utcnow", "today"}
CLOCK_OWNERS = {"datetime", "date"}


def faults(tree: ast.Module, banned: set[str]) -> list[str]:
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [f"{node.lineno}: imports {n.name}" for n in names if n.name.split(".")[0] in banned]
            case ast.ImportFrom(module=str(module), level=0) if module.split(".")[0] in banned:
                found.append(f"{node.lineno}: imports {module}")
            case ast.Call(func=ast.Name(id=name)) if name in CALLS_BANNED:
                found.append(f"{node.lineno}: calls {name}()")
            case ast.Attribute(attr=attr, value=ast.Name(id=owner) | ast.Attribute(attr=owner)) if (
                attr in CLOCK_CALLS and owner in CLOCK_OWNERS
            ):
                found.append(f"{node.lineno}: reads the clock by {owner}.{attr}")
            case ast.AsyncFunctionDef() | ast.Await():
                found.append(f"{node.lineno}: is asynchronous")
    return found


def test_machines_and_vocabulary_are_pure(modules: dict[Path, ast.Module]) -> None:
    found, seen = [], set()
    for path, tree in modules.items():
        if not path.is_relative_to(PACKAGE) or path.name in ("__main__.py",):
            continue
        parts = path.relative_to(PACKAGE).parts
        if parts == ("__init__.py",):
            continue  # the lazy door to the rest: it may look at sys.modules
        room = next((each for each in ("/".join(parts[:2]), parts[0]) if each in PURE), None)
        if len(parts) == 1 or room is not None:
            seen.add(room)
            found += [f"{path}:{fault}" for fault in faults(tree, MODULES_BANNED)]
    assert found == []
    assert {"filters", "sip", "rudp", "broker", "client/machine", "protocol", None} <= seen


def test_simulation_takes_nothing_from_the_real_world(modules: dict[Path, ast.Module]) -> None:
    """SPEC U-07: one seed decides everything."""
    found = []
    for path, tree in modules.items():
        if path.is_relative_to(PACKAGE / "simulation"):
            found += [f"{path}:{fault}" for fault in faults(tree, MODULES_BANNED_IN_SIMULATION) if "calls" not in fault]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import socket",
        "import os.path",
        "from random import random",
        "from time import monotonic",
        "open('x')",
        "datetime.now(UTC)",
        "datetime.datetime.now()",
        "async def f(): ...",
    ],
)
def test_the_checker_sees_a_fault(text: str) -> None:
    assert len(faults(ast.parse(text), MODULES_BANNED)) == 1


@pytest.mark.parametrize("text", ["x.step([], now)", "self.now()", "from datetime import datetime", "import struct"])
def test_the_checker_leaves_the_rest_alone(text: str) -> None:
    assert faults(ast.parse(text), MODULES_BANNED) == []
