"""Settings of servers, agents, proxies and relays, from a file or as arguments (SPEC A-10, Q-01, Q-02).

Every key of a file is a keyword argument of the same name of :class:`wanderbus.Server` or :func:`wanderbus.connect`.
"""

from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.eci import BaselineConfig
from wanderbus.parameters.relay import RelayLimits
from wanderbus.parameters.signalling import FloodLimits, LoginLimits
from wanderbus.parameters.transports import DataStreamLimits, LightLimits, RudpConfig, StreamLimits, TcpConfig
from wanderbus.settings.agent import AgentArguments, AgentSettings
from wanderbus.settings.server import (
    AccessSettings,
    DomainsSettings,
    ProxyArguments,
    ProxySettings,
    RelaySettings,
    ServerArguments,
    ServerSettings,
)
from wanderbus.subscription import QueuePolicy

__all__ = [
    "AccessSettings",
    "AgentArguments",
    "AgentSettings",
    "BaselineConfig",
    "BrokerConfig",
    "DataStreamLimits",
    "DomainsSettings",
    "FloodLimits",
    "LightLimits",
    "LoginLimits",
    "ProxyArguments",
    "ProxySettings",
    "QueuePolicy",
    "RelayLimits",
    "RelaySettings",
    "RudpConfig",
    "ServerArguments",
    "ServerSettings",
    "StreamLimits",
    "TcpConfig",
]
