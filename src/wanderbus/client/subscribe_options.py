"""Keyword arguments of ``agent.subscribe`` besides ``gaps``, which selects the type of the items."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypedDict

from wanderbus.event import Position
from wanderbus.subscription import Format, QueuePolicy, Restriction


class SubscribeOptions(TypedDict, total=False):
    """Options of a subscription; :meth:`wanderbus.Agent.subscribe` describes them."""

    keep: bool
    lifetime_s: float | None
    until: datetime | None
    restrictions: Iterable[Restriction]
    this_device_only: bool
    queue: QueuePolicy | None
    language: str
    format: Format
    resume: Position | None
