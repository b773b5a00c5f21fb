"""Short runs of the fuzzer: some inputs of one seed for a target, in this process."""

from __future__ import annotations

import time
from typing import Final

from fuzz.target_runs import Tally, Target
from fuzz.target_runs import run as run_target

CPU_S_MAX: Final = 1.0
"""Guard against endless loops; `./do fuzz` checks the promised bound."""

_RUN_S_MAX: Final = 90.0


def short_run(target: Target, inputs: int, cpu_s_max: float = CPU_S_MAX) -> Tally:
    """Feed ``inputs`` inputs of a fixed seed to ``target``."""
    return run_target(target, inputs, seed=7, until=time.monotonic() + _RUN_S_MAX, jobs=1, cpu_s_max=cpu_s_max)


def check_run(tally: Tally, inputs: int, *, least: int = 10) -> None:
    """Check that nothing broke, and that one of ``least`` inputs or more was accepted, and one or more refused."""
    assert [(failure.kind, failure.detail) for failure in tally.failures] == []
    assert tally.inputs == inputs
    assert inputs / least < tally.accepted < inputs * (least - 1) / least
