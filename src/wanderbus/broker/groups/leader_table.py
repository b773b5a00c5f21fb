"""Leaders of channel groups as the domain's file and the log together have them (SPEC J-08; decision 0143)."""

from __future__ import annotations

from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.directory import Leader
from wanderbus.channels.own_channels import OwnChannels


def use_leaders(state: BrokerState, channels: OwnChannels | None) -> None:
    """Let the channels have the leaders in the state, except those that do not fit the domain's file."""
    if channels is None:
        return
    fitting = {group: row for group, row in state.groups.items() if fits(channels, group, row.servers)}
    moved = {group: Leader(row.leader, row.epoch) for group, row in fitting.items() if row.leader}
    channels.take_over(moved, {group: row.target for group, row in fitting.items() if row.target})


def fits(channels: OwnChannels, group: int, servers: tuple[str, ...]) -> bool:
    """Return whether a group that moved is one of the domain's file: ``servers`` lead those that have not moved."""
    return group < channels.directory.groups.count and servers in ((), channels.founders)
