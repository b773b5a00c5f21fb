"""Parts of a broker that all others use."""

from __future__ import annotations

from typing import NamedTuple

from wanderbus.broker.links import Links
from wanderbus.broker.publish.decisions import Conditions
from wanderbus.broker.queues.queue_limits import QueueLimits
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.servers.server_users import ServerUsers
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.parameters.broker import BrokerConfig


class Basics(NamedTuple):
    """Shared parts; ``channels`` are those of the domain as this server sees them, None if it is alone."""

    state: BrokerState
    journal: Journal
    links: Links
    queue_limits: QueueLimits
    config: BrokerConfig
    servers: ServerUsers
    kinds: CustomRestrictions
    channels: OwnChannels | None
    conditions: Conditions
