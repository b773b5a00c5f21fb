"""Room in the queues for events of the past: within every bound, so that reading the past drops nothing (SPEC T-05)."""

from __future__ import annotations

from wanderbus.broker.queues.queue import SubscriptionQueue
from wanderbus.broker.queues.queue_limits import QueueLimits
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow
from wanderbus.broker.state.state import BrokerState
from wanderbus.parameters.broker import BrokerConfig


class QueueRoom:
    """Room in the queue of a subscription; the log keeps everything else until there is more."""

    def __init__(self, state: BrokerState, queue_limits: QueueLimits, config: BrokerConfig) -> None:
        self._state = state
        self._queue_limits = queue_limits
        self._system = config.queue
        self._user_bytes_max = config.user_queued_bytes_max
        self._bytes_max = config.queued_bytes_max
        # Two windows: while a reader acknowledges one, the other is sent.
        self._ahead = 2 * config.unacknowledged_max
        self._ahead_bytes = 4 * config.unacknowledged_bytes_max

    def is_due(self, session: SessionRow, row: SubscriptionRow) -> bool:
        """Return whether to read the next piece: a queue that is half empty is filled by one large piece."""
        own = self._own(session, row)
        if own is None:
            return all(left > 0 for left in self.left(session, row))
        most, size = self._bounds(row)
        return (
            all(left > 0 for left in self.left(session, row))
            and 2 * own.waiting <= most
            and 2 * own.queued_bytes <= size
        )

    def is_empty(self, session: SessionRow, row: SubscriptionRow) -> bool:
        """Return whether nothing waits for the subscription, so that one event beyond a bound may be added."""
        own = self._own(session, row)
        return own is None or not own.waiting

    def left(self, session: SessionRow, row: SubscriptionRow) -> tuple[int, int]:
        """Return how many notifications and how many bytes can be added without a drop."""
        own = self._own(session, row)
        waiting, waiting_bytes = (0, 0) if own is None else (own.waiting, own.queued_bytes)
        most, size = self._bounds(row)
        counts = [most - waiting]
        sizes = [size - waiting_bytes]
        if self._system.notifications_max is not None:
            counts.append(self._system.notifications_max - session.waiting)
        if self._system.bytes_max is not None:
            sizes.append(self._system.bytes_max - session.queued_bytes)
        of_user = sum(each.queued_bytes for each in self._state.sessions_of(session.user))
        sizes += [self._user_bytes_max - of_user, self._bytes_max - self._queue_limits.users_bytes]
        return max(0, min(counts)), max(0, min(sizes))

    def _bounds(self, row: SubscriptionRow) -> tuple[int, int]:
        policy = row.subscription.queue
        most = self._ahead if policy.notifications_max is None else min(self._ahead, policy.notifications_max)
        size = self._ahead_bytes if policy.bytes_max is None else min(self._ahead_bytes, policy.bytes_max)
        return most, size

    def _own(self, session: SessionRow, row: SubscriptionRow) -> SubscriptionQueue | None:
        queue = self._state.queue.get(session.key)
        return None if queue is None else queue.queues.get(row.subscription.id)
