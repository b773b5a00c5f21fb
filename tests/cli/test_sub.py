"""Subscriptions of the command line: their session and device, their end, and the printed text (decision 0036)."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest

from tests.cli.shell import WAIT_S, Shell, ended, one_line, read_line, read_ready
from tests.filters.xml_schema import is_valid
from wanderbus import event_text
from wanderbus.event import Event, Position
from wanderbus.filters import xml

pytestmark = pytest.mark.integration

BOB = ("bob", "hunter2")
HOSTILE = "\x1b[2J\r\n2 Departure n=7\x85\u202e\u2028"


def published(shell: Shell, *numbers: int) -> None:
    lines = "".join(f'{{"n": {number}}}\n' for number in numbers)
    assert shell.run("pub", "Departure", "-", *shell.as_user(*BOB), input=lines)[0] == 0


def ready(shell: Shell, *words: str) -> subprocess.Popen[str]:
    """Start a reader, and wait until it reports that it is ready."""
    reader = shell.start("sub", *words, *shell.as_user())
    assert read_ready(reader).startswith("wanderbus: subscribed to Departure")
    return reader


def interrupted(reader: subprocess.Popen[str], number: int = signal.SIGINT) -> str:
    reader.send_signal(number)
    status, out, err = ended(reader)
    assert (status, err) == (128 + number, "")
    return out


def listed(shell: Shell, what: str) -> list[dict[str, Any]]:
    status, out, err = shell.run(what, "--json", *shell.as_user()[:-2])
    assert (status, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_a_kept_subscription_goes_on_where_it_stopped_and_no_other_touches_it(shell: Shell) -> None:
    shell.up()
    kept, plain, second = ready(shell, "Departure", "--keep", "k"), ready(shell, "Departure"), ready(shell, "Departure")
    published(shell, 1)
    assert [read_line(reader) for reader in (kept, plain, second)] == ["1 Departure n=1"] * 3
    assert interrupted(plain) == interrupted(second) == interrupted(kept, signal.SIGTERM) == ""
    published(shell, 2)
    third = ready(shell, "Departure")
    published(shell, 3)
    assert read_line(third).endswith("n=3")
    interrupted(third)
    words = ("sub", "Departure", "--keep", "k", *shell.as_user(), "--count")
    assert shell.run(*words, "2") == (0, "2 Departure n=2\n3 Departure n=3\n", "")
    published(shell, 4)
    assert shell.run(*words, "1")[1] == "4 Departure n=4\n"
    status, out, err = shell.run("sub", "Departure", "n > 1", "--keep", "k", *shell.as_user())
    assert (status, out) == (2, "")
    assert "the subscription k has the subject Departure and the expression ''; give another name" in one_line(err)


def test_commands_leave_no_device_and_no_subscription_behind(shell: Shell) -> None:
    shell.up()
    readers = [ready(shell, "Departure") for _ in range(2)]
    published(shell, 1)
    for reader, number in zip(readers, (signal.SIGHUP, signal.SIGINT), strict=True):
        assert read_line(reader) == "1 Departure n=1"
        interrupted(reader, number)
    (over,) = listed(shell, "sessions")
    assert (over["session"], over["devices"], over["delivered"]) == ("", [], 2)
    assert listed(shell, "subscriptions") == []


def test_the_queue_of_a_killed_command_expires_and_the_next_does_not_print_it(shell: Shell) -> None:
    shell.up()
    killed = ready(shell, "Departure", "--lifetime", "2h")
    killed.kill()
    killed.wait()
    published(shell, 1)
    (row,) = listed(shell, "subscriptions")
    assert (row["session"], row["queued"], row["expires_us"] is not None) == ("sub", 1, True)
    reader = ready(shell, "Departure")
    published(shell, 2)
    assert read_line(reader).endswith("n=2")
    interrupted(reader)
    assert listed(shell, "subscriptions") == []


def test_a_reader_whose_output_nobody_reads_ends_by_itself(shell: Shell) -> None:
    shell.up()
    reader = ready(shell, "Departure")
    published(shell, 1)
    assert read_line(reader) == "1 Departure n=1"
    assert reader.stdout is not None
    reader.stdout.close()
    assert reader.wait(WAIT_S) == 0
    assert listed(shell, "subscriptions") == []


def test_it_reports_when_the_connection_is_lost_and_there_again(shell: Shell) -> None:
    server = shell.up()
    reader = ready(shell, "Departure")
    server.kill()
    server.wait()
    assert "connection lost" in read_ready(reader)
    shell.up()
    assert read_ready(reader) == "wanderbus: reconnected"
    published(shell, 1)
    assert read_line(reader) == "1 Departure n=1"
    interrupted(reader)


def test_a_name_belongs_to_one_command_at_a_time(shell: Shell) -> None:
    shell.up()
    ready(shell, "Departure", "--keep", "k")
    status, _, err = shell.run("sub", "Departure", "--keep", "k", *shell.as_user())
    assert (status, one_line(err)) == (
        2,
        "another 'wanderbus sub --keep k' is running; end that one first, or give another name",
    )
    for words, complaint in (
        (("--keep", "--count"), "invalid name '--count'"),
        (("--lifetime", "soon"), "--lifetime: invalid duration 'soon'"),
        (("--keep", "k", "--session", "s"), "has its own session"),
    ):
        status, _, err = shell.run("sub", "Departure", *words, *shell.as_user())
        assert status == 2
        assert complaint in one_line(err)


def test_no_event_forges_a_line_and_every_line_is_read_back(shell: Shell) -> None:
    shell.up()
    reader = ready(shell, "Departure", "--keep", "k")
    event = Event("Departure", {"n": HOSTILE, "list": [1.0, "a b", HOSTILE], f"odd{HOSTILE}": "42", "plain": "IAH"})
    words = ("pub", "Departure", "--format", "text", "-", *shell.as_user(*BOB))
    assert shell.run(*words, input=f"{event_text.write(event)}\n")[::2] == (0, "")
    line = read_line(reader)
    assert line.isprintable()
    assert event_text.read(line) == event
    interrupted(reader)
    assert shell.run(*words, input=f"{line}\n")[::2] == (0, "")
    status, out, _ = shell.run("peek", "alice@localhost", "--session", "sub.k", *shell.as_user()[:-2])
    assert (status, out.rstrip("\n").isprintable()) == (0, True)
    assert event_text.read(out) == event
    status, out, _ = shell.run("peek", "alice@localhost", "--session", "sub.k", "--json", *shell.as_user()[:-2])
    assert out.rstrip("\n").isprintable()
    assert json.loads(out)["attributes"] == event.attributes


def test_an_error_in_json_is_one_line_on_standard_error(shell: Shell) -> None:
    shell.port = 1
    for words, kind, status in (
        (["pub", "Departure", "--json", "--user", "alice"], "ConfigurationError", 2),
        (["sub", "--json"], "ConfigurationError", 2),
        (["sub", "Departure", "(n >", "--json", "--user", "a@b"], "FilterError", 2),
        (["sub", "Departure", "--json", "--timeout", "0.2", *shell.as_user()], "NoResponse", 1),
    ):
        found, out, err = shell.run(*words)
        assert (found, out, err.count("\n")) == (status, "", 1), err
        assert json.loads(err)["error"]["type"] == kind


def test_unsubscribe_ends_by_name_by_id_and_all(shell: Shell) -> None:
    shell.up()
    reader = ready(shell, "Departure", "--keep", "k")
    interrupted(ready(shell, "Departure", "--keep", "l"))
    interrupted(ready(shell, "Departure", "--keep", "m"))
    end = ("unsubscribe", *shell.as_user()[:-2])
    identity = next(row["id"] for row in listed(shell, "subscriptions") if row["session"] == "sub.l")
    status, out, err = shell.run(*end, "k", identity, "--json")
    assert (status, err) == (0, "")
    assert {json.loads(line)["session"] for line in out.splitlines()} == {"sub.k", "sub.l"}
    assert reader.wait(WAIT_S) == 0
    assert [row["session"] for row in listed(shell, "subscriptions")] == ["sub.m"]
    for words, status, complaint in (
        (("nothing",), 1, "you have no subscription 'nothing'"),
        ((), 2, "give the subscriptions to end, or --all"),
    ):
        found, out, err = shell.run(*end, *words)
        assert (found, out) == (status, "")
        assert complaint in one_line(err)
    assert shell.run(*end, "--all")[0] == 0
    assert listed(shell, "subscriptions") == []


def test_errors_name_the_remedy(shell: Shell) -> None:
    shell.up()
    server = ("--server", f"127.0.0.1:{shell.port}")
    for words, status, complaint in (
        (("pub", "X", "--user", "alice@localhost", *server), 1, "use --password or WANDERBUS_PASSWORD"),
        (("pub", "X", "--user", "alice@elsewhere", "--password", "x", *server), 1, "serves localhost, not elsewhere"),
        (("pub", "X", "--user", "alice", *server), 2, "'alice' is not a user; write alice@localhost"),
        (("up", "--data-dir", "fresh", "--port", "0"), 2, "give --users FILE (lines of name:password"),
        (("up", "--data-dir", "fresh", "--users", "users", "--port", str(shell.port)), 2, "give another with --port"),
        (("sessions", "ghost@localhost", *shell.as_user()[:-2]), 1, ""),
    ):
        found, out, err = shell.run(*words)
        assert (found, out) == (status, ""), err
        assert complaint in one_line(err)
    assert not (shell.directory / "fresh").exists()


def test_a_file_that_up_runs_is_accepted_by_config_check(shell: Shell) -> None:
    (shell.directory / "broker.toml").write_text('users = "users"\n')
    assert shell.run("config", "check", "broker.toml")[::2] == (0, "")
    shell.up("--config", "broker.toml")


def test_the_version_is_shown_and_completion_installed_by_one_command(shell: Shell) -> None:
    status, out, err = shell.run("--version")
    assert (status, out.startswith("wanderbus "), err) == (0, True, "")
    status, out, _ = shell.run("-h")
    assert status == 0
    assert "--install-completion" in out
    assert shell.run("sub", "-h")[0] == 0


def test_o03_a_line_of_xml_is_one_notification_and_no_event_forges_another(shell: Shell) -> None:
    shell.up()
    words = ("sub", "Departure", "--keep", "x", "--format", "xml", *shell.as_user(), "--count", "1")
    reader = shell.start(*words)
    shell.subscribed()
    event = Event("Departure", {"n": HOSTILE, "list": [1.0, "\U000e0001", HOSTILE], f"odd{HOSTILE}": "<&>\\u0041"})
    line = ("pub", "Departure", "--format", "text", "-", *shell.as_user(*BOB))
    assert shell.run(*line, input=f"{event_text.write(event)}\n" * 2)[::2] == (0, "")
    printed = [ended(reader)[1], shell.run(*words)[1]]
    for number, text in enumerate(printed, 1):
        assert text.count("\n") == 1
        assert text.rstrip("\n").isprintable()
        assert is_valid(text)
        notification = xml.read_notification(text)
        assert (notification.event.subject, notification.event.attributes) == (event.subject, event.attributes)
        assert notification.position == Position(notification.position.epoch, number)
    status, out, err = shell.run("sub", "Departure", "--keep", "x", *shell.as_user())
    assert (status, out) == (2, "")
    assert "the subscription x was made with --format xml; give another name" in one_line(err)


def test_t05_since_prints_the_past_and_then_new_events(shell: Shell) -> None:
    shell.up()
    published(shell, 1, 2, 3)
    reader = ready(shell, "Departure", "n > 1", "--since", "earliest", "--format", "json")
    published(shell, 4)
    lines = [json.loads(read_line(reader)) for _ in range(3)]
    assert [(each["attributes"]["n"], each["history"]) for each in lines] == [(2, True), (3, True), (4, False)]
    interrupted(reader)
    reader = ready(shell, "Departure", "--since", lines[0]["id"])
    assert [read_line(reader)[-3:] for _ in range(2)] == ["n=3", "n=4"]
    interrupted(reader)
    kept = ready(shell, "Departure", "--since", "-1h", "--keep", "k")
    numbers, texts = zip(*(read_line(kept).split(" ", 1) for _ in range(4)), strict=True)
    first = int(numbers[0])
    assert list(map(int, numbers)) == list(range(first, first + 4)), "they continue those of the user's former sessions"
    assert list(texts) == [f"Departure n={n}" for n in range(1, 5)]
    interrupted(kept, signal.SIGTERM)
    published(shell, 5)
    kept = ready(shell, "Departure", "--since", "-1h", "--keep", "k")
    assert read_line(kept).endswith("n=5")
    interrupted(kept)


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        ("yesterday", "--since: invalid point 'yesterday'"),
        ("-2 weeks", "--since: invalid duration '2 weeks'"),
        ("2026-08-01T06:00", "--since: the time 2026-08-01T06:00 has no time zone"),
        ("2999-01-01", "is in the future"),
        ("other-1-1", "has no such event"),
    ],
)
def test_t05_a_point_that_is_not_in_the_past_is_an_error_of_one_line(shell: Shell, point: str, reason: str) -> None:
    shell.up()
    status, out, err = shell.run("sub", "Departure", "--since", point, *shell.as_user())
    assert (status != 0, out) == (True, "")
    assert reason in one_line(err)


PATTERN = (
    "match A: Departure (n == 1) then B: Departure (n == 2) within 1 hour emit pair with first = A.n, second = B.n"
)


def test_detections_of_a_pattern_are_printed(shell: Shell) -> None:
    shell.up()
    (shell.directory / "pair.pattern").write_text(PATTERN + "\n")
    readers = [shell.start("sub", *words, *shell.as_user()) for words in PATTERN_WORDS]
    for reader in readers:
        assert read_ready(reader).startswith("wanderbus: subscribed to pair")
    published(shell, 1, 2)
    for reader in readers:
        line = read_line(reader)
        assert line.split(" ", 1)[1].startswith("pair detection=pattern:")
        assert line.endswith("first=1 second=2")
    _, out, _ = shell.run("subscriptions", *shell.as_user()[:-2])
    assert "(keeps " in out
    for reader in readers:
        interrupted(reader)


PATTERN_WORDS = (("--pattern", PATTERN), ("--pattern-file", "pair.pattern"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "give a subject, or a pattern"),
        (("Departure", "--pattern", PATTERN), "give either a subject with an expression, or a pattern"),
        (("--pattern", PATTERN, "--pattern-file", "x"), "either as text or with --pattern-file"),
        (("--pattern", "match A: a"), "expected 'within'"),
    ],
)
def test_pattern_that_is_no_pattern_is_refused(shell: Shell, words: tuple[str, ...], reason: str) -> None:
    status, out, err = shell.run("sub", *words, "--user", "sip:a@b")
    assert (status, out) == (2, "")
    assert reason in err
