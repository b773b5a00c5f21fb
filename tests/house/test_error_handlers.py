"""Errors of ours are never caught as errors of disks or sockets.

``Unreachable`` is a ``ConnectionError`` and ``NoResponse`` also a ``TimeoutError``, so both are an ``OSError``. A
handler of one of these three around code that may raise an error of ours must let it pass: by an earlier
``except WanderbusError``, or by naming the error itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from wanderbus import errors

BROAD = {"OSError", "TimeoutError", "ConnectionError"}

OURS = {name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__}

THROUGH_THE_SYSTEM = {name for name in OURS if issubclass(getattr(errors, name), OSError)}
"""Our errors that such a handler would catch."""

RAISE_NONE_OF_OURS = {
    "self._until": "ends without an exception, also when the channel has failed",
    "self.opened.get": "a queue",
    "found": "a future that gets a ConfigurationError or an address",
    "self._servers": "questions to name servers, whose errors are those of dnspython",
    "self._gateways": "likewise; an address that cannot be used is left out",
    "self._wait_for_turn": "waits for a future that gets None",
    "connection.turn": "a future that gets None",
    "self._join": "forwards bytes between two connections of asyncio",
    "self._follow": "waits for times and events of a script",
    "self._loop.connect_accepted_socket": "asyncio",
    "self._loop.create_connection": "asyncio",
    "self._loop.sock_connect": "asyncio",
    "self._outbox.finish": "waits for a task and for the writer, whose errors go to their callers",
}
"""Awaited calls below a broad handler: reviewed, none raises an error of ours."""


OF_FILES = {"os.open", "path.open", "file.open", "EventLog.open", "StateGenerations.open"}
"""Calls that have the name of a function that raises one of these errors, and are another one."""


def names_in(node: ast.AST | None) -> set[str]:
    return set() if node is None else {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def broad_bodies(tree: ast.AST) -> Iterator[tuple[int, list[ast.stmt]]]:
    """Yield the bodies whose errors of ours a broad handler would catch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try | ast.TryStar):
            for handler in node.handlers:
                caught = names_in(handler.type)
                if caught & OURS:
                    break
                if caught & BROAD or handler.type is None:
                    yield handler.lineno, node.body
                    break
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("suppress"):
                    caught = names_in(call) - {"contextlib", "suppress"}
                    if caught & BROAD and not caught & OURS:
                        yield node.lineno, node.body


def is_of_the_system(awaited: str) -> bool:
    callee = awaited.partition("(")[0]
    wraps = callee in ("asyncio.shield", "asyncio.gather", "asyncio.wait_for")
    return (callee.startswith("asyncio.") and not wraps) or callee.endswith(".wait") or callee in RAISE_NONE_OF_OURS


def raisers(trees: dict[Path, ast.Module]) -> set[str]:
    """Return the names of functions that raise one of these errors themselves."""
    return {
        function.name
        for tree in trees.values()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Raise) and names_in(node.exc) & THROUGH_THE_SYSTEM
    }


def _is_one_of(raising: set[str], callee: str) -> bool:
    return callee.rpartition(".")[2] in raising and callee not in OF_FILES


def swallowed(tree: ast.AST, raising: set[str]) -> Iterator[str]:
    """Yield each place where a broad handler could catch an error of ours."""
    for line, body in broad_bodies(tree):
        for node in (each for statement in body for each in ast.walk(statement)):
            if isinstance(node, ast.Await) and not is_of_the_system(ast.unparse(node.value)):
                yield f"{line}: awaits {ast.unparse(node.value)}"
            elif isinstance(node, ast.Call) and _is_one_of(raising, ast.unparse(node.func)):
                yield f"{line}: calls {ast.unparse(node.func)}"
            elif isinstance(node, ast.Raise) and names_in(node.exc) & THROUGH_THE_SYSTEM:
                yield f"{line}: raises {ast.unparse(node)}"


def test_no_handler_of_the_system_s_errors_catches_ours(modules: dict[Path, ast.Module]) -> None:
    ours = {path: tree for path, tree in modules.items() if path.parts[0] == "src"}
    raising = raisers(ours)
    assert "local_address" in raising, "the search finds the functions that it is for"
    found = [f"{path}:{place}" for path, tree in ours.items() for place in swallowed(tree, raising)]
    assert found == [], "put 'except WanderbusError: raise' before the handler"


def test_the_search_finds_what_it_is_for() -> None:
    caught = """
try:
    await asyncio.shield(published)
except TimeoutError:
    pass
with contextlib.suppress(OSError):
    raise Unreachable("x")
try:
    address = local_address(server)
except (ValueError, OSError):
    pass
"""
    passed = """
try:
    await agent.publish(event)
except WanderbusError:
    raise
except TimeoutError:
    pass
with contextlib.suppress(TimeoutError, WanderbusError):
    await agent.close()
try:
    path.read_text()
    await event.wait()
except OSError:
    pass
"""
    assert [place.partition(":")[0] for place in swallowed(ast.parse(caught), {"local_address"})] == ["4", "6", "10"]
    assert list(swallowed(ast.parse(passed), {"local_address"})) == []
