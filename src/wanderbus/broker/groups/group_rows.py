"""Channel groups that move between leaders, and what is known of their publishers (SPEC J-08; decision 0143)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from wanderbus import records
from wanderbus.broker.state.exported_session import decode_publishers, published_elsewhere
from wanderbus.broker.state.rows import GroupRow, LedRange, PublisherRow, decentralised_key
from wanderbus.broker.state.tables import RowTable, Stored
from wanderbus.epochs import EARLIER_MAX

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState


class GroupMoves:
    """Rows of the groups that have moved or are about to, and rows of their publishers.

    The numbers of a publisher are common to all channels. At a server that leads a group which has moved, the row of
    the group alone says whether a publish is a repeat; it moves on with the group.
    """

    def __init__(self) -> None:
        self.rows: RowTable[GroupRow] = RowTable("groups", GroupRow)
        self._publishers: RowTable[PublisherRow] = RowTable("group_publishers", PublisherRow)

    @property
    def tables(self) -> tuple[Stored, ...]:
        """Return both tables."""
        return self.rows, self._publishers

    def row(self, group: int) -> GroupRow:
        """Return the row of a group; one that has not moved has that of a new domain."""
        return self.rows.get(str(group)) or GroupRow()

    def items(self) -> list[tuple[int, GroupRow]]:
        """Return number and row of each group that has moved, or is about to."""
        return [(int(key), row) for key, row in self.rows.items()]

    def has_moved(self, group: int) -> bool:
        """Return whether a group has another leader than the one in the domain's file, or had one."""
        return bool(self.row(group).leader)

    # Publishers -------------------------------------------------------------------------------------------------

    @property
    def publishers(self) -> Iterator[str]:
        """Keys of the publishers of all groups; one of several groups is repeated."""
        return (key.partition(" ")[2] for key in self._publishers)

    def publisher(self, group: int, publisher: str) -> PublisherRow | None:
        """Return what is known of the publisher with this key in a group that has moved."""
        return self._publishers.get(_key(group, publisher))

    def put_publisher(self, group: int, publisher: str, row: PublisherRow) -> None:
        """Remember what a publisher has published to a group."""
        self._publishers.put(_key(group, publisher), row)

    def drop_publisher(self, publisher: str) -> None:
        """Forget a publisher in all groups."""
        for group in self.rows:
            self._publishers.drop(_key(int(group), publisher))

    def knows(self, publisher: str) -> bool:
        """Return whether a publisher is known in some group."""
        return any(_key(int(group), publisher) in self._publishers for group in self.rows)

    def publishers_of(self, state: BrokerState, group: int) -> dict[str, PublisherRow]:
        """Return what this leader knows of the publishers of a group, as its next leader needs it, by key."""
        if self.has_moved(group):
            begin = _key(group, "")
            found = {key.removeprefix(begin): row for key, row in self._publishers.items() if key.startswith(begin)}
        else:
            found = {key: row for key, row in state.publishers.items() if not key.endswith(decentralised_key(""))}
        return {key: published_elsewhere(state, row) for key, row in found.items()}

    def _forget_publishers(self, group: int) -> None:
        begin = _key(group, "")
        for key in [each for each in self._publishers if each.startswith(begin)]:
            self._publishers.drop(key)

    # Records ----------------------------------------------------------------------------------------------------

    def apply(self, state: BrokerState, offset: int, record: records.OfGroups) -> None:
        """Apply a record at ``offset``."""
        group, row = record.group, self.row(record.group)
        match record:
            case records.GroupPrepared(target=target, forced=forced):
                self._put(group, msgspec.structs.replace(row, target=target, is_forced=forced))
            case records.GroupStays(is_reset=is_reset):
                if row.leader != state.server or is_reset:
                    self._forget_publishers(group)
                stays = msgspec.structs.replace(row, target="", is_forced=False)
                self._put(group, GroupRow() if is_reset else stays)
            case records.GroupPublishersTaken(publishers=publishers, is_first=is_first):
                if is_first:
                    self._forget_publishers(group)
                for publisher, published in decode_publishers(publishers).items():
                    self.put_publisher(group, publisher, published)
            case records.GroupMoved():
                if record.server != state.server:
                    self._forget_publishers(group)
                self._put(group, _moved(state.server, row, offset, record))

    def _put(self, group: int, row: GroupRow) -> None:
        if row == GroupRow():
            self.rows.drop(str(group))
        else:
            self.rows.put(str(group), row)


def _moved(here: str, row: GroupRow, offset: int, record: records.GroupMoved) -> GroupRow:
    """Return the row of a group that has moved, at the server ``here``."""
    led = row.led
    if (row.leader or record.former) == here:
        led = (*led, LedRange(row.epoch, row.since, offset))[-EARLIER_MAX:]
    return GroupRow(
        record.server,
        record.epoch,
        record.former,
        record.servers,
        offset,
        forced_epoch=record.epoch if record.forced else row.forced_epoch,
        earlier=record.earlier,
        led=led,
    )


def _key(group: int, publisher: str) -> str:
    return f"{group} {publisher}"
