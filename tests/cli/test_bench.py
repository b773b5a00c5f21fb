"""`wanderbus bench` against a server that runs."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.cli.shell import Shell, ended, one_line, read_error

pytestmark = pytest.mark.integration


def measured(shell: Shell, *words: str) -> dict[str, Any]:
    status, out, err = shell.run("bench", *words, "--json", *shell.as_user())
    assert status == 0, err
    found: dict[str, Any] = json.loads(out)
    assert (found["command"], found["is_complete"]) == (words[0], True)
    return found


def test_rate_of_publishers(shell: Shell) -> None:
    shell.up()
    found = measured(shell, "pub", "--events", "300", "--publishers", "3", "--size", "50")
    assert (found["accepted"], found["accepted_bytes"], found["publishers"]) == (300, 15_000, 3)
    assert found["accepted_per_s"] > 0
    assert found["acceptance"]["count"] == 300
    assert 0 < found["acceptance"]["p50_ms"] <= found["acceptance"]["max_ms"]


def test_latency_of_subscribers_and_nothing_that_stays(shell: Shell) -> None:
    shell.up()
    for subject in ("wanderbus.bench", "Own"):
        found = measured(shell, "sub", "--events", "100", "--subscribers", "3", "--rate", "500", "--subject", subject)
        assert (found["delivered"], found["subject"], found["subscribers"]) == (300, subject, 3)
        assert (found["lost"], found["repeated"], found["out_of_order"], found["outstanding"]) == (0, 0, 0, 0)
        assert found["latency"]["count"] == 300
        assert found["seconds"] >= 99 / 500
    status, out, _ = shell.run("sessions", "--json", *shell.as_visitor())
    assert status == 0
    assert [row["session"] for row in map(json.loads, out.splitlines())] in ([], [""])


def test_round_trips_one_at_a_time(shell: Shell) -> None:
    shell.up()
    found = measured(shell, "request", "--events", "20")
    assert found["acceptance"]["count"] == 20
    assert found["acceptance"]["p50_ms"] * 20 / 2 <= found["seconds"] * 1_000, "they do not overlap"


def test_gaps_of_a_subscriber_that_moves(shell: Shell) -> None:
    shell.up()
    found = measured(shell, "move", "--moves", "3", "--pause-s", "0.2", "--rate", "100")
    assert (found["moves"], found["connection"]["count"], found["gap"]["count"]) == (3, 3, 3)
    assert (found["lost"], found["repeated"], found["out_of_order"]) == (0, 0, 0)
    assert found["delivered"] == found["accepted"] == found["events"] > 0
    status, out, _ = shell.run("bench", "move", "--moves", "1", "--pause-s", "0.1", *shell.as_user())
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        *("published", "acceptance", "delivered", "latency", "connected", "gap", "account")
    ]


def test_interrupt_shows_what_was_measured(shell: Shell) -> None:
    shell.up()
    command = shell.start("bench", "sub", "--events", "100000", "--rate", "50", *shell.as_user())
    assert "of 100,000 events published" in read_error(command)
    command.send_signal(signal.SIGINT)
    status, out, _ = ended(command)
    assert status == 130
    assert out.startswith("published  ")
    assert " of 100,000 events of 128 bytes in " in out


def test_limit_of_the_time(shell: Shell) -> None:
    shell.up()
    status, out, err = shell.run("bench", "pub", "--rate", "20", "--limit-s", "0.5", "--json", *shell.as_user())
    assert (status, one_line(err)) == (1, "ended by --limit-s after 0.5 s; give it more time, or fewer events")
    found = json.loads(out)
    assert not found["is_complete"]
    assert 1 <= found["accepted"] <= 20


def test_misuse_in_one_line(shell: Shell) -> None:
    shell.up()
    large = shell.run("bench", "pub", "--size", "3000000", *shell.as_user())
    assert large[0] == 1
    assert "the event has 3,000,125 bytes" in one_line(large[2])
    address = shell.run("bench", "move", "--address", "nowhere", *shell.as_user())
    assert address[0] == 2
    assert "'nowhere' is not an IP address" in one_line(address[2])
    assert shell.run("bench", "pub", "--events", "0", *shell.as_user())[0] == 2
