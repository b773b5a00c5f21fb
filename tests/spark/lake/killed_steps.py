"""Steps of a job at which it is killed in turn: calls that change something on disk.

The calls are those of Delta and the operating system, and the one that waits for the workers' files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from wanderbus.pipeline.lake import writing

FILES = "files"
"""Place of tables whose files the workers have written, in the path of a call."""


class Killed(BaseException):
    """The job ends here, as by ``kill -9``: nothing in it may handle this."""


class Step(NamedTuple):
    """A call that has succeeded: its name, the table, the kind of file, and the number of the batch."""

    call: str
    table: str
    file: str
    batch: int


class Call(NamedTuple):
    """A call that has succeeded, on a path in the lake; ``added`` are the files that a commit adds to its table."""

    name: str
    path: str
    added: tuple[str, ...] = ()


class KilledSteps:
    """Raises :class:`Killed` after each step that is ``wanted`` and was not killed before, once each.

    ``lake`` is the directory of the lake. ``calls`` are all calls, in order.
    """

    def __init__(
        self, lake: Path, monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Step], bool] = lambda step: False
    ) -> None:
        self.killed: list[Step] = []
        self.calls: list[Call] = []
        self.batch = 0
        self.wanted = wanted
        self._lake = str(lake)
        for owner, name, path in (
            (writing, "collected", lambda found, _: lake / FILES / "+".join(sorted(found))),
            (DeltaTable, "create", lambda _, path, **__: path),
            (DeltaTable, "create_write_transaction", lambda _, delta, *__, **___: delta.table_uri),
            (os, "fsync", lambda _, descriptor: os.readlink(f"/proc/self/fd/{descriptor}")),
            (shutil, "rmtree", lambda _, path, **__: path),
        ):
            monkeypatch.setattr(owner, name, self._watched(name, getattr(owner, name), path))

    def _watched(self, name: str, call: Callable[..., Any], path_of: Callable[..., object]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            result = call(*arguments, **named)
            path = str(path_of(result, *arguments, **named)).removeprefix("file://")
            if path.startswith(self._lake):
                is_commit = name == "create_write_transaction"
                added = tuple(each.path for each in arguments[1] if isinstance(each, AddAction)) if is_commit else ()
                is_compaction = is_commit and not named["commit_properties"].app_transactions
                self._done(Call("compaction" if is_compaction else name, os.path.relpath(path, self._lake), added))
            return result

        return watched

    def _done(self, call: Call) -> None:
        self.calls.append(call)
        parts = Path(call.path).parts
        step = Step(call.name, "/".join(parts[:2]), Path(call.path).suffix or str(len(parts)), self.batch)
        if self.wanted(step) and step not in self.killed:
            self.killed.append(step)
            raise Killed(str(step))
