"""wanderbus: content-based publish/subscribe for users who move.

::

    async with wanderbus.connect("sip:alice@localhost", password="secret") as alice:
        async with alice.subscribe("Departure", "(Dest == IAH) and (DepDelay > 30)") as notifications:
            async for notification in notifications:
                print(notification.event["DepDelay"])

Names are loaded on first use, so that importing the package is fast.
"""

TYPE_CHECKING = False  # type checkers take it for True; typing itself takes as long to load as all of this package

__version__ = "0.1.0"

if TYPE_CHECKING:
    from wanderbus.client.advertisement import Advertisement
    from wanderbus.client.agent import Agent
    from wanderbus.client.connect import connect
    from wanderbus.client.disconnection_hooks import Disconnection
    from wanderbus.client.merged import Merged
    from wanderbus.client.notifications import Notifications
    from wanderbus.client.operator import Operator
    from wanderbus.client.reports import Ending, OutboxRefusal, StatusChange
    from wanderbus.errors import WanderbusError
    from wanderbus.event import HELD_BACK, Event, EventId, Gap, Loss, Notification, Position, merge_repeated
    from wanderbus.server.server import Server
    from wanderbus.subscription import Custom, Daily, Frequency, Interval, QueuePolicy, Subscription

_HOMES = {
    "Advertisement": "wanderbus.client.advertisement",
    "Agent": "wanderbus.client.agent",
    "Custom": "wanderbus.subscription",
    "Daily": "wanderbus.subscription",
    "Disconnection": "wanderbus.client.disconnection_hooks",
    "Ending": "wanderbus.client.reports",
    "Event": "wanderbus.event",
    "EventId": "wanderbus.event",
    "Frequency": "wanderbus.subscription",
    "Gap": "wanderbus.event",
    "HELD_BACK": "wanderbus.event",
    "Interval": "wanderbus.subscription",
    "Loss": "wanderbus.event",
    "Merged": "wanderbus.client.merged",
    "Notification": "wanderbus.event",
    "Notifications": "wanderbus.client.notifications",
    "Operator": "wanderbus.client.operator",
    "OutboxRefusal": "wanderbus.client.reports",
    "Position": "wanderbus.event",
    "QueuePolicy": "wanderbus.subscription",
    "Server": "wanderbus.server.server",
    "StatusChange": "wanderbus.client.reports",
    "Subscription": "wanderbus.subscription",
    "WanderbusError": "wanderbus.errors",
    "connect": "wanderbus.client.connect",
    "merge_repeated": "wanderbus.event",
}

__all__ = [
    "HELD_BACK",
    "Advertisement",
    "Agent",
    "Custom",
    "Daily",
    "Disconnection",
    "Ending",
    "Event",
    "EventId",
    "Frequency",
    "Gap",
    "Interval",
    "Loss",
    "Merged",
    "Notification",
    "Notifications",
    "Operator",
    "OutboxRefusal",
    "Position",
    "QueuePolicy",
    "Server",
    "StatusChange",
    "Subscription",
    "WanderbusError",
    "connect",
    "merge_repeated",
]


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept every name

    def __getattr__(name: str) -> object:
        import importlib

        if name in _HOMES:
            try:
                return getattr(importlib.import_module(_HOMES[name]), name)
            except ModuleNotFoundError as error:
                if name != "Server" or (error.name or "").startswith("wanderbus"):
                    raise
                remedy = "pip install 'wanderbus[server]'"
                raise ModuleNotFoundError(f"a server needs {error.name}: {remedy}", name=error.name) from None
        raise AttributeError(_unknown(name), name=name)


def __dir__() -> list[str]:
    return [*sorted(__all__), "__version__"]


def _unknown(name: str) -> str:
    import difflib
    import importlib.util

    problem = f"module 'wanderbus' has no attribute {name!r}"
    if not name.startswith("_") and importlib.util.find_spec(f"wanderbus.{name}") is not None:
        return f"{problem}; import wanderbus.{name} first"
    close = difflib.get_close_matches(name, __all__, n=1)
    return f"{problem}; " + (f"did you mean {close[0]!r}?" if close else "dir(wanderbus) lists the names")


del TYPE_CHECKING
