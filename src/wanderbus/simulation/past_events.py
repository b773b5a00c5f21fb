"""Records of the past from a simulated disk, as a server reads them from its log (SPEC T-05, K-03)."""

from __future__ import annotations

from msgspec import structs

from wanderbus.broker.history.piece import find_position, read_piece
from wanderbus.broker.messages import EventsRead, EventsWanted, HistoryRead, HistoryWanted, OffsetFound, OffsetWanted
from wanderbus.segments import Frame
from wanderbus.simulation.disk import SimulatedDisk
from wanderbus.subscription import Since


def read_events(disk: SimulatedDisk, log_begins: int, wanted: EventsWanted) -> EventsRead:
    """Return the answer from a disk that keeps the records from ``log_begins`` on for readers."""
    piece = wanted.piece
    if wanted.since is not None:
        offset = _offset(disk, wanted.since, log_begins)
        if offset < log_begins:
            return EventsRead(piece.piece, 0, failed=f"the log begins at record {log_begins}", is_lost=True)
        return EventsRead(piece.piece, offset)
    first = max(piece.first, log_begins)
    asked = structs.replace(piece, first=first, end=max(first, piece.end))
    read = read_piece(asked, (Frame(*entry, 0) for entry in disk.log[first : piece.end]))
    own = tuple(each for each in read.events if each.user)
    return EventsRead(piece.piece, read.end, first if first > piece.first else 0, own)


def read_own(disk: SimulatedDisk, wanted: HistoryWanted | OffsetWanted) -> HistoryRead | OffsetFound:
    """Return the answer for a subscription here, for which the log keeps all records that it still has to read."""
    if isinstance(wanted, OffsetWanted):
        if wanted.since.position is None:
            return OffsetFound(wanted.lookup, _offset(disk, wanted.since, 0))
        frames = (Frame(*entry, 0) for entry in disk.log)
        found = find_position(frames, wanted.user, wanted.session, wanted.since.position.number)
        return OffsetFound(wanted.lookup, found, "" if found is not None else "the log has no such position")
    assert wanted.end <= disk.durable, "the piece ends with records that are not durable"
    return read_piece(wanted, (Frame(*entry, 0) for entry in disk.log[wanted.first : wanted.end]))


def _offset(disk: SimulatedDisk, since: Since, log_begins: int) -> int:
    """Return the offset of the first record at a time or behind an event; the first one that is kept otherwise."""
    if since.event is not None:
        return since.event.number + 1
    if since.at_us is None:
        return log_begins
    return next((offset for offset, at_us, _ in disk.log if at_us >= since.at_us), disk.durable)
