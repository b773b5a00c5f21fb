"""Simulated server of a domain among others whose sessions move within the domain, and to other domains (SPEC L-01)."""

from __future__ import annotations

from wanderbus.broker.state.state import BrokerState
from wanderbus.peers.far_servers import FarDomains
from wanderbus.peers.handover.session_handovers import SessionHandovers
from wanderbus.simulation.federation.node import FederatedNode
from wanderbus.simulation.handover.moving_sessions import MovesSessions


class MovingNode(MovesSessions, FederatedNode):
    """A server which moves sessions to servers here, and to other domains."""

    def _make_handovers(self, state: BrokerState) -> SessionHandovers:
        domains = FarDomains(self.domain, self.parameters.far_domains, lineage=self.channels.lineage)
        return SessionHandovers(self.others, self.others, state, self.domain, None, self.piece_bytes, domains=domains)
