"""Simulated device that calls the server which owns its session, and calls again when the session has moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from wanderbus.broker.sessions.handover_messages import UserUnowned
from wanderbus.broker.state.rows import session_key
from wanderbus.client.machine.messages import AgentProperties, ConnectRefused, ItemArrived, ServerKnown
from wanderbus.event import Event, Gap
from wanderbus.machine import Output
from wanderbus.protocol import SESSION_MOVED
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.federation.moving_node import MovingNode
from wanderbus.simulation.handover.node import HandoverNode
from wanderbus.subscription import Since


class HandoverDevice(DomainDevice):
    """A device of a user whose session moves between ``nodes``, which the scenario sets."""

    nodes: Mapping[str, HandoverNode] | Mapping[str, MovingNode]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.causes: dict[str, str] = {}
        """The event that caused each reply, both by name."""
        self.on_moved: Callable[[Event], None] = lambda event: None
        """Called with the event that arrived last, when the session is at another server."""
        self._last: Event | None = None

    def reply(self, cause: Event, reply: Event) -> None:
        """Publish an event because of another one."""
        if self.alive:
            self.causes[str(reply["Uid"])] = str(cause["Uid"])
            self.publish(reply)

    def connect(self) -> None:
        """Call the owner of the session; wait while no server owns it and some do not run."""
        if not self.alive or self.wire is not None:
            return
        if owner := next((each for each in self.nodes.values() if each.owns(self.user)), None):
            has_moved, self.node = owner is not self.node, owner
            if has_moved and self._last is not None:
                self.on_moved(self._last)
        elif not all(each.alive for each in self.nodes.values()) or any(
            session_key(self.user, self.session) in each.broker.state.awaited for each in self.nodes.values()
        ):
            self.world.after(self.world.random.uniform(*self.retry_s), self.connect)
            return
        else:
            self.node.feed(UserUnowned(self.user))
        super().connect()

    def _arrived(self, arrived: ItemArrived) -> None:
        super()._arrived(arrived)
        if not isinstance(arrived.item, Gap):
            self._last = arrived.item.event

    def _reported(self, output: Output) -> None:
        if isinstance(output, ConnectRefused) and output.limit == SESSION_MOVED:
            self._note(f"is turned away: {output.reason}")
            self._drop()
            self.world.after(self.world.random.uniform(*self.retry_s), self.connect)
        else:
            super()._reported(output)


class VisitingDevice(HandoverDevice):
    """A device that only publishes, and calls any server where the one that knows it does not run or cannot be reached.

    It keeps on its disk which server knows what it has published.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._was_at = ""
        super().__init__(*arguments, **options)
        self.visits = 0

    def _properties(self, epoch: int) -> AgentProperties:
        return msgspec.structs.replace(super()._properties(epoch), was_at=self._was_at)

    def connect(self) -> None:
        """Call the server that owns the session, or one that runs."""
        draw = self.world.random
        running = [each for each in self.nodes.values() if each.alive]
        owners = [each for each in running if each.owns(self.user)]
        if running and self.wire is None:
            found = draw.choice(running if not owners or draw.random() < 0.3 else owners)
            self.visits += found is not self.node
            self.node = found
        DomainDevice.connect(self)

    def subscribe(self, subject: str, expression: str, since: Since | None = None) -> None:
        """Want nothing."""

    def _reported(self, output: Output) -> None:
        if isinstance(output, ServerKnown):
            self._was_at = output.name
        super()._reported(output)
