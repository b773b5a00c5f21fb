"""Reliable UDP is an API of its own (SPEC F-09)."""

from __future__ import annotations

import os
import subprocess
import sys

import wanderbus.rudp
import wanderbus.transport


def test_f09_it_loads_no_other_room() -> None:
    program = (
        "import sys, wanderbus.rudp;"
        "print(*sorted({name.split('.')[1] for name in sys.modules if name.startswith('wanderbus.')}))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert set(ran.stdout.split()) <= {
        "rudp",
        "transport",
        "detection",
        "machine",
        "errors",
        "limits",
        "parameters",
        "refusals",
    }


def test_exported_names() -> None:
    own = {"Counters", "Endpoint", "GapDetected", "OpenConnection", "PathChanged", "RudpConfig"}
    shared = {
        name
        for name, value in vars(wanderbus.transport).items()
        if isinstance(value, type) and value.__module__ == "wanderbus.transport"
    }
    assert set(wanderbus.rudp.__all__) == own | shared
    assert all(getattr(wanderbus.rudp, name) is getattr(wanderbus.transport, name) for name in shared)
