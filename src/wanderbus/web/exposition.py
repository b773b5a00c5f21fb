"""Text format of Prometheus: the page that a scrape reads (SPEC U-08)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, PROCESS_COLLECTOR, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from wanderbus.metrics import PREFIX, Durations, Metric, Sample
from wanderbus.metrics.catalogue import CATALOGUE

CONTENT_TYPE = CONTENT_TYPE_LATEST

_BUCKET_BITS = range(10, 41, 2)
"""Bounds of the buckets: 2^10 µs, about a millisecond, up to 2^40 µs, about twelve days."""


def page(samples: Iterable[Sample]) -> bytes:
    """Return the page with all ``samples``, and with memory and processor time of the process."""
    registry = CollectorRegistry()
    registry.register(_Samples(samples))
    registry.register(PROCESS_COLLECTOR)
    return generate_latest(registry)


class _Samples(Collector):
    """The collector of one page."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by_metric: dict[str, list[Sample]] = {}
        for each in samples:
            self._by_metric.setdefault(each.metric, []).append(each)

    def collect(self) -> Iterator[Family]:
        """Yield a family for each metric that has samples."""
        return (_family(CATALOGUE[name], samples) for name, samples in self._by_metric.items())


def _family(metric: Metric, samples: Sequence[Sample]) -> Family:
    name = PREFIX + metric.name
    kinds: dict[str, type[Family]] = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(name, metric.help, labels=metric.labels)
        for each in samples:
            assert isinstance(each.value, Durations), each
            histogram.add_metric(each.labels, buckets_of(each.value), each.value.sum_us / 1e6)
        return histogram
    family = kinds[metric.kind](name, metric.help, labels=metric.labels)  # type: ignore[call-arg]
    for each in samples:
        family.add_metric(each.labels, each.value)  # type: ignore[attr-defined]
    return family


def buckets_of(durations: Durations) -> Sequence[tuple[str, float]]:
    """Return the upper bound in seconds and the number of durations below it, of each bucket, with ``+Inf`` last."""
    counts = [0] * (len(_BUCKET_BITS) + 1)
    for bits, count in durations.by_bits.items():
        # Durations of so many bits are below 2^bits µs.
        counts[next((place for place, bound in enumerate(_BUCKET_BITS) if bits <= bound), -1)] += count
    bounds = [*(f"{2**bits / 1e6:g}" for bits in _BUCKET_BITS), "+Inf"]
    return list(zip(bounds, accumulate(counts), strict=True))
