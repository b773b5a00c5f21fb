"""Start of a server, and a rollback of its log, applied to the state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from wanderbus import records
from wanderbus.broker.state.drops import lose
from wanderbus.broker.state.rows import OwedGap, ServerRow, SettledRow
from wanderbus.epochs import in_common, is_known, with_epoch
from wanderbus.event import EventId

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState
    from wanderbus.channels.own_channels import OwnChannels


def start_record(state: BrokerState, engine_subjects: tuple[str, ...], channels: OwnChannels | None) -> records.Started:
    """Return the record of a start, with the subjects that a matching engine matches and the channels of the domain."""
    # A clock that runs gives each start another epoch, and a later one a higher one, whatever log it finds.
    epoch = max(state.epoch + 1, state.wall_us)
    decentralised = None if channels is None else channels.decentralised
    return records.Started(
        at_us=state.wall_us,
        server=state.server,
        incarnation=state.incarnation or epoch,
        epoch=epoch,
        spark_subjects=engine_subjects,
        servers=() if decentralised is None else decentralised.servers,
        number=0 if decentralised is None else decentralised.number,
        layout=b"" if channels is None else channels.layout,
        others=None if channels is None else channels.others,
    )


def apply_started(state: BrokerState, offset: int, record: records.Started) -> None:
    """Begin an epoch, and mark every device as disconnected: a server that starts has no links yet."""
    server = state.servers[state.server]
    server.incarnation = state.incarnation = server.incarnation or record.incarnation
    # Before schema 13 all ids of a log have its incarnation.
    _begin(state, server, record.epoch or state.epoch or record.incarnation, offset)
    state.decentralised.routes.restart()
    server.engine_subjects = record.spark_subjects
    server.newcomers = newcomers(state, record.layout, record.others)
    server.others = record.others
    if server.layout != record.layout:
        server.has_moved = has_moved(state, record.layout)
        server.layout = record.layout
        for name in list(state.settled):
            state.settled.drop(name)
        state.decentralised.forget_routes()
    if record.servers:
        server.servers, server.number = record.servers, record.number
        state.decentralised.begin(server)
    for key, device in list(state.devices.items()):
        if not device.session:
            state.devices.drop(key)
        elif device.status == "CONNECTED":
            device.status, device.away_since_us = "DISCONNECTED", record.at_us
            state.devices.put(key, device)


def apply_met(state: BrokerState, name: str) -> None:
    """Note that another server has the present file of the domain."""
    server = state.servers[state.server]
    state.settled.put(name, state.settled.get(name) or SettledRow())
    earlier = set(server.others or ()) - server.newcomers
    server.is_known = server.is_known or all(state.settled.get(each) is not None for each in earlier)


def apply_rolled_back(state: BrokerState, offset: int, record: records.RolledBack) -> None:
    """Begin an epoch; every session is owed a gap from now on."""
    server = state.servers[state.server]
    server.rolled_back, server.is_marked = record.epoch, record.is_marked
    server.newcomers = frozenset()  # they may have said what they want since the copy
    _begin(state, server, record.epoch, offset)
    state.decentralised.roll_back(server, record.stale_routes)


def apply_events_lost(state: BrokerState, offset: int, record: records.EventsLost) -> None:
    """Put a gap into the queues of these subscriptions."""
    for notified in record.notified:
        lose(state, OwedGap(notified, state.identity(offset), record.at_us, record.reason))
        session = state.ensure_session(notified.user, notified.session)
        session.rolled_back = max(session.rolled_back, record.rolled_back)
        state.sessions.put(session.key, session)


def _begin(state: BrokerState, server: ServerRow, epoch: int, offset: int) -> None:
    if epoch != state.epoch or not server.epochs:
        known = server.epochs or ((state.epoch, 0),) if state.epoch else ()
        server.epochs, state.epoch = with_epoch(known, epoch, offset), epoch


def has_id(state: BrokerState, identity: EventId) -> bool:
    """Return whether an id of this server is one of this log's, as far as its epochs are still known."""
    if not is_known(state.epochs, identity.incarnation, begin=0):
        return False
    shared = in_common(state.epochs, identity.incarnation, identity.number, begin=0)
    return identity.number == shared < state.offset


def has_lost(state: BrokerState, identity: EventId) -> bool:
    """Return whether this log once had an id of this server, and lacks it now; an earlier log is not this one."""
    begin = state.epochs[0][0]
    return identity.origin == state.server and identity.incarnation >= begin and not has_id(state, identity)


def readable_as(state: BrokerState) -> int:
    """Return the incarnation under which other servers read this log: another one since it was rolled back."""
    return state.servers[state.server].rolled_back or state.incarnation


def newcomers(state: BrokerState, layout: bytes, others: Iterable[str] | None) -> frozenset[str]:
    """Return those of the ``others`` that have joined since the log has its layout; none if that is another one."""
    server = state.servers[state.server]
    if server.layout != layout or server.others is None or others is None:
        return frozenset()
    return server.newcomers | set(others) - set(server.others)


def has_moved(state: BrokerState, layout: bytes) -> bool:
    """Return whether the log had another layout of channels than ``layout`` at some time."""
    server = state.servers[state.server]
    return server.has_moved or server.layout not in (b"", layout)
