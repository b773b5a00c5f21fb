"""Priority of the measurement: without it, ratios of latencies show the machine's other work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hostile.priority import NICE, come_first, waited_s


@pytest.mark.skipif(os.geteuid() != 0, reason="a higher priority takes root")
def test_a_process_comes_first_in_a_session_of_its_own() -> None:
    show = "import os; print(os.getsid(0) == os.getpid(), os.getpriority(os.PRIO_PROCESS, 0), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", show], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=come_first
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["True", str(NICE)]
        group = Path(f"/proc/{process.pid}/autogroup")
        if group.exists() and (text := group.read_text(encoding="ascii")):
            assert text.split()[-1] == str(NICE)
        process.communicate("\n")


def test_waiting_for_a_processor_is_read_from_the_kernel() -> None:
    assert waited_s(os.getpid()) >= 0
    assert waited_s(2**22 + 1) == 0
