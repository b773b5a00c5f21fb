"""``wanderbus pipeline serve``: readiness, signals, and its errors (SPEC T-05)."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.shell import Shell, ended, one_line, read_line
from wanderbus.runtime.services.history import NAME
from wanderbus.runtime.services.places import places_of

pytestmark = pytest.mark.integration


@pytest.fixture
def lake(shell: Shell) -> Path:
    """An empty lake, beside an empty data directory."""
    (shell.directory / "data").mkdir()
    (shell.directory / "lake").mkdir()
    return shell.directory / "lake"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGHUP, 128 + signal.SIGHUP)]
)
def test_a_signal_ends_the_service(shell: Shell, lake: Path, number: signal.Signals, status: int) -> None:
    serving = shell.start("pipeline", "serve", "data", "--lake", "lake")
    assert read_line(serving) == "ready data/services/history.sock"
    places = places_of(shell.directory / "data", NAME)
    assert places.socket.is_socket()
    serving.send_signal(number)
    assert ended(serving) == (status, "", "")
    assert not places.socket.exists()
    assert places.key.exists()


def test_a_second_service_is_refused(shell: Shell, lake: Path) -> None:
    serving = shell.start("pipeline", "serve", "data", "--lake", "lake", "--json")
    assert json.loads(read_line(serving)) == {"ready": "data/services/history.sock"}
    status, _, errors = shell.run("pipeline", "serve", "data", "--lake", "lake")
    assert status == 2
    assert "another process is the service history of data; stop it first" in one_line(errors)
    serving.terminate()
    assert ended(serving)[0] == 0


@pytest.mark.parametrize(
    ("data", "lake_name", "reason"),
    [
        ("data", "other", "give --lake the directory of a lake"),
        ("other", "lake", "give the data directory of a server"),
    ],
)
def test_a_wrong_directory_is_refused(shell: Shell, lake: Path, data: str, lake_name: str, reason: str) -> None:
    status, _, errors = shell.run("pipeline", "serve", data, "--lake", lake_name)
    assert status == 2
    assert reason in one_line(errors)
