"""Start of a server, applied to the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderbus import records

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState


def apply_started(state: BrokerState, record: records.Started) -> None:
    """Mark every device as disconnected: a server that starts has no links yet."""
    server = state.servers[state.server]
    server.incarnation = state.incarnation = server.incarnation or record.incarnation
    server.engine_subjects = record.spark_subjects
    if record.servers:
        server.servers, server.number = record.servers, record.number
        state.direct.begin(server)
    for key, device in list(state.devices.items()):
        if not device.session:
            state.devices.drop(key)
        elif device.status == "CONNECTED":
            device.status, device.away_since_us = "DISCONNECTED", record.at_us
            state.devices.put(key, device)
