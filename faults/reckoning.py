"""Comparison of what a crash run has left behind with what was acknowledged."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from faults.agents import DOMAIN, INTERESTS, Role, lines_of
from faults.verdict import Kind, Verdict, check_order, check_publishes, check_state, folded
from wanderbus.broker.state.state import BrokerState
from wanderbus.errors import StorageError, WanderbusError
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import Published, decode_record
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.log.log_check import check_log
from wanderbus.runtime.segment_files import segment_paths
from wanderbus.segments import HEADER, frames


class Logged(NamedTuple):
    """An event of the log: its offset, its publisher, and its number there."""

    offset: int
    by: str
    n: int


def published(payloads: Sequence[bytes]) -> list[Logged]:
    """Return the events of a log from its first record on."""
    decoded = enumerate(map(decode_record, payloads))
    return [
        Logged(offset, event.attributes["by"], event.attributes["n"])
        for offset, record in decoded
        if isinstance(record, Published) and (event := record.event)
    ]


def payloads_now(log: Path, first: int = 0) -> list[bytes]:
    """Return every complete record from offset ``first`` on of a log that a server may be writing."""
    return [
        frame.payload
        for path in segment_paths(log)
        for frame in frames(_content(path), len(HEADER))
        if frame.offset >= first
    ]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""  # the server has just removed it, so all its records were read before


def due(role: Role, events: Sequence[Logged]) -> list[int]:
    """Return the offsets of the events that a consumer must receive."""
    assert role.interest is not None
    matches = INTERESTS[role.interest].matches
    return [event.offset for event in events if matches(event.n)]


def acknowledged(role: Role) -> dict[int, int]:
    """Return the offsets that were acknowledged to a publisher, by number."""
    return {int(words[1]): int(words[2]) for words in lines_of(role.journal) if words[0] == "acknowledged"}


def reckon(
    verdict: Verdict,
    data: Path,
    publishers: Sequence[Role],
    consumers: Sequence[Role],
    archived: Sequence[bytes] = (),
    *,
    is_settled: bool = True,
) -> Mapping[str, int]:
    """Compare; differences go to ``verdict``. Return the totals.

    ``archived`` are the first records of the log, of which some may be removed from it. Unless ``is_settled``, agents
    had no time to take everything: what the server still holds for them is waiting, not lost.
    """
    try:
        first, payloads, state = _files(verdict, data, archived)
    except WanderbusError as error:
        verdict.broken("integrity_errors", f"the server's files cannot be opened: {error}")
        return {}
    check_publishes(verdict, payloads)
    events = published(payloads)
    for role in publishers:
        _check_publisher(verdict, role, [event for event in events if event.by == role.device])
    wanted = {role.device: due(role, events) for role in consumers}
    waiting = {
        role.device: set[int]() if is_settled else _waiting(state, role, wanted[role.device]) for role in consumers
    }
    taken = sum(_check_consumer(verdict, role, wanted[role.device], waiting[role.device]) for role in consumers)
    answered = sum(len(acknowledged(role)) for role in publishers)
    seams = sum(_seams(role) for role in consumers if role.is_hybrid)
    totals = {"records": len(payloads), "removed": first, "events": len(events), "acknowledged": answered}
    return totals | {"taken": taken, "waiting": sum(map(len, waiting.values())), "seams": seams}


def _waiting(state: BrokerState, role: Role, wanted: Sequence[int]) -> set[int]:
    """Return the offsets of the events that a consumer has not taken, and that the server still holds for it.

    They wait in a queue, or for the matching engine. A consumer of the past reads the log behind its last event.
    """
    taken = _taken(role)
    if role.is_hybrid:
        last = max(taken, default=-1)
        return {offset for offset in wanted if offset > last}
    queues = (state.queue.get(session.key) for session in state.sessions_of(f"sip:{role.user}@{DOMAIN}"))
    held = {queued.event.id.number for queue in queues if queue is not None for queued in queue}
    server = state.servers[state.server]
    unmatched = range(server.engine_next, server.engine_end)
    return {offset for offset in wanted if offset in held or offset in unmatched}.difference(taken)


def _files(verdict: Verdict, data: Path, archived: Sequence[bytes]) -> tuple[int, list[bytes], BrokerState]:
    """Check log and state as they are and after the recovery of a start.

    Return the offset of the log's first record, all records from offset 0 on, and the state.
    """
    for damage in check_log(data / "log").damage:
        verdict.broken("integrity_errors", damage)
    files = ServerFiles.open(data)
    try:
        remembered = BrokerConfig().publishes_remembered
        (state,) = files.load_states(lambda: [BrokerState(files.identity.server, remembered)])
        first, kept = files.log.oldest_offset, [frame.payload for frame in files.log.read()]
    finally:
        files.close()
    if first > len(archived):
        raise StorageError(f"records {len(archived)} to {first - 1} were removed before they were read")
    if kept[: len(archived) - first] != list(archived[first : first + len(kept)]):
        verdict.broken("integrity_errors", f"the log from record {first} on is not what was read from it earlier")
    payloads = [*archived[:first], *kept]
    check_state(verdict, state, folded(files.identity.server, remembered, payloads))
    for path in data.glob("state*.db"):
        for found in _integrity(path):
            if found != "ok":
                verdict.broken("integrity_errors", f"{path.name}: {found}")
    return first, payloads, state


def _integrity(path: Path) -> Iterator[str]:
    connection = apsw.Connection(str(path))
    yield from (str(row[0]) for row in connection.execute("PRAGMA integrity_check"))
    connection.close()


def _check_publisher(verdict: Verdict, role: Role, events: Sequence[Logged]) -> None:
    offsets = {event.n: event.offset for event in events}
    answered = acknowledged(role)
    if lost := [n for n, offset in answered.items() if offsets.get(n) != offset]:
        verdict.broken("lost", f"{role.device} received acknowledgements of {lost[:5]}, which the log lacks", len(lost))
    numbers = [event.n for event in events]
    sent = [int(words[1]) for words in lines_of(role.journal) if words[0] == "sent"]
    check_order(verdict, answered, [n for n in numbers if n in answered], f"the events of {role.device} in the log")
    if never := set(numbers) - set(sent):
        verdict.broken("integrity_errors", f"{role.device} never sent {sorted(never)[:5]}", len(never))
    if len(numbers) != len(set(numbers)):
        verdict.broken("repeated", f"events of {role.device} are in the log twice", len(numbers) - len(set(numbers)))


def _taken(role: Role) -> list[int]:
    """Return the offsets of the events that a consumer has taken, in order."""
    return [int(words[3]) for words in lines_of(role.journal) if words[3] != "gap"]


def _check_consumer(verdict: Verdict, role: Role, wanted: Sequence[int], waiting: set[int]) -> int:
    if gaps := [words for words in lines_of(role.journal) if words[3] == "gap"]:
        verdict.broken("lost", f"{role.device} received gaps: {gaps[0]}", len(gaps))
    found = _taken(role)
    kinds: tuple[Kind, Kind] = ("seam_lost", "seam_repeated") if role.is_hybrid else ("lost", "repeated")
    promised = [offset for offset in wanted if offset not in waiting]
    check_order(verdict, promised, found, f"the notifications of {role.device}", kinds)
    return len(found)


def _seams(role: Role) -> int:
    """Return how often a new event followed one of the past."""
    places = [words[5] for words in lines_of(role.journal) if words[3] != "gap"]
    return sum(pair == ("past", "new") for pair in itertools.pairwise(places))
