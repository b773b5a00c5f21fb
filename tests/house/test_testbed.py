"""One harness: only `wanderbus.testbed` starts programs that go on running, and makes network namespaces.

A server starts the service that it supervises, and nothing else. `wanderbus domain up` starts servers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

EQUIPMENT = ("demo", "bench", "faults", "fuzz", "hostile", "harness", "examples", "tools")
TESTBED = Path("src/wanderbus/testbed")
SUPERVISED = (
    Path("src/wanderbus/runtime/services/supervised.py"),
    Path("src/wanderbus/runtime/child_process.py"),
)
STARTS = ("Popen", "create_subprocess_exec", "create_subprocess_shell", "unshare", "setns")
COMMANDS = (["ip", "netns", "add"], ["ip", "netns", "delete"])


def breaches(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that start a program or make a namespace themselves."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found = node.attr in STARTS
        elif isinstance(node, ast.ImportFrom):
            found = any(alias.name in STARTS for alias in node.names)
        elif isinstance(node, ast.List):
            found = [each.value for each in node.elts[:3] if isinstance(each, ast.Constant)] in COMMANDS
        else:
            continue
        if found:
            yield node.lineno


def test_nobody_else_starts_programs_or_makes_namespaces(modules: dict[Path, ast.Module]) -> None:
    found = [
        f"{path}:{line}"
        for path, tree in modules.items()
        if path.is_relative_to("src") or path.parts[0] in EQUIPMENT or path.is_relative_to("tests/interop")
        if not path.is_relative_to(TESTBED) and path not in SUPERVISED
        for line in breaches(tree)
    ]
    assert found == [], "use wanderbus.testbed.processes, .async_processes or .namespaces"


def test_the_checker_sees_each_kind() -> None:
    for text in (
        "import subprocess\nsubprocess.Popen(['true'])",
        "from subprocess import Popen",
        "asyncio.create_subprocess_exec('true')",
        "run(['ip', 'netns', 'add', name])",
        "libc.setns(1, 2)",
    ):
        assert list(breaches(ast.parse(text))), text
    assert not list(breaches(ast.parse("subprocess.run(['ip', 'netns', 'exec', name, 'true'])")))
