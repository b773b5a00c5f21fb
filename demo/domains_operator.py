"""The operators of the airlines: they look at the links between their domains, and one link is cut for a while."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from demo import json_lines
from demo.airlines import Airline
from demo.hosts import READY_S, RunContext, ServerHost
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.async_processes import AsyncProcess
from wanderbus.testbed.launch import python

GATEWAY_PORT: Final = 5900
LINK_PORT: Final = 5901
"""Port at which other gateways reach the gateway whose link can be cut; those above stand for the others."""

CUT_S: Final = 10.0
"""Time for which the link is cut."""

COMMAND_S_MAX: Final = 30.0
REPORT_S_MAX: Final = 5.0
SETTLED_S_MAX: Final = 60.0
LOOK_EACH_S: Final = 0.5

Status = list[dict[str, Any]]
"""The foreign domains of a gateway, as ``wanderbus federation status --json`` shows them."""


class CutLink:
    """The link of the gateway of ``airline`` to those of ``others``; ``cuts`` are the times in which it was cut."""

    def __init__(self, context: RunContext, airline: Airline, others: Sequence[Airline]) -> None:
        self.cuts: list[dict[str, Any]] = []
        self._context = context
        self._airline = airline
        self._others = others
        self._child: AsyncProcess | None = None
        self._ready = asyncio.Event()
        self._mended = asyncio.Event()
        self._dropped = 0

    def reached(self) -> dict[tuple[str, str], str]:
        """Return the addresses at which others reach this gateway, and at which it reaches them: those of the link."""
        here, own = self._context.network.address(self._airline.gateway), self._airline.domain
        to_own = {(other.domain, own): f"{here}:{LINK_PORT}" for other in self._others}
        from_own = {(own, other.domain): f"{here}:{port}" for port, other in self._ports().items()}
        return to_own | from_own

    def _ports(self) -> dict[int, Airline]:
        """Return the ports of the link that stand for other gateways."""
        return dict(enumerate(self._others, LINK_PORT + 1))

    async def start(self) -> None:
        """Start the process that passes datagrams on."""
        context, gateway = self._context, self._airline.gateway
        address_of = context.network.address
        peers = [f"{port}={address_of(other.gateway)}:{GATEWAY_PORT}" for port, other in self._ports().items()]
        words = [address_of(gateway), str(GATEWAY_PORT), str(LINK_PORT), *peers]
        argv = context.network.command(gateway, python("demo.gateway_link", *words))
        self._child = await context.crew.start("gateway-link", argv, self._on_line)
        await self._child.until(self._ready, READY_S)

    async def cut(self, seconds: float = CUT_S) -> None:
        """Cut the link for some seconds."""
        assert self._child is not None
        domain, from_us = self._airline.domain, json_lines.wall_us()
        self._child.send({"do": "cut"})
        self._context.news(f"the gateway of {domain} is cut off from all other domains")
        try:
            await asyncio.sleep(seconds)
        finally:
            self._child.send({"do": "mend"})
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S_MAX):
                    await self._mended.wait()
            self.cuts.append({"who": domain, "from_us": from_us, "to_us": json_lines.wall_us()})
        self._context.news(f"the gateway of {domain} can be reached again; {self._dropped} datagrams were dropped")

    async def stop(self) -> None:
        """End the process."""
        if self._child is not None:
            await self._child.end(1.0)

    def _on_line(self, line: str) -> None:
        fields = json_lines.parse(line) or {}
        if "ready" in fields:
            self._ready.set()
        if "cut" in fields:
            self._dropped = int(fields["dropped"])
            (self._mended.clear if fields["cut"] else self._mended.set)()


class DomainsOperator:
    """Asks the gateways of all airlines about their links; ``servers`` are by host."""

    def __init__(self, context: RunContext, airlines: Sequence[Airline], servers: Mapping[str, ServerHost]) -> None:
        self._context = context
        self._airlines = airlines
        self._servers = servers

    async def settled(self) -> None:
        """Wait until each domain has the filters of all others, and no more come; :class:`CannotRunError` if not."""
        until, before = time.monotonic() + SETTLED_S_MAX, dict[str, Status]()
        while True:
            found = await self.status()
            if found == before and all(is_settled(rows) for rows in found.values()):
                return
            if time.monotonic() > until:
                waiting = [domain for domain, rows in found.items() if not is_settled(rows)]
                raise CannotRunError(f"the links of {', '.join(waiting) or 'all domains'} have not settled")
            before = found
            await asyncio.sleep(LOOK_EACH_S)

    async def status(self) -> dict[str, Status]:
        """Return the foreign domains of each domain."""
        rows = await asyncio.gather(*map(self._status_of, self._airlines))
        return {airline.domain: own for airline, own in zip(self._airlines, rows, strict=True)}

    async def _status_of(self, airline: Airline) -> Status:
        lines: list[str] = []
        data = str(self._servers[airline.gateway].data)
        command = python("wanderbus", "federation", "status", "--data-dir", data, "--json")
        argv = self._context.network.command(airline.gateway, command)
        child = await self._context.crew.start(f"status-{airline.gateway}", argv, lines.append)
        # The status is 1 while a link is missing.
        if await child.wait(COMMAND_S_MAX) not in (0, 1) or not lines:
            child.kill_now()
            raise CannotRunError(
                f"the gateway of {airline.domain} does not say how its links are: {child.last_words()}"
            )
        return [json.loads(line) for line in lines]


def is_settled(rows: Status) -> bool:
    """Return whether a gateway has links to all foreign domains, and their filters count at all its servers."""
    return bool(rows) and all(
        row["is_linked"] and row["is_settled"] and row["filters"] and not row["awaited"] for row in rows
    )


def faults(status: Mapping[str, Status]) -> list[str]:
    """Return a line for each domain that lost or refused events of another one."""
    return [
        f"{domain} has {row[what]} events of {row['domain']} as {what.replace('_', ' ')}"
        for domain, rows in status.items()
        for row in rows
        for what in ("lost", "refused", "not_received")
        if row[what]
    ]
