"""The busy time before an attack: the server has its compiled loops after it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hostile import __main__ as command
from hostile import scene
from hostile.attack import ATTACKERS, OPERATOR
from hostile.good import NAMES, NEWCOMER_NAMES
from hostile.table import BY_NAME
from wanderbus.testbed.namespaces import missing

NUMBA_MIB = 60.0


def test_nobody_else_is_the_user_of_the_busy_time() -> None:
    assert OPERATOR not in {*NAMES, *NEWCOMER_NAMES, *ATTACKERS}


@pytest.mark.integration
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_compiled_loops_are_loaded_before_the_attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    compile_ = scene.Scene._compile

    def measured(self: scene.Scene) -> None:
        seen.append(self._server.rss_mib())
        compile_(self)
        seen.append(self._server.rss_mib())

    assert BY_NAME["many_clauses"].compiled
    attack = BY_NAME["others_dialogs"]._replace(compiled=True)
    monkeypatch.setattr(command, "ATTACKS", (attack,))
    monkeypatch.setattr(scene.Scene, "_compile", measured)
    command.main(["--ci", "--seconds", "3", "others_dialogs", "--json", str(tmp_path / "report.json")])
    before, after = seen
    assert after - before > NUMBA_MIB
    assert json.loads((tmp_path / "report.json").read_text())["goals"]
