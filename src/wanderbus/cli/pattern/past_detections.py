"""Detections of a pattern in the events of a lake or a log, by Spark (SPEC T-07, S-06)."""

from __future__ import annotations

from wanderbus.cli.pattern.detection_output import print_detections, report_refused
from wanderbus.cli.pipeline.past_events import Place, spark_history, wanted_events
from wanderbus.cli.pipeline.spark_options import needing_packages
from wanderbus.patterns import Counts, Pattern


def print_past_detections(pattern: Pattern, place: Place, *, json: bool) -> None:
    """Print the detections in past events, the earliest first, and report what bounds refused."""
    with needing_packages("patterns"):
        wanted = wanted_events(place)
    with spark_history(wanted, "patterns", place.spark) as past:
        from wanderbus.pipeline.patterns import outcomes
        from wanderbus.pipeline.patterns.detections import REFUSED, detection_of

        counts, own = Counts(), Pattern(pattern.text, pattern.bounds, wanted.children)
        for row in outcomes(past.events, own).orderBy("at_us", "events.offset", "id").toLocalIterator():
            if row.id is None:
                for name in REFUSED:
                    setattr(counts, name, getattr(counts, name) + row[name])
            else:
                print_detections([detection_of(row.detection)], json=json)
    report_refused(counts)
