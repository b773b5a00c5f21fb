"""The program of the original ECI runs unchanged on both systems; a file is all that differs (SPEC A-09, A-10)."""

from __future__ import annotations

import ast
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from demo.namespace_networks import NamespaceNetwork
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.launch import environment, python
from wanderbus.testbed.processes import Process

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "eci_program.py"
RUN_S_MAX = 60

BROKER = """
domain = "localhost"
data_dir = "data"
port = 0
eci_port = 0
host = "{host}"
eci_host = "{host}"
[users]
ana = "secret"
"""
SYSTEMS = {
    "eci": 'uri = "{eci}"',
    "sip": 'uri = "sip:ana@localhost"\npassword = "secret"\nserver = "{sip}"\nstate_dir = "ana"',
}


def expected(quotes: int) -> list[str]:
    """Output of the program: every third quote is of PETR4, and its price cycles from 22 to 28."""
    numbers = [number for number in range(1, quotes) if number % 3 == 1 and (number - 1) % 7 < 3]
    return [*(f"quote {n}: PETR4 at {22 + (n - 1) % 7:.2f}" for n in numbers), f"quote {quotes}: PETR4 at 21.50"]


@contextlib.contextmanager
def server(directory: Path, host: str, wrap: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """A server at ``host``; yields the settings for the program's file."""
    file = directory / "broker.toml"
    file.touch(0o600)
    file.write_text(BROKER.format(host=host))
    argv = [*wrap, *python("wanderbus", "up", "--config", str(file))]
    with Process("the server", argv, directory / "errors", read=True) as process:
        ready, sip, eci = process.line().split()
        assert ready == "ready"
        yield {"sip": sip.removeprefix("sip:"), "eci": eci}


@contextlib.contextmanager
def program(
    directory: Path, system: str, places: dict[str, str], *words: str, wrap: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """The program; only its file selects the system."""
    file = directory / f"{system}.toml"
    file.touch(0o600)
    file.write_text(SYSTEMS[system].format(**places))
    argv = [*wrap, sys.executable, str(PROGRAM), *words]
    pipe, more = subprocess.PIPE, {"WANDERBUS_CONFIG": str(file)}
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, env=environment(more)) as process:
        try:
            yield process
        finally:
            process.kill()


def test_its_source_knows_nothing_of_mobility() -> None:
    tree = ast.parse(PROGRAM.read_text(encoding="utf-8"))
    tree.body = tree.body[1:]
    code = ast.unparse(tree)
    assert "wanderbus.connect()" in code
    for word in ("sip", "eci", "rebind", "127.", "localhost", "password", "changes", "environ"):
        assert word not in code.lower(), word


@pytest.mark.integration
@pytest.mark.parametrize("system", SYSTEMS)
def test_it_runs_on_both_systems(system: str, tmp_path: Path) -> None:
    with server(tmp_path, "127.0.0.1") as places, program(tmp_path, system, places) as process:
        out, err = process.communicate(timeout=RUN_S_MAX)
        assert (process.returncode, err) == (0, "")
        assert out.splitlines() == expected(21)


@pytest.fixture
def network() -> Iterator[NamespaceNetwork]:
    built = NamespaceNetwork(("server", "ana"))
    try:
        built.open()
    except CannotRunError as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield built
    built.close()


@pytest.mark.integration
def test_over_sip_it_changes_its_address_and_loses_nothing(network: NamespaceNetwork, tmp_path: Path) -> None:
    """The program is not notified; with the original system the same move stops its events."""
    quotes = 150
    with server(tmp_path, network.address("server"), network.command("server", [])) as places:
        for system in SYSTEMS:
            with program(tmp_path, system, places, str(quotes), "0.01", wrap=network.command("ana", [])) as process:
                assert process.stdout is not None
                first = [process.stdout.readline().rstrip("\n") for _ in range(5)]
                before, after = network.address("ana"), network.move("ana")
                assert before != after
                if system == "eci":
                    out, err = process.communicate(timeout=RUN_S_MAX)
                    assert process.returncode != 0
                    assert "NoResponse" in err
                    assert first + out.splitlines() == expected(quotes)[: 5 + len(out.splitlines())]
                else:
                    out, err = process.communicate(timeout=RUN_S_MAX)
                    assert (process.returncode, err) == (0, "")
                    assert first + out.splitlines() == expected(quotes)
