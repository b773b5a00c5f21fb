"""``wanderbus pub`` and ``wanderbus sub``: events from and to the shell, and their complaints."""

from __future__ import annotations

import functools
import json
import signal
import socket
import subprocess
import time

import pytest

from tests.cli.shell import WAIT_S, Shell, ended, one_line, read_line
from wanderbus.cli import connection_options
from wanderbus.cli.application import run
from wanderbus.client.connect import connect

pytestmark = pytest.mark.integration


def test_events_go_from_one_shell_to_another(shell: Shell) -> None:
    shell.up()
    reader = shell.start(
        "sub", "Departure", "(Dest == IAH)", "--keep", "kept", "--json", "--count", "2", *shell.as_user()
    )
    shell.subscribed()
    listed = '{"Dest": "IAH", "n": 2, "list": ["a", 1], "date": "2013-01-01"}\n\n{"Dest": "ORD"}'
    status, out, err = shell.run(
        "pub", "Departure", "-", "--ids", "--json", *shell.as_user("bob", "hunter2"), input=listed
    )
    assert (status, err) == (0, "")
    assert [json.loads(line).keys() for line in out.splitlines()] == [{"id"}, {"id"}]
    words = ["Dest=IAH", "DepDelay=42.0", "Late=true", "Text=4 o'clock", 'Quoted="42"']
    status, out, err = shell.run("pub", "Departure", *words, *shell.as_user("bob", "hunter2"))
    assert (status, err) == (0, "")
    assert out.startswith("published wb")
    status, out, err = ended(reader)
    assert (status, err) == (0, "")
    received = [json.loads(line) for line in out.splitlines()]
    assert len(received) == 2
    typed = {"Dest": "IAH", "DepDelay": 42.0, "Late": True, "Text": "4 o'clock", "Quoted": "42"}
    assert typed in [each["attributes"] for each in received]
    keys = {"id", "position", "subscriptions", "redelivered", "history", "subject", "attributes", "published_us"}
    assert all(each.keys() == keys for each in received)
    assert [each["position"]["number"] for each in received] == [1, 2]


def test_u04_a_shell_asks_in_cesql(shell: Shell) -> None:
    shell.up()
    words = ["sub", "Departure", "Dest LIKE 'I%' AND n % 2 = 0", "--language", "cesql", "--count", "1"]
    reader = shell.start(*words, *shell.as_user())
    shell.subscribed()
    lines = "".join(f'{{"Dest": "IAH", "n": {value}}}\n' for value in (1, 2, 3))
    assert shell.run("pub", "Departure", "-", *shell.as_user("bob", "hunter2"), input=lines)[0] == 0
    assert ended(reader) == (0, "1 Departure Dest=IAH n=2\n", "")


def test_a_language_that_there_is_not_is_refused_without_a_server(shell: Shell) -> None:
    words = ("sub", "Departure", "n = 1", "--language", "sql", "--user", "sip:alice@localhost")
    status, out, err = shell.run(*words, "--password", "wonderland", "--server", "127.0.0.1:1")
    assert (status, out) == (2, "")
    assert "there is no filter language 'sql'; use one of eci, cesql, xml" in err


def test_a_kept_subscription_prints_later_what_it_missed(shell: Shell) -> None:
    shell.up()
    first = shell.start("sub", "Departure", "--keep", "kept", "--count", "1", *shell.as_user())
    shell.subscribed()
    assert shell.run("pub", "Departure", "n=1", *shell.as_user("bob", "hunter2"))[0] == 0
    assert ended(first) == (0, "1 Departure n=1\n", "")
    lines = "".join(f'{{"n": {value}}}\n' for value in range(100, 200))
    words = ("pub", "Departure", "-", *shell.as_user("bob", "hunter2"))
    assert shell.run(*words, input=lines) == (0, "published 100 events\n", "")
    status, out, err = shell.run("sub", "--keep", "kept", "--count", "100", *shell.as_user())
    assert (status, err) == (0, "")
    assert [line.rpartition("=")[2] for line in out.splitlines()] == [str(value) for value in range(100, 200)]


def test_a_name_alone_continues_its_subscription_with_subject_and_filter(shell: Shell) -> None:
    shell.up()
    status, out, err = shell.run("sub", "--keep", "late", *shell.as_user())
    assert (status, out) == (2, "")
    assert "there is no subscription late" in one_line(err)
    words = ("sub", "Departure", "n % 2 = 0", "--language", "cesql", "--keep", "late", "--count", "1")
    first = shell.start(*words, *shell.as_user())
    shell.subscribed()
    publish = ("pub", "Departure", "-", "--json", *shell.as_user("bob", "hunter2"))
    status, out, _ = shell.run(*publish, input="".join(f'{{"n": {value}}}\n' for value in range(1, 6)))
    assert (status, json.loads(out)) == (0, {"published": 5, "held_back": 0})
    assert ended(first) == (0, "1 Departure n=2\n", "")
    purge = ("purge", "sip:alice@localhost", "--session", "sub.late", "--yes", *shell.as_visitor())
    assert shell.run(*purge)[0] == 0
    reader = shell.start("sub", "--keep", "late", "--json", "--count", "1", *shell.as_user())
    gap = json.loads(read_line(reader))
    assert (gap["missing"], gap["reason"]) == (1, "purged")
    assert shell.run(*publish, input='{"n": 7}\n{"n": 8}\n')[0] == 0
    status, out, err = ended(reader)
    assert (status, json.loads(out)["attributes"]) == (0, {"n": 8})


@pytest.mark.parametrize("up", [(), ("--no-encryption",)])
def test_u05_f01_events_over_tcp_and_unencrypted_if_both_sides_set_it(shell: Shell, up: tuple[str, ...]) -> None:
    shell.up(*up)
    how = (*up, "--data-transport", "tcp")
    assert shell.run("pub", "Departure", "n=1", *shell.as_user(), *how)[::2] == (0, "")
    wrong = () if up else ("--no-encryption",)
    status, out, err = shell.run("pub", "Departure", "n=1", *shell.as_user(), *wrong)
    assert (status, out) == (1, "")
    assert one_line(err).endswith("does not: give --no-encryption to both, or to neither")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_reader_leaves_in_order(shell: Shell, number: signal.Signals) -> None:
    """Exit status 128 plus the signal; no subscription is left behind whose queue grows unread."""
    server = shell.up("--verbose")
    reader = shell.start("sub", "Departure", *shell.as_user())
    shell.subscribed()
    reader.send_signal(number)
    status, _, err = ended(reader)
    assert (status, err) == (128 + number, "")
    server.terminate()
    assert "sip:alice@localhost is DISCONNECTED" in ended(server)[2]
    assert shell.logged("unsubscribed") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_publisher_does_not_wait_for_its_input(shell: Shell, number: signal.Signals) -> None:
    shell.up()
    publisher = shell.start("pub", "Departure", "-", "--ids", *shell.as_user(), stdin=subprocess.PIPE)
    assert publisher.stdin is not None
    publisher.stdin.write('{"n": 1}\n')
    publisher.stdin.flush()
    assert read_line(publisher).startswith("published ")
    publisher.send_signal(number)
    assert publisher.wait(WAIT_S) == 128 + number


def test_a_closed_output_ends_the_command(shell: Shell) -> None:
    shell.up()
    reader = shell.start("sub", "Departure", *shell.as_user())
    assert reader.stdout is not None
    shell.subscribed()
    publisher = shell.start("pub", "Departure", "-", *shell.as_user("bob", "hunter2"), stdin=subprocess.PIPE)
    assert publisher.stdin is not None
    for value in range(1_000):
        publisher.stdin.write(f'{{"n": {value}}}\n')
        publisher.stdin.flush()
        if value == 5:
            reader.stdout.close()
        if reader.poll() is not None:
            break
        time.sleep(0.01)
    assert reader.wait(WAIT_S) in (0, 1)
    assert reader.stderr is not None
    assert "Traceback" not in reader.stderr.read()
    publisher.kill()


def test_a17_a_command_advertises_until_it_ends(shell: Shell) -> None:
    shell.up()
    words = ("pub", "Departure", "n=1", "--advertise")
    status, out, err = shell.run(*words, *shell.as_user())
    assert (status, out.count("published "), err) == (0, 1, "")
    assert (shell.logged("advertised"), shell.logged("advertisements_withdrawn")) == (1, 1)
    status, out, err = shell.run(*words, "--outbox", "box", *shell.as_user())
    assert (status, out.splitlines()[-1], err) == (0, "published 1, of which 0 were left from earlier", "")
    assert (shell.logged("advertised"), shell.logged("advertisements_withdrawn")) == (2, 2)
    status, _, err = shell.run("pub", "--outbox", "box", "--advertise", *shell.as_user())
    assert (status, err) == (2, "wanderbus: --advertise: give the subject of the events, too\n")


@pytest.mark.parametrize("bad", ["nonsense", '["a", "list"]', '{"n": null}', '{"n": {"deep": 1}}', '{"\\ud800": 1}'])
def test_a_bad_line_ends_the_input_after_those_before_it(shell: Shell, bad: str) -> None:
    shell.up()
    lines = f'{{"n": 1}}\n\n{{"n": 2}}\n{bad}\n{{"n": 3}}\n'
    status, out, err = shell.run("pub", "Departure", "-", *shell.as_user(), input=lines)
    assert (status, out) == (2, "published 2 events\n")
    assert one_line(err).startswith("standard input, line 4: ")


def test_complaints_about_the_command_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.up()
    monkeypatch.chdir(shell.directory)
    for words, status, complaint in (
        (["pub", "Departure", "n", *shell.as_user()], 2, "'n' is not NAME=VALUE"),
        (["pub", "Departure", "n=null", *shell.as_user()], 2, "null is not a value"),
        (["pub", "", "n=1", *shell.as_user()], 2, "the subject must have 1 to"),
        (
            ["pub", "Departure", f"n={'x' * 40_000}", *shell.as_user()],
            1,
            "40,070 bytes; the limit is 32,768 (",
        ),
        (["pub", "Departure", *shell.as_user(password="guess")], 1, "does not accept the password"),
        (["pub", "Departure", *shell.as_user("carol")], 1, "sip:carol@localhost, or has no such user"),
        (["pub", "Departure", "--broker", "sip:nobody@localhost", *shell.as_user()], 1, "knows no broker"),
        (["pub", "Departure", *shell.as_user(device="users")], 1, "state directory users/pub/1 cannot be used"),
        (["pub", "Departure", "--user", "alice"], 2, "write alice@localhost, or the domain of its server"),
        (["sub", "Departure", "--user", "a@b", "--server", "127.0.0.1:x"], 2, "'127.0.0.1:x' is not host:port"),
    ):
        found = run(words)
        printed = capsys.readouterr()
        assert (found, printed.out) == (status, ""), (words, printed.err)
        assert complaint in one_line(printed.err)
        assert "guess" not in printed.err


def test_bytes_that_are_no_text_are_one_line(shell: Shell) -> None:
    status, _, err = shell.run("pub", "Departure", "n=\udcff", *shell.as_user())
    assert status == 2
    assert "is not UTF-8" in one_line(err)


def test_a_malformed_expression_is_pointed_at(shell: Shell) -> None:
    shell.up()
    status, out, err = shell.run("sub", "Departure", "(Dest == IAH) and (DepDelay >)", *shell.as_user())
    reason, line, caret = err.splitlines()
    assert (status, out) == (2, "")
    assert reason.startswith("wanderbus: ")
    assert line == "  (Dest == IAH) and (DepDelay >)"
    assert line[caret.index("^")] == ")"


def test_a_server_that_is_not_there_is_one_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connection_options, "connect", functools.partial(connect, connect_s_max=0.2))
    monkeypatch.chdir(shell.directory)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        shell.port = silent.getsockname()[1]
        assert run(["pub", "Departure", "n=1", *shell.as_user()]) == 1
    assert one_line(capsys.readouterr().err).endswith("check that the server runs (wanderbus up)")


def test_user_and_password_may_come_from_the_environment(shell: Shell) -> None:
    shell.up()
    environment = {
        "WANDERBUS_USER": "sip:alice@localhost",
        "WANDERBUS_PASSWORD": "secret",
        "WANDERBUS_SERVER": f"127.0.0.1:{shell.port}",
    }
    assert shell.run("pub", "Departure", "n=1", environment=environment)[0] == 0
    assert (shell.directory / "xdg" / "wanderbus" / "alice@localhost" / "pub" / "1" / "device").exists()
