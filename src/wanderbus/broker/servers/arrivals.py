"""Arrivals: events that other servers have accepted, delivered to this server's own sessions (SPEC K-02, N-01).

A server numbers what it sends to this one. How far this server has got is part of the record of the event and its
notifications, so a crash repeats no event and loses none: the leader sends again what was not acknowledged, and what
has arrived already is recognised by its number.
"""

from __future__ import annotations

import msgspec

from wanderbus import protocol, records
from wanderbus.broker.messages import ArrivalsTaken, ArrivalsWanted, EventArrived
from wanderbus.broker.publish.delivery import Delivery
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import LeaderRow
from wanderbus.broker.state.state import BrokerState
from wanderbus.broker.subscriptions import Subscriptions

_NONE = LeaderRow()


class Arrivals:
    """Takes the events of each leader in the order of their numbers, each once."""

    def __init__(self, state: BrokerState, journal: Journal, subscriptions: Subscriptions, delivery: Delivery) -> None:
        self.received_us = 0
        """The last reading of the wall clock."""
        self._state = state
        self._journal = journal
        self._subscriptions = subscriptions
        self._delivery = delivery
        self._wanted: dict[str, tuple[int, int]] = {}
        """Epoch and number from which on a leader was asked again, until its next event in order."""
        self._is_full = False

    def disk_full(self, *, is_full: bool) -> None:
        """Take nothing while the disk has no room; ask for what came meanwhile when it has."""
        self._is_full = is_full
        if not is_full:
            for leader, (epoch, number) in self._wanted.items():
                self._journal.emit(ArrivalsWanted(leader, epoch, number))

    def take(self, given: EventArrived) -> None:
        """Deliver an event and record it; acknowledge it when it is durable. A repeat is acknowledged again."""
        row = self._state.leaders.get(given.leader) or _NONE
        number = row.number if given.epoch == row.epoch else 0
        if given.epoch < row.epoch:
            return  # of a stream that the leader has replaced
        if given.number <= number:
            self._journal.emit(ArrivalsTaken(given.leader, given.epoch, number))
        elif self._is_full:
            self._wanted[given.leader] = given.epoch, number
        elif given.before > number:
            self._ask_again(given, number)
        else:
            self._wanted.pop(given.leader, None)
            self._deliver(given)
            self._journal.emit(ArrivalsTaken(given.leader, given.epoch, given.number))

    def _ask_again(self, given: EventArrived, number: int) -> None:
        """Ask for the events behind ``number``, once: all that are on their way are behind the same hole."""
        if self._wanted.get(given.leader) != (given.epoch, number):
            self._wanted[given.leader] = given.epoch, number
            self._journal.emit(ArrivalsWanted(given.leader, given.epoch, number))

    def _deliver(self, given: EventArrived) -> None:
        self._subscriptions.end_expired()
        state = self._state
        raw = msgspec.Raw(protocol.encode_event(given.event))
        delivered = self._delivery.deliver(given.event, raw, self.received_us)
        received_us = None if self.received_us == state.wall_us else self.received_us
        arrival = records.Arrival(
            given.leader, given.epoch, given.number, given.before, given.id, given.accepted_us, raw, received_us
        )
        record = records.Arrived(at_us=state.wall_us, arrival=arrival, delivery=delivered.delivery)
        offset = self._journal.write(record, urgent=True)
        self._delivery.send(delivered, offset, record)
        for subscription in delivered.expired:
            self._subscriptions.end(subscription, "expired")
