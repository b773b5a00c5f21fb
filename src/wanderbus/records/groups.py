"""Records of the event log about channel groups that move from one leader to another (SPEC J-08)."""

from __future__ import annotations

from wanderbus.epochs import Leadership
from wanderbus.records.bases import Record


class GroupPrepared(Record, frozen=True, tag="group_prepared", kw_only=True):
    """The server ``target`` is about to lead ``group``, under ``epoch``.

    This server wants the events of the group there too, until :class:`GroupMoved` or :class:`GroupStays`. The present
    ``leader`` decides about the move, or with ``forced`` the target, because the leader is gone.
    """

    group: int
    target: str
    epoch: int
    forced: bool = False
    leader: str = ""


class GroupStays(Record, frozen=True, tag="group_stays", kw_only=True):
    """The ``group`` keeps its leader; with ``is_reset`` that is the one of the domain's file again."""

    group: int
    is_reset: bool = False


class GroupPublishersTaken(Record, frozen=True, tag="group_publishers_taken", kw_only=True):
    """This server, which is about to lead ``group``, knows what ``publishers`` have published to it so far.

    They are opaque outside the broker. With ``is_first`` they replace what was known before.
    """

    group: int
    publishers: bytes
    is_first: bool = False


class GroupMoved(Record, frozen=True, tag="group_moved", kw_only=True):
    """The server ``server`` leads ``group`` under ``epoch``, after ``former``; ``servers`` are all that may lead.

    At the former leader this record is the fence: it accepts no event of the group from here on. The new one accepts
    them from its record on. With ``forced`` the former leader was gone, and the record of the new one is the fence.
    ``earlier`` are all leaders before the new one, in order, at most ``EARLIER_MAX`` of them.

    The fence of a planned move says since when events of the group waited, how many publishes did at the former leader,
    and how many ``publishers`` the next leader knows from it.
    """

    group: int
    server: str
    epoch: int
    former: str
    servers: tuple[str, ...]
    forced: bool = False
    earlier: tuple[Leadership, ...] = ()
    paused_us: int | None = None
    waited: int = 0
    publishers: int = 0


OfGroups = GroupPrepared | GroupStays | GroupPublishersTaken | GroupMoved
"""Records about channel groups that move."""
