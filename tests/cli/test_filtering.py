"""Filtering at the publisher, and its counts, from the shell (SPEC N-01, N-02)."""

from __future__ import annotations

import json

import pytest

from tests.cli.shell import Shell, ended
from tests.cli.test_operations import asking, listed, office

pytestmark = pytest.mark.integration

__all__ = ["office"]


def test_counts_of_the_phases_are_for_operators(office: Shell) -> None:
    rows = listed(office, "filtering")
    assert [row["phase"] for row in rows] == ["publisher", "channel", "destination"]
    status, out, _ = office.run("filtering", *asking(office, "olga"))
    assert status == 0
    assert out.splitlines()[0].split() == ["phase", "examined", "held", "back"]
    status, _, err = office.run("filtering", *asking(office, "alice"))
    assert (status, err.count("\n")) == (1, 1)
    assert "role 'operator'" in err


def test_events_that_nobody_wants_are_held_back_and_counted(shell: Shell) -> None:
    shell.up()
    words = ["sub", "Departure", "Dest == IAH", "--keep", "kept", "--json", "--count", "1"]
    reader = shell.start(*words, *shell.as_user())
    shell.subscribed()
    lines = "\n".join(['{"Dest": "ORD"}'] * 2_000 + ['{"Dest": "IAH"}'])
    words = ["pub", "Departure", "-", "--ids", "--filter-at-publisher", *shell.as_user("bob", "hunter2")]
    status, out, err = shell.run(*words, input=lines)
    held_back = out.splitlines().count("held back: no subscription matches it")
    assert status == 0
    assert held_back > 0
    assert err == f"wanderbus: {held_back} events were held back: no subscription matches them\n"
    assert out.splitlines()[-1].startswith("published wb")
    _, out, _ = ended(reader)
    assert json.loads(out)["attributes"]["Dest"] == "IAH"
