"""Names for failure detectors, which decide whether a peer is gone (SPEC G-26); see docs/extending.md.

::

    class ThreeProbes:
        def judge(self, observed: Observed) -> Verdict:
            if observed.probes >= 3:
                return Verdict("gone")
            return Verdict("probe", ask_at=observed.now + 1.0)

    agent = wanderbus.connect("sip:alice@localhost", password="secret", detector=ThreeProbes)
"""

from wanderbus.detection import (
    FailureDetector,
    Judgement,
    MakeDetector,
    Observed,
    RetriesDetector,
    TimeoutDetector,
    Verdict,
)

__all__ = [
    "FailureDetector",
    "Judgement",
    "MakeDetector",
    "Observed",
    "RetriesDetector",
    "TimeoutDetector",
    "Verdict",
]
