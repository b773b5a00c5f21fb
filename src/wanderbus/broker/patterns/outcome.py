"""Outcomes of matching for a subscription to a pattern: detections as events, and gaps (SPEC T-07, U-02)."""

from __future__ import annotations

from typing import Final, NamedTuple

from wanderbus import protocol
from wanderbus.broker.interest.filter_accounts import Undecided
from wanderbus.broker.publish.acceptance import checked_bytes
from wanderbus.errors import EventError, LimitExceeded
from wanderbus.event import Event
from wanderbus.patterns import Pattern
from wanderbus.patterns.state import Complete
from wanderbus.patterns.turns import TOO_COSTLY

TOO_LARGE: Final = "event_bytes_max"
"""Bound under which a detection is lost that cannot be an event, because its attributes are too large."""


class PatternOutcome(NamedTuple):
    """An event for the subscription, and the bound if it gets a gap instead; ``at_us`` is by the pattern's time."""

    at_us: int
    data: bytes
    undecided: Undecided | None


def outcome_of(pattern: Pattern, match: Complete, work_max: int) -> PatternOutcome:
    """Return what a subscription gets for a complete match."""
    if (units := pattern.detection_work(match)) > work_max:
        detection = pattern.empty_detection(match)
        return PatternOutcome(match.at_us, _short(detection.subject, detection.id), Undecided(TOO_COSTLY, units))
    detection = pattern.detection(match)
    try:
        return PatternOutcome(match.at_us, checked_bytes(detection.to_event()), None)
    except (EventError, LimitExceeded):
        return PatternOutcome(match.at_us, _short(detection.subject, detection.id), Undecided(TOO_LARGE, 0))


def lost_event(pattern: Pattern, at_us: int, name: str, undecided: Undecided) -> PatternOutcome:
    """Return what a subscription gets for the event ``name`` that its pattern did not take."""
    return PatternOutcome(at_us, _short(pattern.declaration.subject, name), undecided)


def _short(subject: str, name: str) -> bytes:
    return protocol.encode_event(Event(subject, {"detection": name}))
