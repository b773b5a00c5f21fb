"""Which modules a command loads: a person waits for them, and a script at each call."""

from __future__ import annotations

import subprocess
import sys

import pytest

from wanderbus.cli import application

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


def test_the_list_has_every_command() -> None:
    app = application.application()
    names = {each.name for each in app.registered_commands} | {each.name for each in app.registered_groups}
    assert names == set(application._COMMANDS)
