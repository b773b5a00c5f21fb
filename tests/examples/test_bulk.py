"""A file arrives whole over reliable UDP, also while the sender's address changes on a line that loses packets."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.namespace_networks import NamespaceNetwork
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.processes import Process

PROGRAM = str(Path(__file__).resolve().parents[2] / "examples" / "bulk.py")
ENVIRONMENT = {"BULK_SECRET": "a secret for two hosts"}
PORT = 4000
FILE_BYTES = 16 * 2**20
MOVES = 4
LOSS = 0.05
RUN_S_MAX = 90


def write_file(path: Path) -> str:
    """Make a file of random bytes; return its SHA-256."""
    path.write_bytes(random.Random(1).randbytes(FILE_BYTES))
    return digest(path)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def ends_well(process: Process) -> None:
    assert process.wait(RUN_S_MAX) == 0, str(process)
    assert process.log.read_text() == ""


@pytest.mark.integration
def test_a_file_arrives(tmp_path: Path) -> None:
    wanted = write_file(tmp_path / "sent")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    receive = [sys.executable, PROGRAM, "receive", port, str(tmp_path / "received")]
    send = [sys.executable, PROGRAM, "send", "127.0.0.1", port, str(tmp_path / "sent")]
    with (
        Process("receiver", receive, tmp_path / "r", more_environment=ENVIRONMENT) as receiver,
        Process("sender", send, tmp_path / "s", more_environment=ENVIRONMENT) as sender,
    ):
        ends_well(sender)
        ends_well(receiver)
    assert digest(tmp_path / "received") == wanted


@pytest.fixture
def network() -> Iterator[NamespaceNetwork]:
    """Two hosts behind a router that loses packets."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces take root")
    if shutil.which("iptables") is None:
        pytest.skip("the command 'iptables' is missing (Debian: apt-get install iptables)")
    built = NamespaceNetwork(["receiver", "sender"])
    try:
        built.open()
    except CannotRunError as error:
        pytest.skip(f"network namespaces cannot be made: {error}")
    rule = f"iptables -A FORWARD -m statistic --mode random --probability {LOSS} -j DROP"
    try:
        subprocess.run(built.command("router", rule.split()), check=True, timeout=10)
        yield built
    finally:
        built.close()


@pytest.mark.integration
def test_a_file_arrives_while_its_sender_moves(network: NamespaceNetwork, tmp_path: Path) -> None:
    """Each move takes the sender's address and gives it one in another subnet, in the midst of the transfer."""
    wanted = write_file(tmp_path / "sent")
    received = tmp_path / "received"
    receive = [sys.executable, PROGRAM, "receive", str(PORT), str(received)]
    send = [sys.executable, PROGRAM, "send", network.address("receiver"), str(PORT), str(tmp_path / "sent")]
    with (
        Process(
            "receiver", network.command("receiver", receive), tmp_path / "r", more_environment=ENVIRONMENT
        ) as receiver,
        Process("sender", network.command("sender", send), tmp_path / "s", more_environment=ENVIRONMENT) as sender,
    ):
        for turn in range(1, MOVES + 1):
            wait_for_bytes(received, FILE_BYTES * turn // (MOVES + 2), sender)
            network.move("sender")
        assert received.stat().st_size < FILE_BYTES, "the last move came too late to show anything"
        ends_well(sender)
        ends_well(receiver)
    assert digest(received) == wanted


def wait_for_bytes(path: Path, n_bytes: int, sender: Process) -> None:
    deadline = time.monotonic() + RUN_S_MAX
    while not path.exists() or path.stat().st_size < n_bytes:
        assert sender.running, str(sender)
        assert time.monotonic() < deadline, f"{n_bytes} bytes did not arrive"
        time.sleep(0.005)
