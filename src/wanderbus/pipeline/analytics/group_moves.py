"""Moves of channel groups from leader to leader, by the records of all logs (SPEC J-08, T-08).

The log of the server that decides about a move has its begin and its end. That is the present leader, or the next one
if the present one is gone. The log of the next leader says when it began to lead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.analytics.arrow_columns import arrow_columns
from wanderbus.pipeline.lake_offsets import NUMBER_SHIFT
from wanderbus.records import AnyRecord, GroupMoved, GroupPrepared, GroupStays, decode_record

GROUP_MOVE: Final = (
    "channel_group bigint, epoch bigint, source string, target string, is_forced boolean, begun_us bigint, "
    "paused_us bigint, moved_us bigint, adopted_us bigint, stayed_us bigint, waited bigint, publishers bigint"
)
_SCHEMA: Final = arrow_columns(GROUP_MOVE)


class GroupMove(msgspec.Struct, kw_only=True):
    """One attempt to move a group; each time is by the clock of the server whose step it is, None if no log says it."""

    channel_group: int
    epoch: int
    source: str
    target: str
    is_forced: bool
    begun_us: int | None = None
    paused_us: int | None = None
    moved_us: int | None = None
    adopted_us: int | None = None
    stayed_us: int | None = None
    waited: int | None = None
    publishers: int | None = None


class GroupMoves:
    """Moves of all groups, from the records of one log after the other."""

    def __init__(self) -> None:
        self.stayed: list[GroupMove] = []
        """Moves that were given up."""
        self._begun: dict[tuple[str, int], GroupMove] = {}
        """The move of each group that a server has begun, and has not ended yet."""
        self._moved: dict[tuple[int, int], GroupMove] = {}
        """Moves by their group and epoch."""

    def take(self, server: str, record: AnyRecord) -> None:
        """Take the next record in the log of a server."""
        match record:
            case GroupPrepared(group=group, epoch=epoch, leader=source, target=target, forced=forced):
                if server == (target if forced else source):
                    self._begun[server, group] = GroupMove(
                        channel_group=group,
                        epoch=epoch,
                        source=source,
                        target=target,
                        is_forced=forced,
                        begun_us=record.at_us,
                    )
            case GroupStays(group=group):
                if (move := self._begun.pop((server, group), None)) is not None:
                    move.stayed_us = record.at_us
                    self.stayed.append(move)
            case GroupMoved(group=group):
                self._on_moved(server, record, self._begun.pop((server, group), None))

    def _on_moved(self, server: str, record: GroupMoved, begun: GroupMove | None) -> None:
        decides = record.server if record.forced else record.former
        if server not in (decides, record.server):
            return
        move = self._moved.setdefault(
            (record.group, record.epoch),
            GroupMove(
                channel_group=record.group,
                epoch=record.epoch,
                source=record.former,
                target=record.server,
                is_forced=record.forced,
            ),
        )
        if server == decides:
            move.begun_us = None if begun is None else begun.begun_us
            move.moved_us, move.paused_us = record.at_us, record.paused_us
            move.waited, move.publishers = record.waited, record.publishers
        if server == record.server:
            move.adopted_us = record.at_us

    def rows(self) -> Iterator[GroupMove]:
        """Yield all moves, those that have not ended last."""
        yield from self.stayed
        yield from self._moved.values()
        yield from self._begun.values()


def group_moves(records: DataFrame, servers: Mapping[int, str]) -> DataFrame:
    """Return one row for each move of a channel group, of the bronze ``records`` of all logs.

    Domains have groups of the same numbers, so the moves of each are known by themselves.

    :param servers: name of the server of each log, by the number of the log; of several lakes after its domain
    """
    chosen = records.where(F.col("kind").isin("group_prepared", "group_stays", "group_moved"))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        moves: dict[str, GroupMoves] = {}
        for batch in batches:
            for offset, payload in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                home, separator, server = servers[offset >> NUMBER_SHIFT].rpartition("/")
                moves.setdefault(f"{home}{separator}", GroupMoves()).take(server, decode_record(payload))
        yield _batch(_after_home(move, home) for home, its in moves.items() for move in its.rows())

    in_order = chosen.select("offset", "record").coalesce(1).sortWithinPartitions("offset")
    found = in_order.mapInArrow(work, GROUP_MOVE)
    outcome = F.when(F.col("stayed_us").isNotNull(), "stayed").when(F.col("adopted_us").isNull(), "under_way")
    pause = F.col("adopted_us") - F.col("paused_us")
    return found.select(
        *("channel_group", "epoch", "source", "target", "is_forced", outcome.otherwise("moved").alias("outcome")),
        F.coalesce("begun_us", "moved_us", "adopted_us").alias("begun_us"),
        *("paused_us", "moved_us", "adopted_us", "stayed_us"),
        F.when(pause < 0, 0).otherwise(pause).alias("pause_us"),
        *("waited", "publishers"),
    )


def _after_home(move: GroupMove, home: str) -> GroupMove:
    return msgspec.structs.replace(move, source=f"{home}{move.source}", target=f"{home}{move.target}")


def _batch(rows: Iterable[GroupMove]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([msgspec.structs.asdict(each) for each in rows], schema=_SCHEMA)
