"""Removed devices that may come back.

A device that comes back in the same life repeats publishes, and may still hold back events. The
broker sends it the reason of its removal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from wanderbus import records
from wanderbus.broker.state.rows import (
    DeviceRow,
    FormerLease,
    FormerRow,
    PublisherRow,
    device_key,
    publisher_key,
    publisher_keys,
)
from wanderbus.broker.state.session_counts import count_absence

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState

REASONS_MAX: Final = 128
"""Removed devices of a user to which the broker can still send the reason."""


def remove_device(state: BrokerState, record: records.Left) -> None:
    """Remove a device that has left its session; one that has asked to leave comes back as a new one."""
    user, device = record.user, record.device
    row = state.devices.get(device_key(user, device))
    state.devices.drop(device_key(user, device))
    if row is not None:
        count_absence(state, row, record.at_us)
    if record.reason == "asked":
        forget_publishes(state, user, device)
        return
    if row is not None:
        keep_lease(state, row, record.at_us)
    if record.reason != "transferred":
        _keep_reason(state, record)
    if any(key in state.publishers or state.groups.knows(key) for key in _publishers(user, device)):
        former = state.former.get(user) or FormerRow()
        former.devices.append(device)
        state.former.put(user, former)


def keep_lease(state: BrokerState, row: DeviceRow, at_us: int) -> None:
    """Keep the lease of filters of a device that is removed; forget those of its user that have run out."""
    if row.filter_lease_s:
        former = state.former.get(row.user) or FormerRow()
        former.leases = {device: each for device, each in former.leases.items() if each.left_s(at_us)}
        former.leases[row.device] = FormerLease(row.epoch, at_us, row.filter_lease_s)
        state.former.put(row.user, former)


def _keep_reason(state: BrokerState, record: records.Left) -> None:
    former = state.former.get(record.user) or FormerRow()
    former.reasons.pop(record.device, None)
    former.reasons[record.device] = record.reason
    if len(former.reasons) > REASONS_MAX:
        del former.reasons[next(iter(former.reasons))]
    state.former.put(record.user, former)


def forget_publishes(state: BrokerState, user: str, device: str) -> None:
    """Forget the publishes of a device, which are not recognised any more when it repeats them."""
    for key in _publishers(user, device):
        state.publishers.drop(key)
        state.groups.drop_publisher(key)
    if (former := state.former.get(user)) is not None and device in former.devices:
        former.devices.remove(device)
        _put(state, user, former)


def move_publishes(state: BrokerState, user: str, device: str) -> None:
    """Forget the publishes of a device to decentralised channels, which are known where its session is now."""
    for key in publisher_keys(user, device, decentralised=True):
        state.publishers.drop(key)


def came_back(state: BrokerState, user: str, device: str, epoch: int) -> None:
    """Note that a device is attached; in the life of its lease it has given up its filters before."""
    former = state.former.get(user)
    if former is None:
        return
    if former.reasons.pop(device, None) is not None:
        _put(state, user, former)
    if device in former.devices:
        former.devices.remove(device)
        _put(state, user, former)
    if (lease := former.leases.get(device)) is not None and lease.epoch == epoch:
        del former.leases[device]
        _put(state, user, former)


def _put(state: BrokerState, user: str, former: FormerRow) -> None:
    if former.is_empty:
        state.former.drop(user)
    else:
        state.former.put(user, former)


def _publishers(user: str, device: str) -> list[str]:
    return [key for decentralised in (False, True) for key in publisher_keys(user, device, decentralised=decentralised)]


def remember_publish(state: BrokerState, acceptance: records.Acceptance, *, decentralised: bool) -> None:
    """Remember the answer to a publish, by which a repeat is recognised."""
    device = device_key(acceptance.user, acceptance.device)
    key = publisher_key(device, outbox=acceptance.outbox, decentralised=decentralised)
    group, number = acceptance.group, acceptance.number
    publisher = state.publishers.get(key) if group is None else state.groups.publisher(group, key)
    if publisher is None:
        publisher = PublisherRow(acceptance.epoch)
    elif publisher.epoch != acceptance.epoch:
        publisher = publisher.in_epoch(acceptance.epoch)
    digest = crc32(acceptance.event) if acceptance.digest is None else acceptance.digest
    publisher.remember(number, acceptance.id.number, digest, state.publishes_remembered)
    if group is None:
        state.publishers.put(key, publisher)
    else:
        state.groups.put_publisher(group, key, publisher)
