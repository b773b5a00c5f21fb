"""sngrep opens the exported trace, and is sent it by HEP; without a terminal, as it does where it only captures."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ports import free_port
from tests.interop.exported import CALLS, DIALOGS, export, traced_call
from tests.sip.test_pcap import read
from wanderbus.sip.message.targets import Transport
from wanderbus.testbed.processes import Process

PROGRAM = shutil.which("sngrep")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.interop(peer="sngrep"),
    pytest.mark.skipif(PROGRAM is None, reason="sngrep is not installed: apt-get install sngrep"),
    pytest.mark.parametrize("transport", ["UDP", "TCP", "TLS"]),
]

WAIT_S_MAX = 30.0


def dialogs(said: str) -> int:
    """The final number of dialogs in sngrep's output."""
    return int(re.findall(r"Dialog count: (\d+)", said)[-1])


def sngrep(*options: object) -> str:
    """Output of sngrep, run without a terminal and without its user's configuration."""
    command = [str(PROGRAM), "-N", "-F", *map(str, options)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout


@pytest.mark.interop(scenario="opens an exported trace")
def test_opens_a_trace(transport: Transport, tmp_path: Path) -> None:
    """It finds the dialogs, tells the call among them, and writes every message out again."""
    seen = traced_call(tmp_path / "trace.jsonl", transport)
    export(tmp_path / "trace.jsonl", "--pcap", tmp_path / "call.pcap")
    assert dialogs(sngrep("-I", tmp_path / "call.pcap", "-O", tmp_path / "again.pcap")) == DIALOGS
    again = [packet.data for packet in read((tmp_path / "again.pcap").read_bytes()) if packet.data]
    assert again == [each.entry.data for each in seen]
    assert dialogs(sngrep("-c", "-I", tmp_path / "call.pcap")) == CALLS
    assert dialogs(sngrep("-I", tmp_path / "call.pcap", "nothing of the kind")) == 0


@contextlib.contextmanager
def listening(capture: Path) -> Iterator[int]:
    """Let sngrep listen for HEP, and write its messages to ``capture`` when it ends; yield its port."""
    port = free_port()
    command = [str(PROGRAM), "-N", "-F", "-L", f"udp:127.0.0.1:{port}", "-O", str(capture)]
    with Process("sngrep", command, capture.with_suffix(".said")) as process:
        process.wait_until(lambda: not _is_free(port), WAIT_S_MAX)
        yield port


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.mark.interop(scenario="is sent a trace by HEP")
def test_takes_hep(transport: Transport, tmp_path: Path) -> None:
    seen = traced_call(tmp_path / "trace.jsonl", transport)
    heard = tmp_path / "heard.pcap"
    with listening(heard) as port:
        export(tmp_path / "trace.jsonl", "--hep", f"127.0.0.1:{port}")
        deadline = time.monotonic() + WAIT_S_MAX
        while dialogs("Dialog count: 0" + heard.with_suffix(".said").read_text()) < DIALOGS:
            assert time.monotonic() < deadline, "sngrep does not find the dialogs"
            time.sleep(0.05)
        time.sleep(0.5)  # it tells of dialogs, not of messages
    text = heard.read_bytes()
    assert all(each.entry.data in text for each in seen)
    assert dialogs(sngrep("-I", heard)) == DIALOGS
