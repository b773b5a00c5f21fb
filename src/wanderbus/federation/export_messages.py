"""Outputs of the exports of one foreign domain."""

from __future__ import annotations

from wanderbus.federation.circuit_messages import CircuitClosed, CircuitMessage, CircuitOpened
from wanderbus.federation.wire import EventForwarded, EventsLost
from wanderbus.machine import Output, SetTimer


class ToServer(Output, frozen=True):
    """Send a message to a server of the own domain."""

    server: str
    message: CircuitOpened | CircuitMessage | CircuitClosed


class ToDomain(Output, frozen=True):
    """Send a message to the gateway of the foreign domain."""

    message: EventForwarded | EventsLost


ExportOutput = ToServer | ToDomain | SetTimer
"""All of them."""
