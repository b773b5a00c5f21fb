"""Which modules a command loads: a person waits for them, and a script at each call."""

from __future__ import annotations

import subprocess
import sys

import pytest

from wanderbus.cli import application
from wanderbus.cli.application import COMMANDS

SERVER = {"wanderbus.broker.core", "wanderbus.server.server", "wanderbus.simulation", "apsw", "OpenSSL"}
LIBRARIES_WITH_SERVERS_ALONE = {"dns", "aioquic", "numba", "pyspark"}

pytestmark = pytest.mark.integration


def loaded(*words: str) -> set[str]:
    """Run a command in a process of its own; return the modules that it has loaded."""
    program = "import sys; from wanderbus.cli.application import run; run(sys.argv[1:]); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    return set(found.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("command", ["pub", "sub", "unsubscribe", "filter", "users"])
def test_an_agents_command_loads_no_server(command: str) -> None:
    modules = loaded(command, "--help")
    assert "wanderbus.cli.output" in modules
    assert not modules & (SERVER | LIBRARIES_WITH_SERVERS_ALONE)


def test_a_server_loads_nothing_for_lookups_that_are_off() -> None:
    modules = loaded("up", "--help")
    assert "wanderbus.server.server" in modules
    assert not modules & LIBRARIES_WITH_SERVERS_ALONE


@pytest.mark.parametrize("words", [("--version",), ("--help",)])
def test_help_and_version_load_no_command(words: tuple[str, ...]) -> None:
    """Nobody should wait for a server's modules to read the list of commands."""
    names = {each for each in loaded(*words) if each.startswith("wanderbus.")}
    assert "wanderbus.cli.application" in names
    assert not names & {f"wanderbus.cli.{each.module}" for each in COMMANDS.values()}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_list_is_there(name: str) -> None:
    assert application.command(name).name == name


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_fits_its_line(name: str) -> None:
    assert len(COMMANDS[name].summary) <= 80 - len("  advertisements  ")


def test_a_mistyped_command_is_refused_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert application.run(["pubb"]) == 2
    assert "Did you mean 'pub'?" in capsys.readouterr().err
