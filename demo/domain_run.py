"""The run with a domain of servers: three access servers, to which the users connect, and two resolution servers.

Each change of address takes a traveller into the network of the next access server, and its session follows. One server
of each kind is killed with ``kill -9`` while events flow, one drains, and one channel group moves. There is no Spark.
The audit compares what each traveller took, and what the logs of all servers have for it, with what the reference
evaluator says, and tries whether a lake would take every record of the servers.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from demo import DEPARTURE, DOMAIN
from demo.domain_audit import journeys
from demo.domain_operator import DomainOperator
from demo.hosts import ServerHost
from demo.log_audit import audit_logs, summary
from demo.network import PLACES
from demo.plan import Step, domain_plan
from demo.run import Evidence, Run
from demo.users import PUBLISHER, TRAVELLERS
from harness.domain_file import Place, place_servers
from wanderbus.pipeline.lake.trial_pass import rejected_on_trial
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.launch import python

ACCESS: Final = ("s1", "s2", "s3")
RESOLUTION: Final = ("s4", "s5")
INIT_S: Final = 30.0

_LEADER: Final = re.compile(r"leader (\w+)")


class DomainRun(Run):
    """A run whose users are spread over three access servers; travellers in turn, the publisher at the first."""

    SERVERS = (*ACCESS, *RESOLUTION)

    def _place_servers(self) -> None:
        context, home = self._context, {PUBLISHER.name: ACCESS[0]}
        home |= {user.name: ACCESS[place % len(ACCESS)] for place, user in enumerate(TRAVELLERS)}
        context.home = home
        self._directory = context.work / "domain"
        self._file = self._directory / "domain.toml"
        port = str(context.sip_port)
        for name in self.SERVERS:
            where = ["--host", context.network.address(name), "--port", port, "--domain", DOMAIN]
            arguments = [*where, "--event-domain", str(self._file), "--event-server", name]
            self._servers[name] = ServerHost(context, context.passwords, arguments, name)
        self._operator = DomainOperator(context, self._file, self._servers)
        self._display.state.spark, self._display.state.spark_lag = "not used", 0

    @property
    def _engine(self) -> str:
        return "domain"

    async def _start_servers(self) -> None:
        self._display.phase("starting three access servers and two resolution servers")
        await self._make_domain()
        self._leader = _LEADER.findall(
            await self._domain_command("channels", DEPARTURE, "--event-domain", str(self._file))
        )[0]
        await asyncio.gather(*(server.start() for server in self._servers.values()))
        self._display.news(f"{self._leader} leads the channel of {DEPARTURE}")
        self._display.phase(f"starting {len(self._travellers)} travellers and the publisher")

    async def _make_domain(self) -> None:
        """Write the file of the domain, with the addresses and roles of this network."""
        size = str(len(self.SERVERS))
        await self._domain_command("init", str(self._directory), "--size", size, "--name", DOMAIN)
        network, port = self._context.network, self._context.sip_port
        places = {
            name: Place(network.address(name), port, _roles(name), networks=self._networks(name))
            for name in self.SERVERS
        }
        place_servers(self._file, places)

    def _networks(self, server: str) -> list[str]:
        """Return the addresses near to an access server: each move takes a traveller to the next server."""
        at = self._context.network.address_at
        return [
            f"{at(user.name, place)}/32"
            for number, user in enumerate(TRAVELLERS)
            for place in range(PLACES)
            if ACCESS[(number + place) % len(ACCESS)] == server
        ]

    async def _domain_command(self, *arguments: str) -> str:
        """Return the output of ``wanderbus domain``; :class:`CannotRunError` with its last line if it fails."""
        lines: list[str] = []
        child = await self._context.crew.start("domain", python("wanderbus", "domain", *arguments), lines.append)
        if await child.wait(INIT_S) != 0:
            raise CannotRunError(child.last_words())
        return "\n".join(lines)

    def _plan(self) -> list[Step]:
        leader, (to, *_) = self._leader, [name for name in RESOLUTION if name != self._leader]
        seed = self._options.seed
        return domain_plan(TRAVELLERS, seed, access=ACCESS[1], drained=ACCESS[2], leader=leader, to=to)

    async def _audited(self, evidence: Evidence) -> Mapping[str, Any]:
        assert self._operator is not None
        logs = {name: server.data / "log" for name, server in self._servers.items()}
        quarantined = await asyncio.to_thread(
            lambda: sum(sum(rejected_on_trial(log).values()) for log in logs.values())
        )
        due = Counter(line["user"] for line in evidence["expected"])
        found = await asyncio.to_thread(audit_logs, logs, due)
        self._trouble += found.faults
        homes = [{"user": user.uri, "server": self._context.home[user.name]} for user in TRAVELLERS]
        own = {"drains": self._operator.drains, "group_moves": self._operator.group_moves}
        evidence |= {"homes": homes, "walks": list(found.walks), **own}
        self._served |= {"handovers": summary(found.walks), **{name: len(done) for name, done in own.items()}}
        return journeys(evidence, self._display.state.published, found.published_us, quarantined)

    async def _look_at_servers(self) -> dict[str, Any]:
        return {"sip": "wanderbus", "relay": "none", "relayed_datagrams": None, "servers": list(self.SERVERS)}

    async def _stop_servers(self) -> None:
        await asyncio.gather(*(server.stop() for server in self._servers.values()))


def _roles(server: str) -> list[str]:
    if server in ACCESS:
        return ["access"]
    return ["resolution", "directory"] if server == RESOLUTION[0] else ["resolution"]
