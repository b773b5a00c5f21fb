"""Status of the matching engine, from the shell (SPEC T-06)."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell
from tests.cli.test_operations import asking, listed, office

pytestmark = pytest.mark.integration

__all__ = ["office"]


def test_t06_a_broker_without_an_engine_says_so(office: Shell) -> None:
    assert office.run("engine", *asking(office, "olga"))[:2] == (0, "The broker matches every event itself.\n")
    status, _, err = office.run("engine", *asking(office, "alice"))
    assert (status, err.count("\n")) == (1, 1)
    assert "role 'operator'" in err


def test_t06_an_engine_that_is_away_is_shown_with_the_reason_and_the_distance(shell: Shell) -> None:
    shell.write_users("olga:secret\n")
    (shell.directory / "spark.toml").write_text('[broker]\nspark_subjects = ["*"]\nroles = {olga = "operator"}\n')
    shell.up("--config", "spark.toml")
    own = asking(shell, "olga")
    (row,) = listed(shell, "engine")
    assert (row["state"], row["subjects"], row["records_behind"]) == ("away", ["*"], 0)
    status, out, _ = shell.run("engine", *own)
    assert status == 0
    heading, line, reason = out.splitlines()
    assert heading.split()[:3] == ["engine", "state", "away"]
    assert line.split()[:2] == ["spark", "away"]
    assert "the service engine does not run" in reason
