"""Simulated home domain: its SIP server across restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from wanderbus.machine import Address, Output
from wanderbus.simulation.host import SimulatedHost
from wanderbus.simulation.network import Network
from wanderbus.simulation.node import Node
from wanderbus.simulation.server import DOMAIN, SERVER_ADDRESS, password_of
from wanderbus.simulation.world import SeededRandom, World
from wanderbus.sip.message.targets import PORTS
from wanderbus.sip.proxy.bindings import Binding
from wanderbus.sip.proxy.domain_servers import OtherDomains
from wanderbus.sip.proxy.sip_server import SOCKET, SIPServer


class Home(msgspec.Struct, frozen=True):
    """A home domain: the address of its server, and the other domains that it vouches for."""

    domain: str = DOMAIN
    address: Address = SERVER_ADDRESS
    vouches_for: tuple[str, ...] = ()


class Site(SimulatedHost[SIPServer]):
    """The server of a home: its key is kept in a restart, its bindings usually too; ``report`` gets its reports."""

    def __init__(
        self,
        world: World,
        network: Network,
        home: Home,
        stream: Literal["TCP", "TLS"],
        report: Callable[[Node, Output], None],
    ) -> None:
        super().__init__(SIPServer)
        self.home = home
        self._world = world
        self._network = network
        self._stream = stream
        self._place: Address = home.address[0], PORTS[stream]
        self._report = report
        self._key = SeededRandom(world).token(16)
        """Key of Record-Route: dialogs through the proxy survive a restart, because it stays the same."""
        self._kept: dict[str, tuple[Binding, ...]] = {}

    def stop(self, *, forgetful: bool) -> None:
        """Kill the server; its bindings are kept unless it is ``forgetful``."""
        self._kept = {} if forgetful else self.machine.location.snapshot()
        self.kill()

    def start(self) -> None:
        """Start the server if it is down, with the kept bindings."""
        if self.running:
            return
        home = self.home
        server = SIPServer(
            home.domain,
            home.address,
            password_of,
            SeededRandom(self._world),
            self._key,
            expires_min_s=5,
            streams={self._stream: self._place},
            others=OtherDomains(trusted=frozenset(home.vouches_for)) if home.vouches_for else None,
        )
        node = self.node = Node(
            f"registrar of {home.domain}",
            server,
            {SOCKET: home.address},
            self._world,
            self._network,
            lambda output: self._report(node, output),
            streams={SOCKET: self._place},
            certified=(home.domain,),
        )
        node.perform(server.restore(self._kept, self._world.now))
