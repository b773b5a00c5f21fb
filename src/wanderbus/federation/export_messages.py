"""Outputs of the exports of one foreign domain."""

from __future__ import annotations

from wanderbus.federation.circuit_messages import CircuitClosed, CircuitMessage, CircuitOpened, FromFar, ServersTold
from wanderbus.federation.wire import EventForwarded, EventPassed, EventsLost
from wanderbus.machine import Output, SetTimer

ToServerMessage = CircuitOpened | CircuitMessage | CircuitClosed | FromFar | ServersTold


class ToServer(Output, frozen=True):
    """Send a message to a server of the own domain."""

    server: str
    message: ToServerMessage


class ToDomain(Output, frozen=True):
    """Send a message to the gateway of the foreign domain."""

    message: EventForwarded | EventPassed | EventsLost


ExportOutput = ToServer | ToDomain | SetTimer
"""All of them."""
