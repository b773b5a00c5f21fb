"""wanderbus: content-based publish/subscribe for users who move.

::

    async with wanderbus.connect("sip:alice@localhost", password="secret") as alice:
        async with alice.subscribe("Departure", "(Dest == IAH) and (DepDelay > 30)") as notifications:
            async for notification in notifications:
                print(notification.event["DepDelay"])

Names are loaded when they are first used, so that importing the package costs little.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wanderbus.api.agent import Agent
    from wanderbus.api.connecting import connect
    from wanderbus.api.server import Server
    from wanderbus.api.status_changes import StatusChange
    from wanderbus.errors import WanderbusError
    from wanderbus.event import Event, EventId, Gap, Notification, Position
    from wanderbus.subscription import Daily, Frequency, Interval, Subscription

_HOMES = {
    "Agent": "wanderbus.api.agent",
    "Daily": "wanderbus.subscription",
    "Event": "wanderbus.event",
    "EventId": "wanderbus.event",
    "Frequency": "wanderbus.subscription",
    "Gap": "wanderbus.event",
    "Interval": "wanderbus.subscription",
    "Notification": "wanderbus.event",
    "Position": "wanderbus.event",
    "Server": "wanderbus.api.server",
    "StatusChange": "wanderbus.api.status_changes",
    "Subscription": "wanderbus.subscription",
    "WanderbusError": "wanderbus.errors",
    "connect": "wanderbus.api.connecting",
}

__all__ = [
    "Agent",
    "Daily",
    "Event",
    "EventId",
    "Frequency",
    "Gap",
    "Interval",
    "Notification",
    "Position",
    "Server",
    "StatusChange",
    "Subscription",
    "WanderbusError",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'wanderbus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
