"""Simulated history behind NATs: agents that move into, out of and between them, and a media relay (SPEC I).

It is a history of the whole system as in :mod:`wanderbus.simulation.system.scenario`, with its checkers. Behind every
NAT the agents have the same address, and only replies reach them there. NATs forget mappings, and lose all their state;
the relay is restarted. Other networks have a firewall, which lets signalling pass, and data only through a relay or
over TCP; at last all agents make a tour through such networks (:mod:`.firewall_tour`). In the end every agent is
registered at its public address and in a session with the broker. Its data pass the relay if it is behind NAT, and go
directly otherwise. The relay has no state left once all agents are gone.
"""

from __future__ import annotations

from typing import ClassVar, Final

from wanderbus.client.machine.core import DATA_SOCKET, SIP_SOCKET
from wanderbus.client.machine.messages import Disconnect
from wanderbus.machine import Address
from wanderbus.relay import RelayLimits
from wanderbus.simulation.nat.firewall import Firewall
from wanderbus.simulation.nat.firewall_tour import FIREWALLS, RELAY_IP, FirewallTour
from wanderbus.simulation.nat.nat import NAT
from wanderbus.simulation.node import Wire
from wanderbus.simulation.relay.relay_host import NG_PORT, RelayHost
from wanderbus.simulation.server import SERVER_IP
from wanderbus.simulation.signalling import UDP_ONLY
from wanderbus.simulation.system.calling import call_all
from wanderbus.simulation.system.scenario import ACTIVE_S, SystemScenario
from wanderbus.simulation.system.traveller import Traveller

PORTS: Final = range(30_000, 30_200)
INSIDE_IP: Final = "192.168.0.5"
REGISTERED_S: Final = 230.0
"""Time to recover: a registration of 600 s is refreshed after a third of that, which repairs what a NAT or the server
lost.
"""

IDLE_S: Final = (30.0, 60.0, 300.0)
"""Time for which NATs keep a mapping; the worst give UDP half a minute (RFC 4787 4.3 requires two minutes)."""


class NATTraveller(Traveller):
    """A user whose device is sometimes behind NAT."""

    nat: NAT | None = None

    @property
    def ip(self) -> str:
        """Return the public address of the device."""
        return super().ip if self.nat is None else self.nat.ip

    @property
    def wire(self) -> Wire:
        """Return the NAT that the device is behind, or else the network."""
        return super().wire if self.nat is None else self.nat

    def disconnect(self) -> None:
        """End the session."""
        self.feed(Disconnect())

    def _addresses(self) -> dict[str, Address]:
        if self.nat is None:
            return super()._addresses()
        return {SIP_SOCKET: (INSIDE_IP, 5060), DATA_SOCKET: (INSIDE_IP, 40_000)}


class NATScenario(SystemScenario):
    """A world with one server, one relay, and a few travellers inside and outside NATs."""

    counted: ClassVar = {
        "events": "events",
        "notifications": "notifications",
        "address_changes": "address changes",
        "moves_into_nat": "of them into NATs",
        "moves_out_of_nat": "out of them",
        "moves_behind_firewall": "of them behind firewalls",
        "nat_restarts": "NATs restarted",
        "relay_restarts": "relays killed",
        "server_crashes": "server crashes",
        "relayed": "datagrams relayed",
        "filtered": "kept out by NATs",
        "dropped": "dropped by firewalls",
    }

    traveller_class = NATTraveller
    relay_addresses = ((RELAY_IP, NG_PORT),)
    over_tcp = 0.0
    signalling_shares = UDP_ONLY

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self.into = self.out_of = self.behind_firewall = self.nat_restarts = 0
        self.nats: list[NAT] = []
        self.relays = [self._new_relay()]
        for traveller in self.travellers:
            assert isinstance(traveller, NATTraveller)
            if self.world.random.random() < 0.7:
                traveller.nat = self._new_nat()

    def counts(self) -> dict[str, float]:
        return super().counts() | {
            "moves_into_nat": self.into,
            "moves_out_of_nat": self.out_of,
            "moves_behind_firewall": self.behind_firewall,
            "nat_restarts": self.nat_restarts,
            "relay_restarts": len(self.relays) - 1,
            "relayed": sum(host.relay.figures.datagrams for host in self.relays),
            "filtered": sum(nat.filtered for nat in self.nats),
            "dropped": self.network.dropped,
        }

    def plan(self, traveller: Traveller) -> None:
        """Also lose the mappings of the traveller's NAT, and the relay."""
        super().plan(traveller)
        draw = self.world.random
        for _ in range(draw.choice([0, 1, 2])):
            self.world.at(draw.uniform(3, ACTIVE_S), lambda: self._restart_nat(traveller))
        if draw.random() < 0.2:
            self.world.at(draw.uniform(3, ACTIVE_S), self._restart_relay)

    def move(self, traveller: Traveller) -> None:
        """Move behind another NAT, behind a firewall, or to an open network."""
        draw = self.world.random
        nat = self._new_nat() if draw.random() < 0.5 else None
        self.move_to(traveller, nat, None if nat or draw.random() < 0.4 else draw.choice([*FIREWALLS.values()]))

    def tour(self) -> None:
        """Make the tour through firewalls, and end behind NAT or not."""
        tour = FirewallTour(
            self.world,
            self.network,
            self.travellers,
            lambda traveller, firewall: self.move_to(traveller, firewall=firewall),
        )
        self.problems += tour.problems()
        for traveller in self.travellers:
            self.move_to(traveller, self._new_nat() if self.world.random.random() < 0.6 else None)
        self._settle()

    def move_to(self, traveller: Traveller, nat: NAT | None = None, firewall: Firewall | None = None) -> None:
        """Move behind ``nat``, behind ``firewall``, or to an open network."""
        assert isinstance(traveller, NATTraveller)
        self.moves += 1
        self.network.mend(traveller.ip)
        was_behind = traveller.nat is not None
        traveller.nat = nat
        self.into += not was_behind and nat is not None
        self.out_of += was_behind and nat is None
        self.behind_firewall += firewall is not None
        traveller.move()
        if firewall is not None:
            self.network.firewalls[traveller.ip] = firewall

    def check(self) -> list[str]:
        """Check that everybody can be called, data pass the relay only for agents behind NAT, and no state is left."""
        names = [traveller.name for traveller in self.travellers]
        problems = call_all(self.world, self.network, names, REGISTERED_S)
        for traveller in self.travellers:
            assert isinstance(traveller, NATTraveller)
            where = RELAY_IP if traveller.nat is not None else traveller.ip
            known = self.server.address_of(traveller.uri)
            if known is None or not known.startswith(f"{where}:"):
                problems.append(f"{traveller.name}: the broker sends to {known} and not to {where}")
            there = RELAY_IP if traveller.nat is not None else SERVER_IP
            if traveller.sends_to != there:
                problems.append(f"{traveller.name} sends to {traveller.sends_to} and not to {there}")
            traveller.disconnect()
        relay = self.relays[-1]
        self.world.run(self.world.now + RelayLimits().idle_s + 60.0)
        if relay.ports or relay.relay.calls:
            problems.append(f"the relay has {len(relay.relay.calls)} calls when all are gone")
        return problems

    def _new_nat(self) -> NAT:
        draw = self.world.random
        self.nats.append(NAT(f"203.0.113.{len(self.nats) + 1}", draw.choice(IDLE_S), self.world, self.network))
        return self.nats[-1]

    def _new_relay(self) -> RelayHost:
        return RelayHost(RELAY_IP, PORTS, self.world, self.network)

    def _restart_nat(self, traveller: Traveller) -> None:
        assert isinstance(traveller, NATTraveller)
        if traveller.nat is not None:
            self.nat_restarts += 1
            traveller.nat.restart()

    def _restart_relay(self) -> None:
        self.relays[-1].kill()
        self.relays.append(self._new_relay())
