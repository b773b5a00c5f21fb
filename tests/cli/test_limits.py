"""Listing of limited users and sources, from the shell."""

from __future__ import annotations

import socket

import pytest

from tests.cli.shell import Shell
from tests.cli.test_operations import asking, listed, office

pytestmark = pytest.mark.integration

__all__ = ["office"]


def test_nobody_is_limited_at_first(office: Shell) -> None:
    assert office.run("limits", *asking(office, "olga"))[:2] == (0, "Nobody is being limited.\n")
    assert listed(office, "limits") == []


def test_wrong_passwords_are_listed_for_their_user_and_for_operators(office: Shell) -> None:
    status, _, _ = office.run("sessions", "--user", "sip:bob@localhost", "--password", "no", *asking(office, "bob")[4:])
    assert status != 0
    (row,) = listed(office, "limits")
    assert (row["limit"], row["value"], row["party"]) == ("logins.free_failures", 5, "sip:bob@localhost")
    count = row["count"]  # a REGISTER that was repeated over UDP counts again
    assert row["reason"].startswith("login of sip:bob@localhost from 127.0.0.1")
    assert row["reason"].endswith(" refused: Wrong User Or Password")
    assert 0 <= row["last_s"] <= row["since_s"] < 30
    (own,) = listed(office, "limits", name="bob")
    assert {**own, "since_s": 0, "last_s": 0} == {**row, "since_s": 0, "last_s": 0}
    assert listed(office, "limits", name="alice") == []
    assert listed(office, "limits", "b*@localhost", "--limit", "logins.*")[0]["count"] == count
    assert listed(office, "limits", "--limit", "flood.*") == []
    status, out, _ = office.run("limits", *asking(office, "olga"))
    heading, line, _, sums = out.splitlines()
    assert heading.split() == ["limit", "value", "party", "count", "since", "last", "reason"]
    assert line.split()[:4] == ["logins.free_failures", "5", "sip:bob@localhost", str(count)]
    assert sums == f"1 party limited {count} {'time' if count == 1 else 'times'} by 1 limit."


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_users_see_what_limits_their_own_address(shell: Shell, transport: str) -> None:
    shell.write_users("alice:secret\n")
    (shell.directory / "few.toml").write_text("[sip_connections]\nconnections_per_host_max = 1\n")
    shell.up("--config", "few.toml")
    for _ in range(3):
        pair = [socket.create_connection(("127.0.0.1", shell.port)) for _ in range(2)]
        for each in pair:
            each.close()
    (row, *_) = listed(shell, "limits", "--data-transport", transport, name="alice")
    assert (row["limit"], row["party"]) == ("sip_connections.connections_per_host_max", "127.0.0.1")


def test_operators_see_the_bounds_in_force(office: Shell) -> None:
    bounds = {row["limit"]: row["value"] for row in listed(office, "limits", "--settings")}
    assert bounds["flood.requests_per_s"] == 500
    assert "data_connections.idle_s_max" not in bounds, "it bounds nothing"
    status, _, err = office.run("limits", "--settings", *asking(office, "alice"))
    assert (status, "role" in err) == (1, True)
