"""Replacement of a leader that was gone: gaps, and ends of what only it could continue (SPEC J-08; decision 0152)."""

from __future__ import annotations

from wanderbus.broker.basics import Basics
from wanderbus.broker.interest.index_entries import subjects_of
from wanderbus.broker.messages import HistoryFailed
from wanderbus.broker.servers.peer_events import PeerEvents
from wanderbus.broker.state.replays import HISTORY_FAILED, leader_span
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.protocol.domains import LedGroup


class ReplacedLeaders:
    """Ends what only the former leader could continue, and gives every subscription of the group a gap."""

    def __init__(self, basics: Basics, subscriptions: Subscriptions, peers: PeerEvents) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._channels = basics.channels
        self._subscriptions = subscriptions
        self._peers = peers

    def replace(self, led: LedGroup) -> None:
        """Note, before a server leads a group, that events of it may be missing here.

        They are those of the former leader that have not come, and at that server those of the next one that nobody
        sent there.
        """
        assert self._channels is not None
        here, group = self._channels.server, led.group
        for row in list(self._state.subscriptions.values()):
            span, subscription = leader_span(row, here), row.subscription
            is_read_there = span is not None and span.server == led.former and not span.epoch
            if is_read_there and any(self._channels.is_in(each, group) for each in subjects_of(subscription)):
                reason = f"{led.server} leads the channel instead of {led.former}, which was gone"
                self._journal.emit(HistoryFailed(subscription.id, reason))
                self._subscriptions.end(subscription, HISTORY_FAILED)
        self._peers.leader_replaced(group, led.server if here == led.former else led.former)
