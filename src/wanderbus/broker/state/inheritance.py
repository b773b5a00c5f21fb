"""Inheritance: a new subscription gets the queue of an ended one with the same request (decision 0035)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from wanderbus.broker.queues.left_queue import subscriptions_of
from wanderbus.broker.queues.stored_blocks import Block, QueuePiece
from wanderbus.broker.state.engine_events import successor_of
from wanderbus.broker.state.rows import SubscriptionRow, device_key

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState


def inherit(state: BrokerState, successor: SubscriptionRow, ended: SubscriptionRow) -> None:
    """Move the queue of an ``ended`` subscription, and what devices have got of it, to its ``successor``."""
    subscription, before = successor.subscription, ended.subscription.id
    session = state.ensure_session(subscription.owner, subscription.session)
    if (queue := state.queue.get(session.key)) is not None:
        queue.rename(before, subscription.id)
    successor.cursors, successor.settled, successor.history = ended.cursors, ended.settled, ended.history
    successor.taken, successor.read_below = ended.taken, ended.read_below
    ended.cursors, ended.settled, ended.history = None, max(ended.settled, session.here_through), ()
    ended.successor = subscription.id
    state.tombstones.put(before, ended)
    for device in session.devices:
        key = device_key(session.user, device)
        row = state.devices[key]
        if row.redelivered and before in row.redelivered:
            row.redelivered[subscription.id] = row.redelivered.pop(before)
            state.devices.put(key, row)


def inherited(state: BrokerState, piece: QueuePiece) -> QueuePiece:
    """Return a piece of a queue for the subscriptions that have the queues by now."""
    heirs = {
        name: successor_of(state, row).subscription.id
        for name in subscriptions_of(piece)
        if (row := state.tombstones.get(name)) is not None and row.successor
    }
    if not heirs:
        return piece
    replace = msgspec.structs.replace

    def renamed(block: Block) -> Block:
        matches = (
            replace(
                match,
                subscriptions=tuple([heirs.get(each, each) for each in match.subscriptions]),
                bound=tuple([(heirs.get(each, each), device) for each, device in match.bound]),
            )
            for match in block.matches
        )
        gaps = (replace(gap, subscription=heirs.get(gap.subscription, gap.subscription)) for gap in block.gaps)
        return replace(block, matches=tuple(matches), gaps=tuple(gaps))

    blocks = tuple([(number, renamed(block)) for number, block in piece.blocks])
    return replace(piece, blocks=blocks, covered=tuple([(heirs.get(name, name), last) for name, last in piece.covered]))
