"""Simulated history of the SIP layer alone: parties that call and move around one registrar (SPEC C, D; U-06).

A quarter of the seeds are calm: nothing is lost, every datagram takes the same time and one party moves at a time, so
the time to heal can be checked against one round trip. In the others all kinds of failures happen. Then the world is
repaired and has to come to rest: everybody is registered at their address, and every wanted session is CONNECTED on
both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import msgspec

from wanderbus.machine import Output
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.node import Node
from wanderbus.simulation.scenario import Scenario
from wanderbus.simulation.server import SERVER_IP
from wanderbus.simulation.signalling import SHARES, SignallingDraw, Stream
from wanderbus.simulation.sip.checkers import check_left_over, check_mended
from wanderbus.simulation.sip.party import Manner, SIPParty
from wanderbus.simulation.sip.plans import plan_calm, plan_rough
from wanderbus.simulation.sip.site import Home, Site
from wanderbus.sip.proxy.sip_server import SOCKET, SIPServer

ACTIVE_S: Final = 40.0
"""Seconds with planned events."""

SETTLE_S: Final = 300.0
"""Seconds in which a repaired world has to come to rest: a session expires 90 s after its last refresh (RFC 4028)."""

REST_S: Final = 60.0
"""Seconds for which a world has to stay at rest; every session is refreshed once in them."""

RETIRED_S: Final = 200.0
"""Seconds after which no state of retired parties may be left: timer C is 180 s (RFC 3261 16.6)."""

HEAL_RTT_GOAL: Final = 1.0
"""Round trips in which a move heals."""

HEAL_RTT_MAX: Final = 1.05
"""Round trips in which both sides must know an undisturbed move: one, and the grain of the clock."""


class SIPScenario(Scenario):
    """A world with one SIP server and two to fifty parties, set up by the seed."""

    counted: ClassVar = {
        "parties": "parties",
        "calls": "calls",
        "address_changes": "address changes",
        "kills": "parties killed",
        "server_restarts": "server restarts",
        "heals": "undisturbed moves measured",
        "datagrams": "datagrams",
    }

    calm_share = 0.25
    """Share of calm seeds, in which nothing goes wrong."""
    signalling_shares: Sequence[float] = SHARES
    """Shares of parties that signal over a stream in other seeds."""
    signalling_stream: Stream = "TCP"
    homes: Sequence[Home] = (Home(),)

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self.calm = self.world.random.random() < self.calm_share
        self.network = Network(self.world, self._conditions())
        self.moves = self.kills = self.restarts = self.calls = self.heals = 0
        self.heal_rtt = 0.0
        self._left: list[str] = []
        self._places = 0
        self._moved_at: dict[tuple[str, str], float] = {}
        self._sites = [
            Site(self.world, self.network, home, self.signalling_stream, self._report) for home in self.homes
        ]
        draw = self.world.random
        most = draw.choices([2, 5, 15, 50], [35, 40, 20, 5])[0]
        count = draw.randint(2, most)
        self._signalling = SignallingDraw(self.world, self.signalling_shares, self.signalling_stream)
        self.parties = [self._new_party(number) for number in range(1, count + 1)]
        self._by_uri = {party.uri: party for party in self.parties}
        for party in self.parties:
            party.on_established = self._established

    @property
    def servers(self) -> Mapping[str, SIPServer]:
        """Return the running SIP servers, by domain."""
        return {site.home.domain: site.machine for site in self._sites}

    def counts(self) -> dict[str, float]:
        return {
            "parties": len(self.parties),
            "calls": self.calls,
            "address_changes": self.moves,
            "kills": self.kills,
            "server_restarts": self.restarts,
            "heals": self.heals,
            "heal_rtt": round(self.heal_rtt, 3),
            "datagrams": self.network.delivered,
        }

    def _conditions(self) -> PathConditions:
        draw = self.world.random
        if self.calm:
            delay_s = draw.choice([0.001, 0.01, 0.05, 0.1])
            return PathConditions(delay_min_s=delay_s, delay_max_s=delay_s)
        return PathConditions(
            loss=draw.choice([0.0, 0.02, 0.1, 0.3]),
            duplication=draw.choice([0.0, 0.02, 0.1]),
            delay_min_s=0.0005,
            delay_max_s=draw.choice([0.002, 0.02, 0.1, 0.3]),
            spike=draw.choice([0.0, 0.0, 0.02, 0.05]),
            spike_s=draw.choice([0.5, 2.0]),
        )

    def _new_party(self, number: int) -> SIPParty:
        home = self.homes[number % len(self.homes)]
        return SIPParty(f"user{number}", self._fresh_ip(), self._manner(), self.world, self.network, home)

    def _manner(self) -> Manner:
        draw = self.world.random
        common = Manner(
            register_expires_s=draw.choice([15, 30, 60]),
            session_expires_s=draw.choice([90, 120]),
            authenticates=draw.random() < 0.4,
            method="UPDATE" if draw.random() < 0.2 else "INVITE",
        )
        if self.calm:
            return common
        return msgspec.structs.replace(
            common,
            answer_s_max=draw.choice([0.0, 0.0, 0.05, 0.5, 3.0]),
            rings=draw.random() < 0.5,
            refusal=draw.choice([0.0, 0.0, 0.3]),
            transport=self._signalling.transport(),
        )

    def _play(self) -> None:
        self.start_server()
        for party in self.parties:
            self.world.at(self.world.random.uniform(0, 0.5), party.start)
        (plan_calm if self.calm else plan_rough)(self, ACTIVE_S)
        self.world.run(ACTIVE_S)
        self._end_disturbances()

    def _check_promises(self) -> None:
        broken = self._wait(ACTIVE_S, SETTLE_S)
        if not broken:
            self.world.run(self.world.now + REST_S)
            broken = self._wait(self.world.now, 5.0)
        self.problems += broken
        if not broken:
            self._retire()

    def _wait(self, begin: float, seconds: float) -> list[str]:
        """Let up to ``seconds`` pass, until every promise holds; return those that do not."""
        end = begin
        while broken := check_mended(self.servers, self.parties, self.world.now):
            end += 0.5
            if end > begin + seconds:
                return broken
            self.world.run(end)
        return []

    def _end_disturbances(self) -> None:
        conditions = self.network.conditions
        conditions.loss = conditions.spike = conditions.duplication = 0.0
        self.start_server()
        for party in self.parties:
            self.network.mend(party.ip)
            party.manner = msgspec.structs.replace(party.manner, refusal=0.0)
            self.revive(party)

    def _retire(self) -> None:
        """Retire all parties; once all timers have expired, no state of them may be left."""
        for party in self.parties:
            party.retire()
        self.world.run(self.world.now + RETIRED_S)
        nodes = [*(site.node for site in self._sites), *(party.node for party in self.parties)]
        self.problems += check_left_over(nodes, self.servers, self.parties)

    # Actions of the plans ------------------------------------------------------------------------------------------

    def call(self, party: SIPParty, peer: SIPParty) -> None:
        """Let ``party`` want a session with ``peer``."""
        self.calls += 1
        party.call(peer.uri)

    def move(self, party: SIPParty) -> None:
        """Give ``party`` another address, sometimes a former address of another party."""
        self.moves += 1
        self.network.mend(party.ip)
        left = [ip for ip in self._left if not self.network.is_bound((ip, party.contact[1]))]
        again = bool(left) and self.world.random.random() < 0.2
        ip = self.world.random.choice(left) if again else self._fresh_ip()
        if again:
            self._left.remove(ip)
        self._left.append(party.ip)
        if self.calm:
            self._expect_heals(party)
        party.move(ip)

    def kill(self, party: SIPParty) -> None:
        """Kill the process of ``party``."""
        if party.running:
            self.kills += 1
            party.kill()

    def revive(self, party: SIPParty, *, forgetful: bool = False) -> None:
        """Start ``party`` if it is down."""
        if not party.running:
            party.start(forgetful=forgetful)

    def stop_server(self, *, forgetful: bool) -> None:
        """Kill one of the servers; its bindings are kept unless it is ``forgetful``."""
        site = self.world.random.choice(self._sites)
        if site.running:
            self.restarts += 1
            site.stop(forgetful=forgetful)

    def start_server(self) -> None:
        """Start the servers that are down, with the kept bindings."""
        for site in self._sites:
            site.start()

    def close_stream(self, party: SIPParty) -> None:
        """Close a connection of ``party``, if it has any."""
        if party.running:
            party.node.close_any_stream(SOCKET)

    def cut_server(self, seconds: float) -> None:
        """Disconnect the server for a while."""
        self.network.cut(SERVER_IP)
        self.world.after(seconds, lambda: self.network.mend(SERVER_IP))

    def _report(self, node: Node, output: Output) -> None:
        """Take a report of a server; the bindings are read from the server itself."""

    def _fresh_ip(self) -> str:
        self._places += 1
        return f"10.1.{self._places // 250}.{self._places % 250 + 1}"

    # Healing time of moves -----------------------------------------------------------------------------------------

    def _expect_heals(self, party: SIPParty) -> None:
        """Check every session at rest against :data:`HEAL_RTT_MAX`, unless the peer must challenge the mover first."""
        for id, session in party.sessions.items():
            peer = self._by_uri[session.remote_uri]
            challenged = session.created_here and all(s.remote_uri == peer.uri for s in party.sessions.values())
            at_rest = party.talks_to(peer, id) and peer.talks_to(party, id)
            if at_rest and (challenged or not peer.manner.authenticates):
                self._moved_at[party.name, id] = self.world.now
                self.world.after(1.0, lambda id=id: self._check_healed(party, id))  # type: ignore[misc]

    def _check_healed(self, party: SIPParty, id: str) -> None:
        if self._moved_at.pop((party.name, id), None) is not None:
            self.problems.append(f"{party.name}: a second after an undisturbed move session {id} has not healed")

    def _established(self, party: SIPParty, id: str, update: bool) -> None:
        """Measure the duration of a move, once both sides know it."""
        moved_at = self._moved_at.pop((party.name, id), None)
        if moved_at is None or not update:
            return
        peer = self._by_uri[party.sessions[id].remote_uri]
        round_trips = (self.world.now - moved_at) / (2 * self.network.conditions.delay_max_s)
        self.heals += 1
        self.heal_rtt = max(self.heal_rtt, round_trips)
        if round_trips > HEAL_RTT_MAX or not peer.talks_to(party, id):
            self.problems.append(f"{party.name}: session {id} took {round_trips:.2f} round trips to heal")
