"""Simulated histories of two home domains: parties call and move across them (SPEC D-13).

Lookups of domains fail or are slow. The servers find each other only by lookups, connect over TLS, and vouch for their
users. All failures of the rough worlds of :mod:`.scenario` happen here too, and each server restarts at its own time.
"""

from __future__ import annotations

from typing import Final

from wanderbus.machine import Output
from wanderbus.simulation.node import Node
from wanderbus.simulation.server import DOMAIN, SERVER_ADDRESS
from wanderbus.simulation.sip.scenario import SIPScenario
from wanderbus.simulation.sip.site import Home
from wanderbus.sip.message.targets import PORTS, Target
from wanderbus.sip.proxy.domain_routes import LOOKUP_S_MAX
from wanderbus.sip.proxy.domain_servers import DomainLookedUp, DomainServer, FindDomain

OTHER_DOMAIN: Final = "other.test"

HOMES: Final = (Home(DOMAIN, SERVER_ADDRESS, (OTHER_DOMAIN,)), Home(OTHER_DOMAIN, ("10.0.0.2", 5060), (DOMAIN,)))

NOBODY: Final = "10.0.0.3"
"""Wrong address of a server that the lookup may return."""


class DomainsScenario(SIPScenario):
    """A world with two SIP servers whose users may all call each other, set up by the seed."""

    calm_share = 0.0
    signalling_stream = "TLS"
    homes = HOMES

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self.lookups = 0
        self._mended = False

    def _report(self, node: Node, output: Output) -> None:
        if isinstance(output, FindDomain):
            self._look_up(node, output)

    def _look_up(self, node: Node, wanted: FindDomain) -> None:
        """Answer after a while: too late, with a failure, or with a dead server first, unless the world is repaired."""
        self.lookups += 1
        draw = self.world.random
        rough = not self._mended
        hosts = [home.address[0] for home in HOMES if home.domain == wanted.domain]
        if rough and draw.random() < 0.2:
            hosts = []
        elif rough and draw.random() < 0.3:
            hosts = [NOBODY, *hosts]
        servers = tuple(
            DomainServer(Target("TLS", (host, PORTS["TLS"]), None, wanted.domain), priority)
            for priority, host in enumerate(hosts)
        )
        answer = DomainLookedUp(wanted.domain, wanted.port, servers, draw.choice([0.0, 20.0, 300.0]))
        slow = rough and draw.random() < 0.2
        delay_s = draw.uniform(0.5, 1.4) * LOOKUP_S_MAX if slow else draw.uniform(0.001, 0.1)
        self.world.after(delay_s, lambda: node.feed([answer]))

    def _end_disturbances(self) -> None:
        self._mended = True
        super()._end_disturbances()
