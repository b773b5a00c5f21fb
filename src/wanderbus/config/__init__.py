"""What may be set on a server and on an agent, in a file or as arguments (SPEC A-10, Q-01, Q-02).

Every key of a file is a keyword argument of the same name of :class:`wanderbus.Server` or :func:`wanderbus.connect`.
"""

from wanderbus.broker.config import BrokerConfig
from wanderbus.config.settings import (
    AgentArguments,
    AgentSettings,
    DomainsSettings,
    ProxyArguments,
    ProxySettings,
    RelaySettings,
    ServerArguments,
    ServerSettings,
)
from wanderbus.domain.baseline import BaselineConfig
from wanderbus.relay import RelayLimits
from wanderbus.rudp import RudpConfig
from wanderbus.sip.authentication.login_guard import LoginLimits
from wanderbus.sip.transaction.flood_limits import FloodLimits
from wanderbus.stream_limits import DataStreamLimits, StreamLimits
from wanderbus.subscription import QueuePolicy
from wanderbus.tcp import TcpConfig

__all__ = [
    "AgentArguments",
    "AgentSettings",
    "BaselineConfig",
    "BrokerConfig",
    "DataStreamLimits",
    "DomainsSettings",
    "FloodLimits",
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
