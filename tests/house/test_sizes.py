"""Files, functions and directories stay small.

The aim is 400 lines for a file and 40 for a function; 600 and 70 are the limits. A directory of the package holds at
most 25 modules; that of the commands, with a module for each, 26.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from pathlib import Path

FILE_LINES_AIM, FILE_LINES_MAX = 400, 600
FUNCTION_LINES_AIM, FUNCTION_LINES_MAX = 40, 70
DIRECTORY_MODULES_MAX, COMMANDS_MAX = 25, 26


def sizes_of_functions(tree: ast.Module) -> list[tuple[str, int]]:
    return [
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def report(found: list[tuple[str, int]], aim: int, most: int, kind: str) -> None:
    long = [f"{name}: {lines} lines" for name, lines in found if aim < lines <= most]
    if long:
        warnings.warn(f"{kind} above the aim of {aim} lines: " + "; ".join(long), stacklevel=2)
    assert [f"{name}: {lines} lines" for name, lines in found if lines > most] == []


def test_files(modules: dict[Path, ast.Module], root: Path) -> None:
    found = [(str(path), len((root / path).read_text(encoding="utf-8").splitlines())) for path in modules]
    report(found, FILE_LINES_AIM, FILE_LINES_MAX, "files")


def test_functions(modules: dict[Path, ast.Module]) -> None:
    found = [(f"{path}:{name}", lines) for path, tree in modules.items() for name, lines in sizes_of_functions(tree)]
    report(found, FUNCTION_LINES_AIM, FUNCTION_LINES_MAX, "functions")


def test_directories(modules: dict[Path, ast.Module]) -> None:
    package = Path("src/wanderbus")
    counts = Counter(path.parent for path in modules if path.is_relative_to(package) and path.name != "__init__.py")
    assert counts.pop(package / "cli") <= COMMANDS_MAX
    assert {str(path): count for path, count in counts.items() if count > DIRECTORY_MODULES_MAX} == {}


def test_lines_of_a_function_are_counted_to_its_end() -> None:
    assert sizes_of_functions(ast.parse("def f():\n    a = 1\n\n    return a\n")) == [("f", 4)]
