"""A lake, or the log that it is made of, restored from copies that were taken while the job that fills it ran.

The lake then has exactly the events of the log, or the job refuses with an error, after which a new lake begins.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random
from typing import Final

from faults.lake_log import SEGMENT_BYTES, START_US, USERS
from faults.restoring.copies import copy_plainly, put_back
from faults.restoring.kind import Tried
from harness.lakes import values_of
from tests.published import published
from wanderbus.errors import WanderbusError
from wanderbus.event import Event, EventId
from wanderbus.pipeline.lake import ingest
from wanderbus.pipeline.lake.log_identity import log_identity
from wanderbus.pipeline.lake.logs import add_logs
from wanderbus.pipeline.session import spark_session
from wanderbus.pipeline.tables.silver import EVENTS
from wanderbus.records import Published, Record, Started, decode_record, encode_record
from wanderbus.runtime.log.event_log import EventLog

BURST_MAX: Final = 30
LOG_SHARE: Final = 0.5
"""Share of the points that restore the log; the others restore the lake."""
COPY_AFTER_S_MAX: Final = 2.0
Row = tuple[object, ...]
"""Offset and number of an event."""

SERVER: Final = "wb"
INCARNATION: Final = 7


class LakeWorld:
    """A log, a lake, and a Spark session, which the worlds of a process share."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.tried = Tried()
        self.random = random
        self.directory = directory
        self._log = directory / "data" / "log"
        self._lakes = 0
        self._last = 0
        """Number of the last event of all histories."""
        self._begin_lake()

    async def run(self, points: int) -> Tried:
        """Try ``points`` points; return what was found."""
        self._log.parent.mkdir(parents=True)
        self._write(Started(at_us=START_US, server=SERVER, incarnation=INCARNATION))
        self._spark = await asyncio.to_thread(spark_session, "wanderbus-restore")
        for _ in range(points):
            await self._try_point()
            self.tried.points += 1
        return self.tried

    def _begin_lake(self) -> None:
        self._lakes += 1
        self._lake = self.directory / f"lake-{self._lakes}"

    async def _try_point(self) -> None:
        random = self.random
        place = self._log.parent if random.random() < LOG_SHARE else self._lake
        self._publish()
        if place is self._lake and not self._lake.exists():
            await self._ingest()
            self._publish()
        copy = self.directory / f"copy-{self.tried.points}"
        await asyncio.gather(self._ingest(), self._copy(place, copy))
        self._publish()
        await self._ingest()
        present = place.with_name("present")
        place.rename(present)
        put_back(copy, place)
        self.tried.figures["logs" if place != self._lake else "lakes"] += 1
        for _ in range(random.randint(0, 2)):
            self._publish()
        await self._judge()
        shutil.rmtree(present)
        shutil.rmtree(copy)

    async def _copy(self, place: Path, copy: Path) -> None:
        await asyncio.sleep(self.random.uniform(0, COPY_AFTER_S_MAX))
        await asyncio.to_thread(copy_plainly, place, copy, self.random)

    async def _ingest(self) -> None:
        add_logs(self._lake, [log_identity(self._log)])
        await asyncio.to_thread(ingest, self._spark, self._log, self._lake, self._lake / "_checkpoint")

    async def _judge(self) -> None:
        """Bring the lake up to the log, and compare; a refusal is right, since it names the way out."""
        try:
            await self._ingest()
        except WanderbusError:
            self.tried.figures["refused"] += 1
            self._begin_lake()
            return
        written, found = self._of_log(), self._of_lake()
        if lost := written - found:
            self.tried.lost(len(lost), f"point {self.tried.points}: the lake lacks events {sorted(lost, key=repr)[:4]}")
        if more := found - written:
            self.tried.broken(
                f"point {self.tried.points}: the lake has {sorted(more, key=repr)[:4]}, which the log lacks"
            )
        if lost or more:
            self._begin_lake()

    def _of_log(self) -> set[Row]:
        """Return offset and number of every event in the log."""
        log = EventLog.open(self._log, segment_bytes_max=SEGMENT_BYTES)
        try:
            records = [(frame.offset, decode_record(frame.payload)) for frame in log.read()]
        finally:
            log.close()
        return {(offset, each.acceptance.number) for offset, each in records if isinstance(each, Published)}

    def _of_lake(self) -> set[Row]:
        """Return offset and number of every event in the lake."""
        return set(values_of(self._lake, EVENTS, ("offset", "device_number")))

    def _publish(self) -> None:
        """Write events, each with a number that no other has."""
        count = self.random.randint(1, BURST_MAX)
        self._write(*range(self._last + 1, self._last + 1 + count))
        self._last += count

    def _write(self, *records: Record | int) -> None:
        """Write records; a number stands for the event with this number."""
        log = EventLog.open(self._log, segment_bytes_max=SEGMENT_BYTES)
        try:
            entries = enumerate(records, log.next_offset)
            made = [(offset, _event(offset, each) if isinstance(each, int) else each) for offset, each in entries]
            log.append([(offset, START_US, encode_record(record)) for offset, record in made])
            log.sync()
        finally:
            log.close()


def _event(offset: int, number: int) -> Record:
    identity = EventId(SERVER, INCARNATION, offset)
    return published(Event("Departure", {"n": number}, START_US), id=identity, user=USERS[0], number=number)
