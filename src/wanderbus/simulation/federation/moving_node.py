"""Simulated server of a domain among others whose sessions move within the domain, and to other domains (SPEC L-01)."""

from __future__ import annotations

from wanderbus.broker.state.state import BrokerState
from wanderbus.peers.far_servers import FarDomain, FarDomains
from wanderbus.peers.handover.session_handovers import SessionHandovers
from wanderbus.simulation.federation.node import FederatedNode
from wanderbus.simulation.handover.moving_sessions import MovesSessions


class MovingNode(MovesSessions, FederatedNode):
    """A server which moves sessions to servers here, and to other domains."""

    def _make_handovers(self, state: BrokerState) -> SessionHandovers:
        foreign = {
            each.name: FarDomain(each.receives, each.sends, each.gives_sessions, each.takes_sessions, each.visitors)
            for each in self.parameters.domains
        }
        domains = FarDomains(self.domain, foreign, lineage=self.channels.lineage)
        return SessionHandovers(self.others, self.others, state, self.domain, None, self.piece_bytes, domains=domains)
