"""``./do hostile`` from end to end: a server in a namespace, really attacked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hostile import __main__ as command
from hostile import scene
from hostile.server import Server
from wanderbus.testbed.namespaces import missing

needs_namespaces = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.mark.integration
@needs_namespaces
def test_a_short_attack_loses_nothing_and_reports_all_its_goals(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command.main(["--ci", "--federated", "--seconds", "4", "others_dialogs", "--json", str(report)])
    written = json.loads(report.read_text())
    goals = {goal["name"].partition(":")[2]: goal["value"] for goal in written["goals"]}
    assert all(value is not None for value in goals.values())
    assert goals["good_lost"] == goals["good_repeated"] == goals["good_out_of_order"] == goals["server_ended"] == 0
    assert written["results"][0]["report_refused"] > 0


@pytest.mark.integration
@needs_namespaces
def test_a_server_that_ends_under_attack_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of an attack the server is killed, and is not restarted."""

    def kill(self: scene.Scene, path: Path) -> None:
        assert isinstance(self._server, Server)
        assert self._server._process is not None
        self._server._process.kill()
        self._server._process.wait()

    monkeypatch.setattr(scene.Scene, "_damage", kill)
    monkeypatch.setattr(Server, "rss_mib", lambda self: 0.0)
    report = tmp_path / "report.json"
    assert command.main(["--ci", "--seconds", "3", "damaged_state", "--json", str(report)]) == 1
    goals = {goal["name"].partition(":")[2]: goal["value"] for goal in json.loads(report.read_text())["goals"]}
    assert goals["server_ended"] == 1
    assert goals["good_lost"] > 0
