"""Notifications that have come and that nobody reads: said aloud, and given up where nobody ever can (SPEC G-07).

A subscription that ended while its user was away leaves notifications behind. They go to the reader of a new
subscription that asks for the same; what no reader takes within a while is given up, since it would hold back the
acknowledgement of everything after it. Those of a subscription that lives wait for its reader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from wanderbus.agent.messages import RequestSettled
from wanderbus.api.dispatch import Dispatcher
from wanderbus.event import Notification
from wanderbus.filters import parse
from wanderbus.subscription import Subscription, concerns

_log = logging.getLogger("wanderbus.agent")

PATIENCE_S: Final = 10.0
"""How long notifications may wait for a reader before something is said or done about it."""


class Unclaimed:
    """Looks after the notifications of one agent that have no reader."""

    def __init__(
        self,
        dispatcher: Dispatcher[Any],
        ask: Callable[[], asyncio.Future[RequestSettled]],
        acknowledge: Callable[[int | None], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._ask = ask
        self._acknowledge = acknowledge
        self._live: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None

    def known(self, subscriptions: Iterable[Subscription]) -> None:
        """Take note that these subscriptions live."""
        self._live.update(subscription.id for subscription in subscriptions)

    def over(self, subscription: str) -> None:
        """Take note that this subscription has ended."""
        self._live.discard(subscription)

    def bequeath(self, heir: Subscription) -> None:
        """Let ``heir`` have what ended subscriptions left behind of what it asks for."""
        wanted = parse(heir.expression, heir.language)

        def is_wanted(notification: Notification) -> bool:
            return concerns(heir.subject, notification.event.subject) and wanted.matches(notification.event)

        for ended in set(self._dispatcher.unclaimed) - self._live:
            self._dispatcher.inherit(ended, heir.id, is_wanted)

    def look(self) -> None:
        """Begin to look after what is unclaimed, if there is anything."""
        if self._timer is None and self._dispatcher.unclaimed:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._inquire)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _inquire(self) -> None:
        """Ask which subscriptions live, if there still is a reason to."""
        self._timer = None
        if self._dispatcher.unclaimed:
            self._ask().add_done_callback(self._see)

    def _see(self, answer: asyncio.Future[RequestSettled]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        live = {subscription.id for subscription in answer.result().subscriptions}
        for subscription in self._dispatcher.unclaimed:
            if subscription in live:
                _log.warning(
                    "notifications wait for subscription %s that nobody reads: subscribe to the same again, "
                    "unsubscribe it, or connect with keep=False",
                    subscription,
                )
            else:
                _log.warning("notifications of subscription %s, which has ended, were not read", subscription)
                self._acknowledge(self._dispatcher.release(subscription, ended=True))
        self.look()
