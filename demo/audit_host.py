"""Host of the audit: a process that starts Spark beside the run and then does the Spark job."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from demo import json_lines
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.async_processes import AsyncProcess, Crew
from wanderbus.testbed.launch import python

ANALYSIS_S: Final = 300.0
"""Longest time for the reckoning, once everything else has ended: its priority is low, so others may slow it down."""

_NICE: Final = ("nice", "-n", "10")


class AuditHost:
    """Runs :mod:`demo.audit_process`. Spark starts slowly, so it starts early, with a lower priority than the rest."""

    def __init__(self, work: Path, log: Path, crew: Crew, phase: Callable[[str], None]) -> None:
        self._work = work
        self._log = log
        self._crew = crew
        self._phase = phase
        self._child: AsyncProcess | None = None
        self._going = False
        self._reports: dict[str, Any] = {}

    async def start(self) -> None:
        """Start Spark; the job itself waits for :meth:`journeys`."""
        config = {name: str(self._work / name) for name in ("evidence", "lake")}
        path = self._work / "audit.json"
        path.write_text(json.dumps({**config, "log": str(self._log)}))
        self._child = await self._crew.start("audit", [*_NICE, *python("demo.audit_process", str(path))], self._on_line)

    async def journeys(self) -> dict[str, Any]:
        """Run the job and return its result; :class:`CannotRunError` with its error if it fails.

        The log must not change any more, and the evidence must be written.
        """
        if self._child is None:
            await self.start()
        assert self._child is not None
        self._going = True
        self._phase(f"counting: {self._reports.get('phase', 'starting Spark')}")
        self._child.send({"do": "start"})
        if await self._child.wait(ANALYSIS_S) is None:
            raise CannotRunError(f"the Spark job did not end within {ANALYSIS_S:.0f} s")
        await asyncio.sleep(0)
        if "journeys" not in self._reports:
            complaint = self._reports.get("error") or self._child.last_words()
            raise CannotRunError(f"the Spark job failed: {complaint}")
        journeys: dict[str, Any] = self._reports["journeys"]
        return journeys

    def _on_line(self, line: str) -> None:
        fields = json_lines.parse(line) or {}
        self._reports.update(fields)
        if self._going and "phase" in fields:
            self._phase(f"counting: {fields['phase']}")
