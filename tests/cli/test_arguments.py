"""Arguments that no command can use, whatever it is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from wanderbus.cli.application import run


@pytest.mark.parametrize("words", [["sub", "Trade", "a\udcff"], ["\udcff"], ["pub", "Trade", "n=\udce4", "--json"]])
def test_an_argument_that_is_not_utf_8_is_refused_in_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    out, err = capsys.readouterr()
    text = json.loads(out or err)["error"]["message"] if "--json" in words else err
    assert "is not UTF-8" in text
    assert text.strip().count("\n") == 0
    assert "\\udc" in text


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_filter_that_begins_with_a_minus_sign_needs_two_before_it(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["filter", "match", "--language", "cesql", *flags]
    assert run([*words, "-(n) = -1", '{"n": 1}']) == 2
    out, err = capsys.readouterr()
    assert "put -- before arguments that begin with a minus sign" in " ".join((out + err).replace("│", "").split())
    assert run([*words, "--", "-(n) = -1", '{"n": 1}']) == 0
    assert run(["filter", "match", "--langage", "cesql", "x", "{}"]) == 2
    assert "put --" not in capsys.readouterr().err


def test_an_interrupt_while_a_command_loads_leaves_no_traceback() -> None:
    program = "import wanderbus.cli; raise KeyboardInterrupt"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert ended.stderr == ""


def test_other_errors_keep_their_traceback() -> None:
    program = "import wanderbus.cli; raise ZeroDivisionError"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ZeroDivisionError" in ended.stderr
