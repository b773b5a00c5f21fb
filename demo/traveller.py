"""A traveller's process: a user who subscribes, reads notifications, and stores each with its position.

It resumes at the last position that it committed, so neither being switched off nor ``kill -9`` loses or repeats
anything. Orders: ``{"do": "rebind", "address": A}`` (use A from now on), ``{"do": "take_session", "to": DOMAIN}`` (move
the session there), ``{"do": "stop"}``. Reports: ``ready`` once every subscription is durable, ``taken`` (how many were
committed so far), ``status`` with ``address``, ``session_at`` once the session has moved to a domain, and
``session_stays`` with the reason each time it has not.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import wanderbus
from demo.json_lines import orders, report, wall_us
from demo.traveller_results import Results

REPORT_EVERY_S: Final = 0.25

CONNECT_S_MAX: Final = 60.0
"""Ten processes start at once, perhaps on a slow machine, and a session may have to move first."""

NEXT_ATTEMPT_S: Final = 1.0
"""Pause after a move of the session that another domain or the own one has refused."""


class Traveller:
    """One life of a traveller over its results, which are older than that life if it was switched off or killed."""

    def __init__(self, results: Results, agent: wanderbus.Agent) -> None:
        self._results = results
        self._agent = agent
        self._domains = asyncio.Queue[str]()
        """Domains to which the session is to move."""

    async def live(self, wanted: list[tuple[str, str]]) -> None:
        """Subscribe to each subject and filter, take notifications and follow orders until the order to stop."""
        subscriptions = [self._agent.subscribe(subject, text, keep=True, gaps=True) for subject, text in wanted]
        async with self._agent.merged(*subscriptions) as items:
            report(ready=True)
            work = (self._take(items), self._journal(), self._report_counts(), self._move_session(), self._obey())
            tasks = [asyncio.create_task(each) for each in work]
            done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            for task in done:
                task.result()
        report(taken=self._results.count())

    async def _take(self, items: AsyncIterator[wanderbus.Notification | wanderbus.Gap]) -> None:
        async for item in items:
            self._keep(item)

    def _keep(self, item: wanderbus.Notification | wanderbus.Gap) -> None:
        """Commit a result with its position, before the next one is read."""
        if isinstance(item, wanderbus.Gap):
            self._results.note(wall_us(), "gap", reason=f"{item.count}: {item.reason}")
            return
        position = (item.position.epoch, item.position.number)
        row = item.event["Row"]
        assert isinstance(row, int)
        counts = len(item.subscriptions), item.redelivered
        origin = item.event.origin.origin.partition("/")[0] if item.event.origin else ""
        self._results.take(item.event.subject, row, wall_us(), position, *counts, origin)

    async def _journal(self) -> None:
        self._note(wall_us(), self._agent.status, "", "as it subscribed")
        async for change in self._agent.changes():
            self._note(change.at_us, change.status, change.address or "", change.reason or "")

    def _note(self, at_us: int, status: str, address: str, reason: str) -> None:
        self._results.note(at_us, status, address, reason)
        report(status=status, address=address, reason=reason)

    async def _report_counts(self) -> None:
        while True:
            report(taken=self._results.count())
            await asyncio.sleep(REPORT_EVERY_S)

    async def _move_session(self) -> None:
        """Move the session to each domain in turn, trying again until it is there."""
        while True:
            domain = await self._domains.get()
            while True:
                try:
                    await self._agent.handover(domain)
                except wanderbus.WanderbusError as error:
                    report(session_stays=str(error))
                    await asyncio.sleep(NEXT_ATTEMPT_S)
                else:
                    report(session_at=domain)
                    break

    async def _obey(self) -> None:
        async for order in orders():
            if order.get("do") == "rebind":
                await self._agent.rebind(order["address"])
            elif order.get("do") == "take_session":
                self._domains.put_nowait(order["to"])
            elif order.get("do") == "stop":
                return


async def main(config: Mapping[str, Any]) -> None:
    """Open the results, resume from their end, live, and disconnect."""
    with Results(Path(config["results"])) as results:
        results.note(wall_us(), "started")
        position = results.position()
        async with wanderbus.connect(
            config["user"],
            password=config["password"],
            server=config["server"],
            broker=config["broker"],
            transport=config["transport"],
            ca_file=config["ca_file"],
            state_dir=Path(config["state_dir"]),
            resume=wanderbus.Position(*position) if position else None,
            local_address=config["local_address"],
            connect_s_max=CONNECT_S_MAX,
        ) as agent:
            await Traveller(results, agent).live(config["subscriptions"])
        results.note(wall_us(), "stopped")


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
