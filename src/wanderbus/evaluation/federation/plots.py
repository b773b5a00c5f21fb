"""Plot of the costs of each way over the number of domains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wanderbus.evaluation.federation.experiment import Topology, Way
from wanderbus.evaluation.federation.summary import FederationSummary
from wanderbus.plots.panels import panels

_COLOURS: Final[Mapping[Way, str]] = {
    Way.MULTICAST: "#6e7781",
    Way.RENDEZVOUS: "#1f6feb",
    Way.TREE: "#1a7f37",
    Way.FLOODING: "#d1242f",
}

_PANELS: Final[Sequence[tuple[str, Callable[[FederationSummary], float]]]] = (
    ("updates of a move", lambda each: each.updates),
    ("kB of a move", lambda each: each.kilobytes),
    ("filters in the tables of a domain, mean", lambda each: each.table_mean),
    ("messages of an event", lambda each: each.event_messages),
    ("ms to a domain that wants an event, mean", lambda each: each.delivery_ms),
    ("kB after a cut", lambda each: each.heal_kilobytes),
    ("kB of a start of all domains", lambda each: each.start_kilobytes),
)


def federation_plot(topology: Topology, summaries: Sequence[FederationSummary]) -> str:
    """Return lines of all costs over the number of domains, with one topology."""
    own = [each for each in summaries if each.cell.topology is topology]
    lines = [
        (title, {way: [(each.cell.domains, value(each)) for each in own if each.cell.way is way] for way in Way})
        for title, value in _PANELS
    ]
    return panels(f"Federation, topology: {topology}; over the number of domains", _COLOURS, lines)
