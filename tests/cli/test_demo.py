"""``wanderbus demo``: what it says, counts and leaves behind."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.shell import Shell, ended, one_line, read_line
from wanderbus.cli import application
from wanderbus.cli.demo import demo as module
from wanderbus.cli.demo.account import UserFigures, account_of, verdict
from wanderbus.event import Notification


def test_an_account_of_what_arrived_once_and_in_order_is_good() -> None:
    account = account_of("ann", [1, 2, 5], [1, 2, 5])
    assert account == UserFigures("ann", due=3, received=3, lost=0, repeated=0, out_of_order=0)
    assert account.is_good
    assert verdict([account]).startswith("nothing was lost")


@pytest.mark.parametrize(
    ("received", "words"),
    [
        ([1, 5], "1 lost, 0 repeated, 0 out of order, 0 unexpected"),
        ([1, 2, 2, 5], "0 lost, 1 repeated, 0 out of order, 0 unexpected"),
        ([1, 5, 2], "0 lost, 0 repeated, 1 out of order, 0 unexpected"),
        ([1, 2, 3, 5], "0 lost, 0 repeated, 0 out of order, 1 unexpected"),
        ([1, 3, 3], "2 lost, 1 repeated, 0 out of order, 1 unexpected"),
        ([], "3 lost, 0 repeated, 0 out of order, 0 unexpected"),
    ],
)
def test_an_account_names_everything_that_is_wrong(received: list[int], words: str) -> None:
    account = account_of("ann", [1, 2, 5], received)
    assert not account.is_good
    assert verdict([account, account_of("ben", [1], [1])]) == f"this is wrong: {words}"


@pytest.mark.integration
def test_a_demonstration_tells_of_a_move_and_an_absence_and_counts(shell: Shell) -> None:
    status, out, err = shell.run("demo", "--seconds", "4", "--json", environment={"TMPDIR": str(shell.directory)})
    assert (status, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    words = ["started", "subscribed", "publishing", "moving", "moved", "left", "returned", "published", "verdict"]
    assert [row["what"] for row in rows] == words
    assert rows[6]["waited"] > 0
    assert rows[-1]["good"] is True
    assert [row["user"] for row in rows[-1]["users"]] == ["ann", "ben", "cleo"]
    assert all(row["due"] == row["received"] > 20 for row in rows[-1]["users"])
    assert list(shell.directory.glob("wanderbus-demo-*")) == []


@pytest.mark.integration
def test_text_is_for_people(shell: Shell) -> None:
    status, out, err = shell.run("demo", "--seconds", "4")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert all(" s  " in line for line in lines[:8])
    assert lines[-1] == "Verdict: nothing was lost or repeated, and everything arrived in order."
    assert max(map(len, lines)) <= 100


@pytest.mark.integration
def test_a_loss_and_a_repetition_are_the_verdict_and_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    take = module.DemoTraveller._take

    def take_otherwise(traveller: module.DemoTraveller, notification: Notification) -> None:
        number = notification.event["Number"]
        if number != 3:
            take(traveller, notification)
        if number == 6:
            take(traveller, notification)

    monkeypatch.setattr(module.DemoTraveller, "_take", take_otherwise)
    monkeypatch.setattr(module, "ARRIVE_S_MAX", 0.2)
    assert application.run(["demo", "--seconds", "4"]) == 1
    assert "Verdict: this is wrong: 2 lost, 3 repeated" in capsys.readouterr().out


@pytest.mark.integration
def test_a_demonstration_that_hangs_ends_with_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "OTHER_S_MAX", -7.0)
    assert application.run(["demo", "--seconds", "4"]) == 1
    assert "has not ended after 1 s" in one_line(capsys.readouterr().err)


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_demonstration_without_leftovers(shell: Shell, number: int) -> None:
    process = shell.start("demo", environment={"TMPDIR": str(shell.directory)})
    for _ in range(3):
        assert read_line(process)
    process.send_signal(number)
    status, _, err = ended(process)
    assert (status, err) == (128 + number, "")
    assert list(shell.directory.glob("wanderbus-demo-*")) == []


@pytest.mark.integration
def test_a_reader_who_has_enough_is_no_error(shell: Shell) -> None:
    process = shell.start("demo", "--seconds", "4", environment={"TMPDIR": str(shell.directory)})
    assert read_line(process)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 0
    assert list(Path(shell.directory).glob("wanderbus-demo-*")) == []


@pytest.mark.parametrize("words", [("--seconds", "3"), ("--seconds", "61"), ("--seconds", "x"), ("--users", "4")])
def test_a_wrong_option_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert application.run(["demo", *words]) == 2
    assert words[0] in capsys.readouterr().err
