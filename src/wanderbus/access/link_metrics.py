"""Metrics of the links to other servers of the domain, and to other domains, from the rows that operators see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from wanderbus.metrics import Sample

_FATES: Final = ("published", "repeated", "refused", "not_received", "lost")
"""Fates of an event of another domain: fields of :class:`wanderbus.operator_rows.DomainInfo`."""


def link_samples(servers: Iterable[Mapping[str, Any]], domains: Iterable[Mapping[str, Any]]) -> Iterator[Sample]:
    """Yield the samples of the rows :class:`~wanderbus.operator_rows.ServerInfo` and ``DomainInfo``."""
    for row in servers:
        label = (row["server"],)
        yield Sample("server_up", float(not row.get("trouble")), label)
        yield Sample("server_waiting", row.get("waiting_here", 0), label)
        yield Sample("server_unsettled", float(not row.get("is_settled", True)), label)
        yield Sample("sessions_leaving", row.get("leaving", 0), label)
        yield Sample("sessions_arriving", row.get("arriving", 0), label)
    for row in domains:
        domain = row["domain"]
        yield Sample("domain_up", float(row.get("is_linked", False)), (domain,))
        yield Sample("domain_sent_total", row.get("sent", 0), (domain,))
        yield Sample("domain_waiting", row.get("waiting", 0), (domain,))
        for fate in _FATES:
            yield Sample("domain_received_total", row.get(fate, 0), (domain, fate))
