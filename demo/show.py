"""Execution of the plan: each step when its fraction of the rows has been published."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from demo.hosts import Seat, ServerHost, World
from demo.roaming import Deed, Step

OFF_AT_LEAST_S: Final = 5.0
"""A traveller that is switched off stays off for at least this long, however fast the rows are published."""

SERVER_DOWN_S: Final = 1.0
AGENT_DOWN_S: Final = 1.5
REJOIN_S: Final = 30.0


class Show:
    """Plays a plan with the travellers and the server of a run."""

    def __init__(self, world: World, server: ServerHost, seats: Mapping[str, Seat]) -> None:
        self._world = world
        self._server = server
        self._seats = seats

    async def play(self, steps: Sequence[Step]) -> None:
        """Do every step in turn. A long step continues beside the next ones; all are done when this returns."""
        async with asyncio.TaskGroup() as group:
            doing: dict[str, asyncio.Task[None]] = {}
            for step in steps:
                await self._due(step)
                before = doing.get(step.name)
                doing[step.name] = group.create_task(self._do(step, before))

    async def _due(self, step: Step) -> None:
        scene = self._world.scene
        while scene.published < step.at * scene.rows:
            await asyncio.sleep(0.02)

    async def _do(self, step: Step, before: asyncio.Task[None] | None) -> None:
        """Do one step once the previous one of the same traveller is done."""
        if before is not None:
            await before
        match step.deed:
            case Deed.MOVE:
                await self._seats[step.name].move()
            case Deed.KILL_SERVER:
                await self._server.kill(SERVER_DOWN_S)
            case Deed.SWITCH_OFF:
                await self._seats[step.name].switch_off()
            case Deed.SWITCH_ON:
                await self._switch_on(self._seats[step.name])
            case Deed.KILL:
                await self._seats[step.name].kill()
                await asyncio.sleep(AGENT_DOWN_S)
                await self._seats[step.name].start(REJOIN_S)
                self._world.news(f"{step.name} is restarted and goes on from its last committed position")

    async def _switch_on(self, seat: Seat) -> None:
        await asyncio.sleep(max(0.0, seat.off_since + OFF_AT_LEAST_S - time.monotonic()))
        await seat.start(REJOIN_S)
        self._world.news(f"{seat.person.name} is back after {time.monotonic() - seat.off_since:.1f} s")
