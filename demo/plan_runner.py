"""Execution of the plan: each step when its fraction of the events has been published."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from demo import DEPARTURE
from demo.domain_operator import DomainOperator
from demo.domains_operator import CutLink
from demo.hosts import RunContext, ServerHost, TravellerHost
from demo.plan import Action, Step
from demo.spark_host import SparkHost

OFF_AT_LEAST_S: Final = 5.0
"""A traveller that is switched off stays off for at least this long, however fast the events are published."""

SERVER_DOWN_S: Final = 1.0
AGENT_DOWN_S: Final = 1.5
REJOIN_S: Final = 60.0
"""Longest time until a traveller is back; the session of one who calls another domain moves there first."""


class PlanRunner:
    """Plays a plan with the travellers, the servers, and the Spark of a run, the operator of its domain or the link of
    one of its domains.
    """

    def __init__(
        self,
        context: RunContext,
        servers: Mapping[str, ServerHost],
        spark: SparkHost | None,
        travellers: Mapping[str, TravellerHost],
        operator: DomainOperator | None = None,
        link: CutLink | None = None,
    ) -> None:
        self._context = context
        self._servers = servers
        self._spark = spark
        self._travellers = travellers
        self._operator = operator
        self._link = link

    async def play(self, steps: Sequence[Step]) -> None:
        """Do every step in turn. A long step continues beside the next ones; all are done when this returns."""
        async with asyncio.TaskGroup() as group:
            doing: dict[str, asyncio.Task[None]] = {}
            for step in steps:
                await self._due(step)
                # A traveller goes on while the session moves.
                target = f"session of {step.name}" if step.action is Action.TAKE_SESSION else step.name
                before = [doing[each] for each in (step.name, target) if each in doing]
                doing[target] = group.create_task(self._do(step, before))

    async def _due(self, step: Step) -> None:
        state = self._context.state
        while state.published < step.at * state.events:
            await asyncio.sleep(0.02)

    async def _do(self, step: Step, before: Sequence[asyncio.Task[None]]) -> None:
        """Do one step once the previous ones of the same target are done."""
        for each in before:
            await each
        if self._operator is not None:
            match step.action:
                case Action.DRAIN:
                    await self._operator.drain(step.name)
                case Action.END_DRAIN:
                    await self._operator.end_drain(step.name)
                case Action.MOVE_GROUP:
                    await self._operator.move_group(DEPARTURE, step.name, step.to)
        match step.action:
            case Action.MOVE:
                await self._travellers[step.name].move(step.to)
            case Action.CUT:
                assert self._link is not None
                await self._link.cut()
            case Action.KILL_SERVER:
                await self._servers[step.name].kill(SERVER_DOWN_S)
            case Action.KILL_SPARK:
                assert self._spark is not None
                await self._spark.kill()
            case Action.SWITCH_OFF:
                await self._travellers[step.name].switch_off()
            case Action.SWITCH_ON:
                await self._switch_on(self._travellers[step.name], step.to)
            case Action.TAKE_SESSION:
                await self._travellers[step.name].take_session(step.to)
            case Action.KILL:
                await self._travellers[step.name].kill()
                await asyncio.sleep(AGENT_DOWN_S)
                await self._travellers[step.name].start(REJOIN_S)
                self._context.news(f"{step.name} is restarted and goes on from its last committed position")

    async def _switch_on(self, traveller: TravellerHost, domain: str) -> None:
        await asyncio.sleep(max(0.0, traveller.off_since + OFF_AT_LEAST_S - time.monotonic()))
        await traveller.start(REJOIN_S, domain)
        where = f" at {domain}" if domain else ""
        self._context.news(f"{traveller.user.name} is back{where} after {time.monotonic() - traveller.off_since:.1f} s")
