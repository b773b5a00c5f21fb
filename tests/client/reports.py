"""Reports that an agent's machine has made."""

from __future__ import annotations

from typing import Any, TypeVar

from wanderbus.client.machine.messages import AgentStatusChanged, ItemArrived
from wanderbus.event import Notification
from wanderbus.machine import Output

Kind = TypeVar("Kind", bound=Output)


class Reporting:
    """Base of agents in tests: their reports, in order, and questions about them."""

    def __init__(self) -> None:
        self.reports: list[Output] = []

    def all_of(self, kind: type[Kind]) -> list[Kind]:
        return [report for report in self.reports if isinstance(report, kind)]

    @property
    def received(self) -> list[Any]:
        """The ``N`` of every event that arrived."""
        items = [report.item for report in self.all_of(ItemArrived)]
        return [item.event["N"] for item in items if isinstance(item, Notification)]

    @property
    def statuses(self) -> list[str]:
        return [report.status for report in self.all_of(AgentStatusChanged)]
