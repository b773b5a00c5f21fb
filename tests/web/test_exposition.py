"""The page that a scrape reads (SPEC U-08)."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from wanderbus.metrics import Durations, Sample
from wanderbus.metrics.catalogue import CATALOGUE
from wanderbus.web.exposition import buckets_of, page


def parsed(*samples: Sample) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(page(samples).decode())
    found = [each for family in families for each in family.samples]
    return {(each.name, tuple(each.labels.values())): each.value for each in found}


def test_u08_counters_gauges_and_labels_of_any_text() -> None:
    found = parsed(
        Sample("events_accepted_total", 3),
        Sample("devices", 2, ("connected",)),
        Sample("server_up", 1.0, ('s"1\\\n',)),
    )
    assert found["wanderbus_events_accepted_total", ()] == 3
    assert found["wanderbus_devices", ("connected",)] == 2
    assert found["wanderbus_server_up", ('s"1\\\n',)] == 1
    assert found["process_resident_memory_bytes", ()] > 0


def test_u08_a_duration_is_in_every_bucket_above_it() -> None:
    durations = Durations()
    for duration_us in (0, 1_023, 1_024, 5_000_000, 2**50):
        durations.add(duration_us)
    below = dict(buckets_of(durations))
    assert below["0.001024"] == 2
    assert below["0.004096"] == 3
    assert below["4.1943"] == 3
    assert below["16.7772"] == 4
    assert list(below.values()) == sorted(below.values())
    assert below["+Inf"] == 5
    found = parsed(Sample("acknowledgement_seconds", durations))
    assert found["wanderbus_acknowledgement_seconds_count", ()] == 5
    assert found["wanderbus_acknowledgement_seconds_sum", ()] == (2_047 + 5_000_000 + 2**50) / 1e6


def test_u08_names_follow_the_conventions_of_prometheus() -> None:
    for metric in CATALOGUE.values():
        assert metric.name.endswith("_total") is (metric.kind == "counter"), metric.name
        assert metric.help.endswith((".", "version.")), metric.name
