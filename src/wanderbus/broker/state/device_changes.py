"""Changes of a device's dialog, status and membership, applied to the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderbus import records
from wanderbus.broker.state.rows import DeviceRow, device_key, session_key
from wanderbus.broker.state.session_counts import count_absence

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState


def change_device(state: BrokerState, record: records.DialogStored | records.StatusChanged) -> None:
    """Store a device's dialog or status; a device in no session is kept while it is connected."""
    key = device_key(record.user, record.device)
    device = state.devices.get(key) or DeviceRow(record.user, record.device, "")
    if isinstance(record, records.DialogStored):
        device.binding, device.address = record.binding, record.address or device.address
    else:
        if record.status == "CONNECTED":
            count_absence(state, device, record.at_us)
        device.status = "CONNECTED" if record.status == "CONNECTED" else "DISCONNECTED"
        device.away_since_us = None if device.status == "CONNECTED" else record.at_us
        device.grace_s = record.grace_s
        if device.status == "DISCONNECTED" and not device.session:
            state.devices.drop(key)
            return
    state.devices.put(key, device)


def begin_behind(state: BrokerState, record: records.Attached) -> None:
    """Let a new member begin behind what other devices have acknowledged."""
    for identity, number in record.taken:
        if (row := state.known(identity)) is not None:
            row.cursors = (row.cursors or {}) | {record.device: number}
            state.put_known(row)


def leave_session(state: BrokerState, user: str, name: str, device: str) -> None:
    """End a membership; a device is a member of one session at a time."""
    session = state.sessions.get(session_key(user, name))
    if session is None or device not in session.devices:
        return
    session.devices.remove(device)
    state.sessions.put(session.key, session)
    state.note_members(session)
    for identity in state.queued_for(session):
        if (row := state.known(identity)) is not None and row.cursors is not None:
            row.cursors.pop(device, None)
            row.cursors = row.cursors or None
            state.put_known(row)
    state.trim_all(session)


def forget_redelivered(state: BrokerState, device: DeviceRow, record: records.Acknowledged) -> None:
    """Remove the redelivery marks of a device that the acknowledged number has reached."""
    assert device.redelivered is not None
    for identity in record.subscriptions or list(device.redelivered):
        if record.resumed or device.redelivered.get(identity, 0) <= record.number:
            device.redelivered.pop(identity, None)
    device.redelivered = device.redelivered or None
    state.devices.put(device_key(device.user, device.device), device)
