"""Arrow arrays have the type that the code gives them, never one that Arrow infers from the values.

Arrow gives an array without a value the null type, which its functions refuse: a batch without events of one kind then
costs the rows of all others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TYPED = {"pa.array": "type", "pa.RecordBatch.from_pylist": "schema", "pa.RecordBatch.from_pydict": "schema"}
"""Functions that infer types, and their second argument, which prevents that."""


def inferring(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the calls whose result has a type by chance."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or len(node.args) > 1:
            continue
        argument = TYPED.get(ast.unparse(node.func))
        if argument is not None and argument not in {each.arg for each in node.keywords}:
            yield node.lineno, ast.unparse(node)


def test_a_call_without_a_type_is_found() -> None:
    source = "pa.array([])\npa.array([], pa.bool_())\npa.array(x, type=t)\npa.RecordBatch.from_pylist(rows)\n"
    assert [line for line, _ in inferring(ast.parse(source))] == [1, 4]


def test_every_array_has_a_type(modules: dict[Path, ast.Module]) -> None:
    found = [
        f"{path}:{line}: {call}"
        for path, tree in modules.items()
        if path.parts[0] == "src"
        for line, call in inferring(tree)
    ]
    assert not found, found
