"""Connections leave descriptors for the log, and the soft limit is no limit (SPEC U-03)."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from wanderbus.parameters.transports import StreamLimits
from wanderbus.runtime.net.descriptors import RESERVED, SHARES, connections_max

RAISED = """
import resource
from wanderbus.runtime.net.descriptors import allow_files
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 700))
assert allow_files() == 700 and allow_files() == 700
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_process_may_open_as_many_files_as_it_may_ask_for() -> None:
    done = subprocess.run([sys.executable, "-c", RAISED], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("(700, 700)\n", "")


@pytest.mark.parametrize(
    ("soft", "most"),
    [
        (1_024, (1_024 - RESERVED) // SHARES),
        (20_000, StreamLimits().connections_max),
        (resource.RLIM_INFINITY, StreamLimits().connections_max),
        (64, 16),
    ],
)
def test_connections_leave_the_reserve(monkeypatch: pytest.MonkeyPatch, soft: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, soft))
    assert connections_max(StreamLimits().connections_max) == most
