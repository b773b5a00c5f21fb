"""Host of Spark: a process beside the server that matches events, fills the lake, and at the end audits and reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from demo import SPARK_SUBJECTS, SUBJECTS, json_lines
from demo.hosts import RunContext
from demo.network import SPARK
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.async_processes import AsyncProcess
from wanderbus.testbed.launch import python

READY_S: Final = 180.0
"""Longest time until Spark matches."""

ANALYSIS_S: Final = 300.0
"""Longest time for the lake, the audit and the page, once everything else has ended."""


def engines(engine: str) -> dict[str, str]:
    """Return which engine matches each subject, ``broker`` or ``spark``, by the value of ``--engine``."""
    return {subject: "spark" if subject in SPARK_SUBJECTS[engine] else "broker" for subject in SUBJECTS}


class SparkHost:
    """Runs :mod:`demo.spark_process` on the data directory ``data`` of the server.

    The page of the server goes to ``page``; ``phase`` displays what is going on after the run.
    """

    def __init__(
        self, context: RunContext, data: Path, engines: Mapping[str, str], page: Path, phase: Callable[[str], None]
    ) -> None:
        work = context.work
        places = {"data": data, "lake": work / "lake", "evidence": work / "evidence", "page": page}
        self._config = {name: str(path) for name, path in places.items()} | {"engines": dict(engines)}
        self._context = context
        self._phase = phase
        self._subjects = "the arrivals" if engines != dict.fromkeys(engines, "spark") else "all events"
        self._child: AsyncProcess | None = None
        self._matching = asyncio.Event()
        self._began_us = 0
        self._is_finishing = False
        self._reports: dict[str, Any] = {}

    async def start(self) -> None:
        """Start it, without waiting until it is ready."""
        path = self._context.work / "spark.json"
        path.write_text(json.dumps(self._config))
        self._began_us = json_lines.wall_us()
        self._matching.clear()
        self._context.state.spark, self._context.state.spark_lag = "starting", None
        command = python("demo.spark_process", str(path))
        self._child = await self._context.crew.start(SPARK, command, self._on_line)

    def match(self) -> None:
        """Let it match the events of the server, which must have started."""
        assert self._child is not None
        self._child.send({"do": "match"})

    async def matching(self) -> None:
        """Wait until it matches; :class:`CannotRunError` with its last log line if it does not."""
        assert self._child is not None
        await self._child.until(self._matching, READY_S)

    async def kill(self) -> None:
        """``kill -9`` it with its Java, start it again, and wait until it matches."""
        assert self._child is not None
        killed_us = json_lines.wall_us()
        self._context.kills.append({"who": SPARK, "at_us": killed_us})
        self._context.news(f"kill -9 {self._child.pid}: Spark is dead, and {self._subjects} wait in the log")
        await self._child.kill()
        await self.start()
        self.match()
        try:
            await self.matching()
        finally:
            self._context.outages.append({"who": SPARK, "from_us": killed_us, "to_us": json_lines.wall_us()})

    async def journeys(self) -> dict[str, Any]:
        """Let it complete the lake and compute; return the journeys, or :class:`CannotRunError` with its error.

        The log must not change any more, and the evidence must be written.
        """
        assert self._child is not None
        self._is_finishing = True
        self._child.send({"do": "finish"})
        if await self._child.wait(ANALYSIS_S) is None:
            raise CannotRunError(f"the Spark job did not end within {ANALYSIS_S:.0f} s")
        await asyncio.sleep(0)
        if "journeys" not in self._reports:
            complaint = self._reports.get("error") or self._child.last_words()
            raise CannotRunError(f"the Spark job failed: {complaint}")
        journeys: dict[str, Any] = self._reports["journeys"]
        return journeys

    def _on_line(self, line: str) -> None:
        fields, state = json_lines.parse(line) or {}, self._context.state
        self._reports.update(fields)
        if "lake" in fields:
            state.lake_records = int(fields["lake"])
        if "matched" in fields:
            state.spark_lag = int(fields["lag"])
            self._on_matched(int(fields["matched"]), fields["age_s"])
        if self._is_finishing and "phase" in fields:
            self._phase(fields["phase"])

    def _on_matched(self, events: int, age_s: float | None) -> None:
        """Show the first batch, whose events may have waited for Spark, and the age of those of each later one."""
        state = self._context.state
        if not self._matching.is_set():
            self._matching.set()
            state.spark = "ready"
            waited = f"; {events} events had waited" if events else ""
            after_s = (json_lines.wall_us() - self._began_us) / 1e6
            self._context.news(f"Spark matches {self._subjects}, {after_s:.1f} s after its start{waited}")
        if age_s is not None:
            state.spark = f"matches within {age_s:.1f} s"
