"""The run with the domains of several airlines, which share their events: travellers want those of all of them.

A traveller stays with the domain of their airline while they fly: each flight changes their address twice. The gateway
of one domain is cut off from all others for ten seconds; the events for it, and its own for others, wait in the queues
of the servers that accepted them. There is no Spark. The audit compares what each traveller took, and what the logs
of their domain have for them, with what the reference evaluator says: each event once, those of one domain in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from demo import SUBJECTS, airlines
from demo.airlines import AIRLINES, CUT_OFF, ORIGINS, Airline, airline_of, carriers_of
from demo.crossings import cut_result, deliveries, domain_result, misnamed
from demo.domain_audit import journeys
from demo.domains_operator import GATEWAY_PORT, CutLink, DomainsOperator, faults
from demo.flights import FlightEvent
from demo.hosts import PublisherHost, ServerHost
from demo.log_audit import audit_logs
from demo.plan import Step, domains_plan
from demo.run import Evidence, Run
from demo.traveller_results import read_taken
from harness.domain_file import Place, place_servers
from harness.federation_files import GatewayPlace, share_types
from wanderbus.pipeline.lake.trial_pass import rejected_on_trial
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.launch import python

INIT_S: Final = 30.0


class DomainsRun(Run):
    """A run whose users are at the domains of their airlines."""

    SERVERS = tuple(server for airline in AIRLINES for server in airline.servers)
    PUBLISHERS = airlines.PUBLISHERS
    TRAVELLERS = airlines.TRAVELLERS

    def _place_servers(self) -> None:
        context = self._context
        self._link = CutLink(context, CUT_OFF, [each for each in AIRLINES if each != CUT_OFF])
        self._files = {airline.domain: self._directory(airline) / "federation.toml" for airline in AIRLINES}
        self._origins: dict[int, str] = {}
        users = [*self.PUBLISHERS, *self.TRAVELLERS]
        # The users of an airline with several servers are spread over them.
        context.home = {
            user.name: (servers := airline_of(user).servers)[users.index(user) % len(servers)] for user in users
        }
        for airline in AIRLINES:
            own = {user.name: context.passwords[user.name] for user in users if airline_of(user) == airline}
            for server in airline.servers:
                self._servers[server] = ServerHost(context, own, self._arguments(airline, server), server)
        self._links = DomainsOperator(context, AIRLINES, self._servers)
        self._display.state.spark, self._display.state.spark_lag = "not used", 0

    def _make_publishers(self) -> Sequence[PublisherHost]:
        return [PublisherHost(self._context, user, carriers_of(airline_of(user))) for user in self.PUBLISHERS]

    def _directory(self, airline: Airline) -> Path:
        return self._context.work / "domains" / airline.domain

    def _arguments(self, airline: Airline, server: str) -> list[str]:
        """Return the arguments of a server; one of several servers is in an event domain, too."""
        context = self._context
        where = ["--host", context.network.address(server), "--port", str(context.sip_port), "--domain", airline.domain]
        name = _name(airline, server)
        if len(airline.servers) > 1:
            where += ["--event-domain", str(self._directory(airline) / "domain.toml"), "--event-server", name]
        gateway = ["--federation-gateway", name] if server == airline.gateway else []
        return [*where, "--federation", str(self._files[airline.domain]), *gateway]

    @property
    def _engine(self) -> str:
        return "domain"

    async def _start_servers(self) -> None:
        assert self._link is not None
        self._display.phase(f"starting {len(self._servers)} servers of {len(AIRLINES)} domains")
        await asyncio.gather(*(self._make_domain(each) for each in AIRLINES if len(each.servers) > 1))
        reached = self._link.reached()
        await asyncio.to_thread(share_types, self._files, self._gateways(), SUBJECTS, reached)
        await asyncio.gather(self._link.start(), *(server.start() for server in self._servers.values()))
        self._display.phase(f"starting {len(self._travellers)} travellers and {len(self._publishers)} publishers")

    def _gateways(self) -> dict[str, GatewayPlace]:
        places = {airline: self._context.network.address(airline.gateway) for airline in AIRLINES}
        return {
            airline.domain: GatewayPlace(_name(airline, airline.gateway), f"{address}:{GATEWAY_PORT}")
            for airline, address in places.items()
        }

    async def _make_domain(self, airline: Airline) -> None:
        """Write the file of an event domain of several servers."""
        directory, context = self._directory(airline), self._context
        words = ["init", str(directory), "--size", str(len(airline.servers)), "--name", airline.domain]
        child = await context.crew.start("domain", python("wanderbus", "domain", *words), lambda line: None)
        if await child.wait(INIT_S) != 0:
            raise CannotRunError(child.last_words())
        places = {
            _name(airline, server): Place(
                context.network.address(server),
                context.sip_port,
                ["access", "resolution", *(["directory"] if server == airline.gateway else [])],
            )
            for server in airline.servers
        }
        place_servers(directory / "domain.toml", places)

    async def _settle(self, events: Sequence[FlightEvent]) -> None:
        self._origins = {attributes["Row"]: ORIGINS[attributes["Carrier"]] for _, attributes in events}
        self._display.phase("waiting until all domains know what the travellers of the others want")
        await self._links.settled()

    def _plan(self) -> list[Step]:
        return domains_plan(self.TRAVELLERS, airlines.PLACES, CUT_OFF.domain, self._options.seed)

    async def _audited(self, evidence: Evidence) -> Mapping[str, Any]:
        assert self._link is not None
        self._display.phase("comparing what came with what was due, and with the logs of all servers", 4)
        due = Counter(line["user"] for line in evidence["expected"])
        published_us: dict[tuple[str, int], int] = {}
        quarantined = 0
        for airline in AIRLINES:
            logs = {_name(airline, server): self._servers[server].data / "log" for server in airline.servers}
            rejected = [await asyncio.to_thread(rejected_on_trial, log) for log in logs.values()]
            quarantined += sum(sum(each.values()) for each in rejected)
            users = {user.uri: due[user.uri] for user in self.TRAVELLERS if airline_of(user) == airline}
            found = await asyncio.to_thread(audit_logs, logs, users)
            self._trouble += found.faults
            # An event that came from another domain has the time of its publisher there as well.
            for event, at_us in found.published_us.items():
                published_us[event] = min(at_us, published_us.get(event, at_us))
        for traveller in self._travellers.values():
            uri = traveller.user.uri
            if wrong := misnamed(uri, read_taken(traveller.results), self._origins):
                self._trouble.append(f"{wrong} notifications of {uri} name a domain that did not publish the event")
        every = deliveries(evidence, published_us, self._origins)
        events = Counter(self._origins[row] for _, row in published_us)
        domains = [domain_result(each.domain, each.servers, every, events[each.domain]) for each in AIRLINES]
        cuts = self._link.cuts
        evidence |= {"cuts": cuts, "deliveries": [each._asdict() for each in every]}
        found_cuts = [cut_result(cut, every) for cut in cuts]
        self._trouble += [
            f"{cut['passed']} notifications came to or from {cut['domain']} while it was cut off"
            for cut in found_cuts
            if cut["passed"]
        ]
        self._served |= {"domains": domains, "cuts": found_cuts}
        order = {key: (key[0], self._origins[key[1]]) for key in published_us}
        return journeys(evidence, self._display.state.published, published_us, quarantined, order)

    async def _look_at_servers(self) -> dict[str, Any]:
        self._trouble += faults(await self._links.status())
        return {"sip": "wanderbus", "relay": "none", "relayed_datagrams": None, "servers": list(self.SERVERS)}

    async def _stop_servers(self) -> None:
        assert self._link is not None
        await asyncio.gather(self._link.stop(), *(server.stop() for server in self._servers.values()))


def _name(airline: Airline, server: str) -> str:
    """Return the name of a server in the files of its domain: ``wanderbus domain init`` numbers them."""
    return f"s{airline.servers.index(server) + 1}"
