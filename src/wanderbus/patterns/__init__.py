"""Compound events: patterns in time over events of one key (SPEC T-07, S-06).

:func:`compile_pattern` turns text into a :class:`Pattern`. It is pure: :meth:`Pattern.classify` says which events take
part, and :meth:`Pattern.advance` takes a state, events and a watermark, and returns the next state and the detections.
docs/patterns.md explains the language and its meaning.
"""

from __future__ import annotations

from wanderbus.errors import PatternError
from wanderbus.patterns.automaton import Seen
from wanderbus.patterns.bounds import EVENTS_PER_MATCH_MAX, EVENTS_WAITING_MAX, PARTIAL_MATCHES_MAX, WORK_PER_EVENT_MAX
from wanderbus.patterns.occurrence import AcceptedEvent
from wanderbus.patterns.pattern import Pattern, compile_pattern
from wanderbus.patterns.state import NEVER_US, Counts, Detection, OtherPattern, PatternState, StepEvent
from wanderbus.patterns.tree import Leaf

__all__ = [
    "EVENTS_PER_MATCH_MAX",
    "EVENTS_WAITING_MAX",
    "NEVER_US",
    "PARTIAL_MATCHES_MAX",
    "WORK_PER_EVENT_MAX",
    "AcceptedEvent",
    "Counts",
    "Detection",
    "Leaf",
    "OtherPattern",
    "Pattern",
    "PatternError",
    "PatternState",
    "Seen",
    "StepEvent",
    "compile_pattern",
]
