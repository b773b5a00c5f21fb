"""The run with a domain of servers: three access servers, to which the users connect, and two resolution servers.

One server of each kind is killed with ``kill -9`` while events flow. There is no Spark: the audit compares what each
traveller took with what the reference evaluator says, and tries whether a lake would take every record of the servers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

from demo import DEPARTURE, DOMAIN
from demo.domain_audit import journeys
from demo.hosts import ServerHost
from demo.plan import Step, plan
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
        place_servers(self._file, {name: Place(network.address(name), port, _roles(name)) for name in self.SERVERS})

    async def _domain_command(self, *arguments: str) -> str:
        """Return the output of ``wanderbus domain``; :class:`CannotRunError` with its last line if it fails."""
        lines: list[str] = []
        child = await self._context.crew.start("domain", python("wanderbus", "domain", *arguments), lines.append)
        if await child.wait(INIT_S) != 0:
            raise CannotRunError(child.last_words())
        return "\n".join(lines)

    def _plan(self) -> list[Step]:
        killed = (ACCESS[1], self._leader)
        return plan(TRAVELLERS, self._options.seed, killed_servers=killed)

    async def _audited(self, evidence: Evidence) -> Mapping[str, Any]:
        logs = [server.data / "log" for server in self._servers.values()]
        quarantined = await asyncio.to_thread(lambda: sum(sum(rejected_on_trial(log).values()) for log in logs))
        return journeys(evidence, self._display.state.published, quarantined)

    async def _look_at_servers(self) -> dict[str, Any]:
        return {"sip": "wanderbus", "relay": "none", "relayed_datagrams": None, "servers": list(self.SERVERS)}

    async def _stop_servers(self) -> None:
        await asyncio.gather(*(server.stop() for server in self._servers.values()))


def _roles(server: str) -> list[str]:
    if server in ACCESS:
        return ["access"]
    return ["resolution", "directory"] if server == RESOLUTION[0] else ["resolution"]
