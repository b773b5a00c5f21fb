"""Behaviour of the application on a simulated device, and the account of one of its lives, for the checkers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from wanderbus import protocol
from wanderbus.client.machine.messages import SubscriptionOver
from wanderbus.event import Gap, Notification

Item = Notification | Gap


class Habits(msgspec.Struct, frozen=True):
    """Behaviour of the application on a device."""

    resumes: bool
    """True if it commits its position together with its results, and reports it on start."""
    think_s: float
    """Longest processing time of what has arrived."""
    delay_s: float
    """Travel time of a message."""
    on_ended: Literal["ignore", "renew", "resubmit"]
    """Reaction of its agent to a subscription that has ended."""
    ignores: float = 0.0
    """Share of its subscriptions that it does not read."""

    @property
    def renews(self) -> bool:
        """Return whether it renews a subscription that has ended; such a subscription should not end every minute."""
        return self.on_ended != "ignore"


class Received(msgspec.Struct, frozen=True):
    """A message of the stream as it arrived, and the part that the conversation passed on."""

    message: protocol.Attachment | protocol.Notify | protocol.NotifyGap
    items: tuple[tuple[Item, tuple[str, ...]], ...]
    """Items, each with its subscriptions."""


@dataclass
class ApplicationLife:
    """One process of the application, from start to crash."""

    epoch: int
    session: str
    keep: bool
    keep_queue: bool = False
    received: list[Received] = field(default_factory=list)
    processed: list[tuple[Item, str]] = field(default_factory=list)
    """Each item that the application has consumed, with its subscription."""
    wanted: dict[str, None] = field(default_factory=dict)
    """Subscriptions that it requested and has not requested to end."""
    over: list[SubscriptionOver] = field(default_factory=list)
