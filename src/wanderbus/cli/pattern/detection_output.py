"""Detections of a pattern, printed (SPEC T-07, S-06)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from wanderbus import cloudevents
from wanderbus.cli.output import print_error, print_json, print_line
from wanderbus.event_text import write
from wanderbus.patterns import Counts, Detection
from wanderbus.patterns.bounds import WORK_PER_EVENT_MAX


def print_detections(detections: Iterable[Detection], *, json: bool) -> None:
    """Print each detection as a line: its time and its event, or an object with all of it."""
    for each in detections:
        _print_detection(each, json=json)


def _print_detection(detection: Detection, *, json: bool) -> None:
    event = detection.to_event()
    if not json:
        print_line(f"{detection.at_us} {write(event)}")
        return
    print_json(
        {
            "id": detection.id,
            "pattern": detection.pattern,
            "key": msgspec.json.decode(detection.key),
            "at_us": detection.at_us,
            "events": [{"step": each.step, "offset": each.offset, "id": each.id} for each in detection.events],
            "subject": detection.subject,
            "attributes": cloudevents.to_json(detection.attributes),
        }
    )


def report_refused(counts: Counts) -> None:
    """Print a line for each reason for refusals: detections may be missing."""
    refused = (
        (counts.late, "events came later than the lateness of the pattern"),
        (counts.waiting_full, "events were refused: too many of one key"),
        (counts.partial_full, "partial matches were refused: one key had too many"),
        (counts.long, "partial matches were not continued: they had too many events"),
        (counts.left_out, f"events were left out: each would take more than {WORK_PER_EVENT_MAX:,} units of work"),
    )
    for count, reason in refused:
        if count:
            print_error(f"{count} {reason}; detections may be missing")
