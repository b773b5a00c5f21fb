"""Lightweight clients with ``wanderbus up``: clients and server are killed, and nothing is lost (SPEC P-02)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.shell import ROOT, WAIT_S, Shell, read_line
from wanderbus.lightweight import Client, LightError
from wanderbus.runtime.net.free_port import free_port

pytestmark = pytest.mark.integration

READER = """
import json, os, sys
from light import Client

def load():
    with open("results") as file:
        return json.load(file)

results = load() if os.path.exists("results") else {"got": [], "state": ""}
with Client("127.0.0.1", int(sys.argv[1]), "alice", "secret", "meter", state=bytes.fromhex(results["state"])) as client:
    client.subscribe("Trade", "N >= 0")
    print("ready", flush=True)
    while len(results["got"]) < 50:
        results["got"].append(client.receive(60).attributes["N"])
        results["state"] = client.state.hex()
        with open("fresh", "w") as file:
            json.dump(results, file)
        os.replace("fresh", "results")
        client.ack()
"""


@pytest.fixture
def light(shell: Shell) -> int:
    """Port of a started server for lightweight clients."""
    shell.port = free_port("127.0.0.1")
    port = free_port("127.0.0.1")
    line = up(shell, port)
    assert line == f"ready sip:127.0.0.1:{shell.port} light://127.0.0.1:{port}"
    return port


def up(shell: Shell, port: int) -> str:
    options = ("--users", "users", "--data-dir", "data", "--port", str(shell.port), "--light", f"127.0.0.1:{port}")
    shell.server = shell.start("up", *options)  # type: ignore[attr-defined]
    return read_line(shell.server)  # type: ignore[attr-defined]


def reader(shell: Shell, port: int) -> subprocess.Popen[str]:
    """Start a reader of 50 events, with the client as one file and without the package."""
    one_file = subprocess.run(
        [sys.executable, "-m", "wanderbus.lightweight"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        check=True,
    ).stdout
    (shell.directory / "light.py").write_bytes(one_file)
    (shell.directory / "reader.py").write_text(READER)
    process = subprocess.Popen(
        [sys.executable, "-S", "reader.py", str(port)],
        cwd=shell.directory,
        stdout=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    )
    shell._started.append(process)
    assert read_line(process) == "ready"
    return process


def got(directory: Path) -> list[int]:
    """Return what the reader has processed so far."""
    file = directory / "results"
    return list(json.loads(file.read_text())["got"]) if file.exists() else []


def test_p02_events_go_both_ways_between_light_clients_and_agents(shell: Shell, light: int) -> None:
    with Client("127.0.0.1", light, "alice", "secret", device="meter") as client:
        client.subscribe("Trade", "N > 1")
        for n in range(4):
            status, _, error = shell.run("pub", "Trade", f"N={n}", *shell.as_user("bob", "hunter2"))
            assert status == 0, error
        items = [client.receive(30), client.receive(30)]
        assert [each.attributes["N"] for each in items if each is not None] == [2, 3]
        client.ack()
        sub = shell.start("sub", "Trade", "--count", "1", "--json", *shell.as_user("bob", "hunter2"))
        shell.subscribed(2)
        client.publish("Trade", {"N": 7})
        assert json.loads(read_line(sub))["attributes"] == {"N": 7}


def test_p02_a_killed_client_and_a_killed_server_lose_nothing(shell: Shell, light: int) -> None:
    first = reader(shell, light)
    with Client("127.0.0.1", light, "bob", "hunter2", device="exchange") as publisher:
        for n in range(20):
            publisher.publish("Trade", {"N": n})
        deadline = time.monotonic() + WAIT_S
        while len(got(shell.directory)) < 10 and time.monotonic() < deadline:
            time.sleep(0.001)
        first.kill()
        first.wait()
        for n in range(20, 40):
            publisher.publish("Trade", {"N": n}, wait=False)
        shell.server.kill()  # type: ignore[attr-defined]
        shell.server.wait()  # type: ignore[attr-defined]
        for n in range(40, 50):
            publisher.publish("Trade", {"N": n}, wait=False)
        up(shell, light)
        publisher.flush()
        assert reader(shell, light).wait(WAIT_S) == 0
    assert got(shell.directory) == list(range(50))


def test_a_wrong_password_and_a_wrong_certificate(light: int) -> None:
    with pytest.raises(LightError, match="wrong user or password"):
        Client("127.0.0.1", light, "alice", "guess", device="meter").subscribe("Trade")
    with pytest.raises(LightError, match="not the given one"):
        Client("127.0.0.1", light, "alice", "secret", device="meter", fingerprint="00" * 32).subscribe("Trade")


def test_requests_about_subscriptions(light: int) -> None:
    with Client("127.0.0.1", light, "alice", "secret", device="meter") as client:
        one = client.subscribe("Trade", "Price < 25", lifetime_s=60, queue={"notifications_max": 3})
        client.renew(one, 120)
        client.restrict(one, {"type": "frequency", "period_s": 1.0})
        (row,) = client.subscriptions()
        assert re.match(r"\S+-\w+-\d+", row["id"])
        assert (row["queue"], row["restrictions"][0]["period_s"]) == ({"notifications_max": 3}, 1.0)
        with pytest.raises(LightError, match="reads that subscription"):
            client.subscribe("Trade", "Price < 25", lifetime_s=60, queue={"notifications_max": 3})
        with pytest.raises(LightError):
            client.subscribe("Trade", "Price <")
        client.unsubscribe(one)
        assert client.subscriptions() == []
        client.leave()
