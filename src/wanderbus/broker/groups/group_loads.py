"""Counts of the events that this server has accepted, by channel group (SPEC J-08, decision 0151)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from typing import Any

from wanderbus import records
from wanderbus.channels.own_channels import OwnChannels


class GroupLoads:
    """Load of each channel group that this server has led since its start: events, their bytes, and notifications.

    Decentralised channels count together, without a group. Notifications for the sessions of users
    are left out: they are counted by session, and move with it.

    :param servers: the users that stand for other servers and for foreign domains
    """

    def __init__(self, channels: OwnChannels | None, servers: Container[str]) -> None:
        self._channels = channels
        self._servers = servers
        self._events: Counter[int | None] = Counter()
        self._bytes: Counter[int | None] = Counter()
        self._notifications: Counter[int | None] = Counter()

    def count(self, subject: str, acceptance: records.Acceptance, delivery: records.Delivery) -> None:
        """Count an event that was accepted."""
        if self._channels is None:
            return
        group = self._channels.ordered_group(subject)
        self._events[group] += 1
        self._bytes[group] += len(acceptance.event)
        for each in delivery.notified:
            if each.user in self._servers:
                self._notifications[group] += 1

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row for each group with events."""
        for group, events in self._events.items():
            yield {
                "group": group,
                "events": events,
                "event_bytes": self._bytes[group],
                "notifications": self._notifications[group],
            }
