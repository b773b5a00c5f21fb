"""``wanderbus pub --outbox``: stored events are published once, whichever process is killed (SPEC G-20, X25)."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.cli.shell import Shell, ended, one_line, read_line
from wanderbus.cli.application import run
from wanderbus.event import Event
from wanderbus.protocol import encode_event
from wanderbus.runtime.files.outbox_file import OutboxFile

pytestmark = pytest.mark.integration

BOB = ("bob", "hunter2")


def lines(*values: int) -> str:
    return "".join(f'{{"n": {value}}}\n' for value in values)


def subscribe(shell: Shell) -> None:
    """Alice wants to hear of everything, and goes."""
    reader = shell.start("sub", "Departure", "--keep", "kept", "--count", "1", *shell.as_user())
    shell.subscribed()
    assert shell.run("pub", "Departure", "n=-1", *shell.as_user(*BOB))[0] == 0
    assert ended(reader)[0] == 0


def missed(shell: Shell, count: int) -> list[int]:
    """The events that waited for Alice; only the event that is published last follows them."""
    assert shell.run("pub", "Departure", "n=-2", *shell.as_user(*BOB))[0] == 0
    status, out, err = shell.run("sub", "Departure", "--keep", "kept", "--count", str(count + 1), *shell.as_user())
    assert (status, err) == (0, "")
    *values, last = [int(line.rpartition("=")[2]) for line in out.splitlines()]
    assert last == -2, (values[:3], values[-5:])
    return values


def feed(publisher: subprocess.Popen[str], text: str) -> None:
    assert publisher.stdin is not None
    publisher.stdin.write(text)
    publisher.stdin.flush()


def test_events_are_stored_and_then_published(shell: Shell) -> None:
    shell.up()
    subscribe(shell)
    outbox = ("--outbox", "out.db", *shell.as_user(*BOB))
    assert shell.run("pub", "Departure", "n=1", *outbox) == (
        0,
        "stored 1\npublished 1, of which 0 were left from earlier\n",
        "",
    )
    status, out, err = shell.run("pub", "Departure", "-", "--ids", "--json", *outbox, input=lines(*range(2, 600)))
    assert (status, err) == (0, "")
    *stored, summary = [json.loads(line) for line in out.splitlines()]
    assert stored == [{"stored": n} for n in range(1, 599)]
    assert summary == {"published": 598, "left_behind": 0, "refused": 0, "waiting": 0}
    assert missed(shell, 599) == list(range(1, 600))


def test_stored_events_arrive_once_after_server_and_command_are_killed(shell: Shell) -> None:
    server = shell.up()
    subscribe(shell)
    outbox = ("--outbox", "out.db", *shell.as_user(*BOB))
    publisher = shell.start("pub", "Departure", "-", "--ids", *outbox, stdin=subprocess.PIPE)
    feed(publisher, lines(1, 2, 3))
    assert [read_line(publisher) for _ in range(3)] == ["stored 1", "stored 2", "stored 3"]
    server.kill()
    server.wait()
    feed(publisher, lines(*range(4, 21)))
    assert [read_line(publisher) for _ in range(4, 21)][-1] == "stored 20"
    publisher.kill()
    publisher.wait()
    shell.up()
    status, out, err = shell.run("pub", "--json", *outbox)
    assert (status, err) == (0, "")
    summary = json.loads(out)
    assert 17 <= summary["published"] == summary["left_behind"] <= 20
    assert shell.run("pub", "Departure", "n=21", *outbox)[0] == 0
    assert missed(shell, 21) == list(range(1, 22))


@pytest.mark.parametrize("after", [1, 150])
def test_events_in_flight_arrive_once_after_the_command_is_killed(shell: Shell, after: int) -> None:
    shell.up()
    subscribe(shell)
    outbox = ("--outbox", "out.db", *shell.as_user(*BOB))
    publisher = shell.start("pub", "Departure", "-", "--ids", *outbox, stdin=subprocess.PIPE)
    feed(publisher, lines(*range(1, 501)))
    stored = [read_line(publisher) for _ in range(after)]
    publisher.kill()
    assert publisher.stdout is not None
    stored += publisher.stdout.read().splitlines()
    publisher.wait()
    assert shell.run("pub", *outbox)[::2] == (0, "")
    published = shell.logged("published") - 1
    assert published >= len([line for line in stored if line.startswith("stored ")])
    assert missed(shell, published) == list(range(1, published + 1))


def test_nothing_is_queued_for_the_device_that_an_outbox_is(shell: Shell) -> None:
    shell.up()
    subscribe(shell)
    assert shell.run("pub", "Departure", "n=1", "--outbox", "out.db", *shell.as_user())[0] == 0
    assert missed(shell, 1) == [1]
    status, out, err = shell.run("sessions", "--json", *shell.as_user()[:-2])
    assert (status, err) == (0, "")
    sessions = {row["session"]: row for row in map(json.loads, out.splitlines())}
    assert len(sessions["outbox"]["devices"]) == len(sessions["sub.kept"]["devices"]) == 1
    assert sessions["sub.kept"]["queued"] == 0


def test_a_bad_line_ends_the_input_and_those_before_it_are_published(shell: Shell) -> None:
    shell.up()
    subscribe(shell)
    outbox = ("--outbox", "out.db", *shell.as_user(*BOB))
    status, out, err = shell.run("pub", "Departure", "-", "--ids", *outbox, input=f"{lines(1, 2)}nonsense\n{lines(3)}")
    assert (status, out) == (2, "stored 1\nstored 2\n")
    assert one_line(err).startswith("standard input, line 3: ")
    assert missed(shell, 2) == [1, 2]


def test_refused_events_are_reported_and_the_rest_published(shell: Shell) -> None:
    shell.up()
    subscribe(shell)
    outbox = ("--outbox", "out.db", *shell.as_user(*BOB))
    assert shell.run("pub", *outbox)[0] == 0
    device = (shell.directory / "out.db.device" / "device").read_text().split()[0]
    file = OutboxFile(shell.directory / "out.db", f"sip:bob@localhost at sip:broker@localhost, device {device}")
    file.write([encode_event(Event("", {"n": 1})), encode_event(Event("Departure", {"n": 2}))], [])
    file.close()
    status, out, err = shell.run("pub", "--json", *outbox)
    assert (status, json.loads(out)) == (1, {"published": 1, "left_behind": 2, "refused": 1, "waiting": 0})
    error = json.loads(err.splitlines()[-1])["error"]
    assert error["type"] == "Refused"
    assert error["message"].startswith("the broker refused 1 events; reason of the first: the subject")
    assert missed(shell, 1) == [2]


def test_complaints(shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    server = shell.up()
    monkeypatch.chdir(shell.directory)
    waiting = shell.start("pub", "Departure", "-", "--ids", "--outbox", "used", *shell.as_user(), stdin=subprocess.PIPE)
    feed(waiting, lines(1))
    assert read_line(waiting) == "stored 1"
    (shell.directory / "text").write_text("no outbox")
    bob = shell.as_user(*BOB)
    for words, status, complaint in (
        (["pub", *bob], 2, "give the subject of an event, or --outbox FILE"),
        (["pub", "Departure", "n=1", "--outbox", "text", *bob], 1, "the outbox text is damaged"),
        (["pub", "Departure", "n=1", "--outbox", "used", *bob], 2, "another agent uses the outbox used;"),
        (["pub", "Departure", "n=1", "--outbox", "users/out", *bob], 1, "cannot be used"),
        (["pub", "Departure", "n=null", "--outbox", "new", *bob], 2, "null is not a value"),
        (["pub", "--outbox", "new", "--user", "eci://127.0.0.1:1"], 2, "no outbox_file; leave it out"),
    ):
        found = run(words)
        printed = capsys.readouterr()
        assert (found, printed.out) == (status, ""), (words, printed.err)
        assert complaint in one_line(printed.err)
    server.kill()
    server.wait()
    feed(waiting, lines(2))
    assert read_line(waiting) == "stored 2"
    waiting.terminate()
    status, _, err = ended(waiting)
    assert status == 143
    assert "1 events are unpublished in used; the next 'wanderbus pub --outbox used' publishes them" in err
    shell.up()
    assert run(["pub", "--outbox", "used", *bob]) == 1
    assert "holds 1 events of sip:alice@localhost at sip:broker@localhost, device " in one_line(capsys.readouterr().err)


def test_a_file_that_was_parted_from_its_device_is_not_published_by_another(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker would not recognise events that it has already accepted."""
    server = shell.up()
    monkeypatch.chdir(shell.directory)
    waiting = shell.start("pub", "Departure", "-", "--ids", "--outbox", "out", *shell.as_user(), stdin=subprocess.PIPE)
    feed(waiting, lines(1))
    assert read_line(waiting) == "stored 1"
    server.kill()
    server.wait()
    feed(waiting, lines(2))
    assert read_line(waiting) == "stored 2"
    waiting.kill()
    waiting.wait()
    shell.up()
    (shell.directory / "out").rename(shell.directory / "moved")
    assert run(["pub", "--outbox", "moved", *shell.as_user()]) == 1
    assert "connect as that user" in one_line(capsys.readouterr().err)
    (shell.directory / "out.device").rename(shell.directory / "moved.device2")
    (shell.directory / "moved.device" / "device").unlink()
    (shell.directory / "moved.device").rmdir()
    (shell.directory / "moved.device2").rename(shell.directory / "moved.device")
    assert run(["pub", "--outbox", "moved", *shell.as_user()]) == 0


def test_a_server_that_is_down_gets_later_what_is_stored_now(shell: Shell) -> None:
    server = shell.up()
    subscribe(shell)
    server.kill()
    server.wait()
    outbox = ("--outbox", "out.db", "--timeout", "0.3", *shell.as_user(*BOB))
    status, out, err = shell.run("pub", "Departure", "-", "--ids", *outbox, input=lines(*range(1, 400)))
    assert (status, out.splitlines()[-2:]) == (0, ["stored 399", "published 0, of which 0 were left from earlier"])
    assert (
        one_line(err) == "399 events are unpublished in out.db; the next 'wanderbus pub --outbox out.db' publishes them"
    )
    status, out, err = shell.run("pub", *outbox)
    assert (status, out, err.count("\n")) == (1, "", 2)
    assert "check that the server runs (wanderbus up)" in err
    shell.up()
    status, out, err = shell.run("pub", *outbox[:2], "--timeout", "10", *outbox[4:])
    assert (status, out, err) == (0, "published 399, of which 399 were left from earlier\n", "")
    assert missed(shell, 399) == list(range(1, 400))


def test_events_of_a_refused_user_stay_stored(shell: Shell) -> None:
    shell.up()
    outbox = ("pub", "Departure", "n=1", "--outbox", "out.db")
    status, out, err = shell.run(*outbox, *shell.as_user("bob", "guess"))
    assert (status, out) == (1, "stored 1\n")
    assert "1 events are unpublished in out.db" in err
    assert "does not accept the password of sip:bob@localhost" in err
    assert shell.run(*outbox, *shell.as_user(*BOB))[1].endswith("published 2, of which 1 were left from earlier\n")
