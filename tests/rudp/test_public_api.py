"""Reliable UDP is an API of its own (SPEC F-09)."""

from __future__ import annotations

import os
import subprocess
import sys

import wanderbus.rudp


def test_f09_it_loads_no_other_room() -> None:
    program = (
        "import sys, wanderbus.rudp;"
        "print(*sorted({name.split('.')[1] for name in sys.modules if name.startswith('wanderbus.')}))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert set(ran.stdout.split()) <= {"rudp", "machine", "errors", "limits"}


def test_exported_names() -> None:
    assert wanderbus.rudp.__all__ == [
        "ChangePath",
        "CloseConnection",
        "ConnectionFailed",
        "ConnectionReset",
        "Counters",
        "Endpoint",
        "GapDetected",
        "MessageReceived",
        "OpenConnection",
        "Probe",
        "RudpConfig",
        "SendMessage",
    ]
