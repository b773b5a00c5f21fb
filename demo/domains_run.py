"""The run with the domains of several airlines, which share their events: travellers want those of all of them.

Each flight changes the address of a traveller twice. Where travellers land, their sessions move to the domain that
serves them there, and home again; one stays with the own domain. The gateway of one domain is cut off from all
others for ten seconds; the events for it, and its own for others, wait in the queues of the servers that accepted
them, and sessions stay until it is back. There is no Spark. The audit compares what each traveller took, and what the
logs of all domains have for them, with what the reference evaluator says: each event once, those of one domain in
order; and the ways of the sessions with the plan.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from demo import airlines
from demo.airlines import AIRLINES, CUT_OFF, ORIGINS, airline_of, carriers_of
from demo.crossings import Stays, cut_result, deliveries, domain_result, misnamed
from demo.domain_audit import journeys
from demo.domains_audit import drawn, handovers, strayed
from demo.domains_files import DomainsFiles, name_of
from demo.domains_operator import CutLink, DomainsOperator, faults
from demo.flights import FlightEvent
from demo.hosts import PublisherHost, ServerHost
from demo.log_audit import LogAudit, audit_logs
from demo.plan import Step, domains_plan
from demo.run import Evidence, Run
from demo.traveller_results import read_taken
from wanderbus.pipeline.lake.trial_pass import rejected_on_trial

HOSTS: Final = {f"{airline.domain}/{name_of(airline, host)}": host for airline in AIRLINES for host in airline.servers}
"""Host of each server, by the name of the server that all domains know."""


class DomainsRun(Run):
    """A run whose users are at the domains of their airlines."""

    SERVERS = tuple(server for airline in AIRLINES for server in airline.servers)
    PUBLISHERS = airlines.PUBLISHERS
    TRAVELLERS = airlines.TRAVELLERS

    def _place_servers(self) -> None:
        context = self._context
        self._link = CutLink(context, CUT_OFF, [each for each in AIRLINES if each != CUT_OFF])
        self._files = DomainsFiles(context, AIRLINES)
        self._origins: dict[int, str] = {}
        users = [*self.PUBLISHERS, *self.TRAVELLERS]
        # The users of an airline with several servers are spread over them.
        context.home = {
            user.name: (servers := airline_of(user).servers)[users.index(user) % len(servers)] for user in users
        }
        for airline in AIRLINES:
            own = {user.name: context.passwords[user.name] for user in users if airline_of(user) == airline}
            for server in airline.servers:
                self._servers[server] = ServerHost(context, own, self._files.arguments(airline, server), server)
        self._links = DomainsOperator(context, AIRLINES, self._servers)
        self._display.state.spark, self._display.state.spark_lag = "not used", 0

    def _make_publishers(self) -> Sequence[PublisherHost]:
        return [PublisherHost(self._context, user, carriers_of(airline_of(user))) for user in self.PUBLISHERS]

    @property
    def _engine(self) -> str:
        return "domain"

    async def _start_servers(self) -> None:
        assert self._link is not None
        self._display.phase(f"starting {len(self._servers)} servers of {len(AIRLINES)} domains")
        several = [airline for airline in AIRLINES if len(airline.servers) > 1]
        await asyncio.gather(*map(self._files.make_event_domain, several))
        await asyncio.to_thread(self._files.share, self._link.reached())
        await asyncio.gather(self._link.start(), *(server.start() for server in self._servers.values()))
        self._display.phase(f"starting {len(self._travellers)} travellers and {len(self._publishers)} publishers")

    async def _settle(self, events: Sequence[FlightEvent]) -> None:
        self._origins = {attributes["Row"]: ORIGINS[attributes["Carrier"]] for _, attributes in events}
        self._display.phase("waiting until all domains know what the travellers of the others want")
        await self._links.settled()

    def _plan(self) -> list[Step]:
        return domains_plan(self.TRAVELLERS, airlines.PLACES, airlines.SERVICES, CUT_OFF.domain, self._options.seed)

    async def _audited(self, evidence: Evidence) -> Mapping[str, Any]:
        assert self._link is not None
        self._display.phase("comparing what came with what was due, and with the logs of all servers", 4)
        due = Counter(line["user"] for line in evidence["expected"])
        logs = {server: self._servers[host].data / "log" for server, host in HOSTS.items()}
        rejected = [await asyncio.to_thread(rejected_on_trial, log) for log in logs.values()]
        quarantined = sum(sum(each.values()) for each in rejected)
        found = await asyncio.to_thread(audit_logs, logs, {user.uri: due[user.uri] for user in self.TRAVELLERS})
        self._trouble += [*found.faults, *strayed(self.TRAVELLERS, self._plan(), found.walks), *self._misnamed(found)]
        published_us = found.published_us
        every = deliveries(evidence, published_us, self._origins, found.walks)
        events = Counter(self._origins[row] for _, row in published_us)
        domains = [domain_result(each.domain, each.servers, every, events[each.domain]) for each in AIRLINES]
        cuts = self._link.cuts
        evidence |= {"cuts": cuts, "deliveries": [each._asdict() for each in every], **drawn(found, HOSTS, due)}
        found_cuts = [cut_result(cut, every) for cut in cuts]
        self._trouble += [
            f"{cut['passed']} notifications came to or from {cut['domain']} while it was cut off"
            for cut in found_cuts
            if cut["passed"]
        ]
        self._served |= {"domains": domains, "cuts": found_cuts, "handovers": handovers(found.walks)}
        order = {key: (key[0], self._origins[key[1]]) for key in published_us}
        return journeys(evidence, self._display.state.published, published_us, quarantined, order)

    def _misnamed(self, found: LogAudit) -> list[str]:
        """Return a line for each traveller who got notifications under the name of a wrong domain."""
        faults = []
        for traveller in self._travellers.values():
            uri, taken = traveller.user.uri, read_taken(traveller.results)
            if count := misnamed(Stays(uri, found.walks), taken, self._origins, found.published_us):
                faults.append(f"{count} notifications of {uri} name a domain that did not publish the event")
        return faults

    async def _look_at_servers(self) -> dict[str, Any]:
        self._trouble += faults(await self._links.status())
        return {"sip": "wanderbus", "relay": "none", "relayed_datagrams": None, "servers": list(self.SERVERS)}

    async def _stop_servers(self) -> None:
        assert self._link is not None
        await asyncio.gather(self._link.stop(), *(server.stop() for server in self._servers.values()))
