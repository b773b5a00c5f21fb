"""Simulated histories of two home domains: parties call and move across them (SPEC D-13).

Lookups of domains fail or are slow. The servers find each other only by lookups, connect over TLS, and vouch for their
users. All failures of the rough worlds of :mod:`.scenario` happen here too, and each server restarts at its own time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wanderbus.machine import Output
from wanderbus.simulation.node import Node
from wanderbus.simulation.server import DOMAIN, SERVER_ADDRESS, password_of
from wanderbus.simulation.sip.party import Home, SIPParty
from wanderbus.simulation.sip.scenario import SIPScenario
from wanderbus.simulation.world import SeededRandom
from wanderbus.sip.message.targets import PORTS, Target
from wanderbus.sip.proxy.bindings import Binding
from wanderbus.sip.proxy.domain_routes import LOOKUP_S_MAX
from wanderbus.sip.proxy.domain_servers import DomainLookedUp, DomainServer, FindDomain, OtherDomains
from wanderbus.sip.proxy.sip_server import SIPServer

OTHER_DOMAIN: Final = "other.test"

HOMES: Final = (Home(DOMAIN, SERVER_ADDRESS, (OTHER_DOMAIN,)), Home(OTHER_DOMAIN, ("10.0.0.2", 5060), (DOMAIN,)))

NOBODY: Final = "10.0.0.3"
"""Wrong address of a server that the lookup may return."""


class _Site:
    """The server of one home across restarts: its key is kept, its bindings usually too."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.node: Node | None = None
        self.kept: dict[str, tuple[Binding, ...]] = {}

    @property
    def server(self) -> SIPServer:
        assert self.node is not None
        assert isinstance(self.node.machine, SIPServer)
        return self.node.machine


class DomainsScenario(SIPScenario):
    """A world with two SIP servers whose users may all call each other, set up by the seed."""

    calm_share = 0.0
    signalling_stream = "TLS"

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self.lookups = 0
        self._mended = False
        random = SeededRandom(self.world)
        self._sites = {home.domain: _Site(random.token(16)) for home in HOMES}

    @property
    def servers(self) -> Mapping[str, SIPServer]:
        """Return the running SIP servers, by domain."""
        return {domain: site.server for domain, site in self._sites.items()}

    def stop_server(self, *, forgetful: bool) -> None:
        """Kill one of the servers; its bindings are kept unless it is ``forgetful``."""
        site = self._sites[self.world.random.choice(HOMES).domain]
        if site.node is not None and site.node.alive:
            self.restarts += 1
            site.kept = {} if forgetful else site.server.location.snapshot()
            site.node.kill()

    def start_server(self) -> None:
        """Start the servers that are down, with the kept bindings."""
        for home in HOMES:
            site = self._sites[home.domain]
            if site.node is None or not site.node.alive:
                self._start(home, site)

    def _start(self, home: Home, site: _Site) -> None:
        place = home.address[0], PORTS["TLS"]
        server = SIPServer(
            home.domain,
            home.address,
            password_of,
            SeededRandom(self.world),
            site.key,
            expires_min_s=5,
            streams={"TLS": place},
            others=OtherDomains(trusted=frozenset(home.vouches_for)),
        )

        def report(output: Output) -> None:
            if isinstance(output, FindDomain) and site.node is not None:
                self._look_up(site.node, output)

        site.node = Node(
            f"registrar of {home.domain}",
            server,
            {"sip": home.address},
            self.world,
            self.network,
            report,
            streams={"sip": place},
            certified=(home.domain,),
        )
        site.node.perform(server.restore(site.kept, self.world.now))

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

    def _registrars(self) -> Sequence[Node | None]:
        return [site.node for site in self._sites.values()]

    def _new_party(self, number: int) -> SIPParty:
        home = HOMES[number % len(HOMES)]
        return SIPParty(f"user{number}", self._fresh_ip(), self._manner(), self.world, self.network, home)
