"""Events of a channel from a simulated disk, as a server reads them from its log (SPEC K-03)."""

from __future__ import annotations

from wanderbus.broker.history.piece import read_piece
from wanderbus.broker.messages import EventsRead, EventsWanted, HistoryWanted
from wanderbus.segments import Frame
from wanderbus.simulation.disk import Disk
from wanderbus.subscription import Subscription


def read_events(disk: Disk, log_begins: int, wanted: EventsWanted) -> EventsRead:
    """Return the answer from a disk that keeps the records from ``log_begins`` on for readers."""
    first = max(wanted.first, log_begins)
    every = Subscription("", "", "", wanted.subjects[0], "")
    place = wanted.server, wanted.incarnation, first, max(first, wanted.end)
    asked = HistoryWanted(0, every, *place, wanted.events_max, wanted.bytes_max, 2**20, wanted.subjects)
    piece = read_piece(asked, (Frame(*entry, 0) for entry in disk.log[first : wanted.end]))
    own = tuple(each for each in piece.events if each.user)
    return EventsRead(wanted.reading, piece.end, first if first > wanted.first else 0, own)
