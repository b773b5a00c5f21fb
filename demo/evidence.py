"""Evidence of a run for the audit: four files of JSON lines in one directory.

- ``expected.jsonl`` {"user", "subject", "row"}: what each traveller was due, computed apart (:mod:`demo.expected`);
- ``taken.jsonl`` {"user", "subject", "seq", "row", "at_us"}: what it committed, ``seq`` is the order of committing;
- ``moves.jsonl`` {"user", "moved_us", "healed_us", "address"}: each change of address. A move is healed at the
  traveller's first CONNECTED with the new address after it; null if there was none before the next move;
- ``away.jsonl`` {"user", "from_us", "to_us", "why"}: when a traveller that had been connected was not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from demo.expected import Due
from demo.traveller_results import Entry, Taken

CONNECTED: Final = "CONNECTED"
DISCONNECTED: Final = "DISCONNECTED"


@dataclass(frozen=True)
class Move:
    """``user`` left its old address at ``moved_us`` for ``address``."""

    user: str
    moved_us: int
    address: str


@dataclass(frozen=True)
class PlannedEnd:
    """The run ended the process of ``user`` at ``from_us``, because of ``why``."""

    user: str
    from_us: int
    why: str


@dataclass(frozen=True)
class Away:
    """One time during which a traveller was not connected."""

    from_us: int
    to_us: int
    why: str


def healed_us(move: Move, journal: Sequence[Entry], before_us: int | None = None) -> int | None:
    """Return when ``move`` was healed, or None if it was not healed before ``before_us``."""
    for entry in journal:
        if before_us is not None and entry.at_us >= before_us:
            return None
        if entry.at_us >= move.moved_us and entry.what == CONNECTED and host_of(entry.address) == move.address:
            return entry.at_us
    return None


def host_of(address: str) -> str:
    """Return the IPv4 address in ``address``, which may include a port."""
    return address.partition(":")[0]


def away_times(journal: Sequence[Entry], planned_ends: Sequence[PlannedEnd], end_us: int) -> list[Away]:
    """Return when the traveller of this journal was away, from its first CONNECTED up to ``end_us``."""
    marks = [(entry.at_us, entry.what, entry.reason) for entry in journal]
    marks += [(planned_end.from_us, DISCONNECTED, planned_end.why) for planned_end in planned_ends]
    times: list[Away] = []
    seen = False
    since: tuple[int, str] | None = None
    for at_us, what, reason in sorted(marks, key=lambda mark: mark[0]):
        if at_us >= end_us:
            break
        if what == CONNECTED:
            if since is not None:
                times.append(Away(since[0], at_us, since[1]))
            seen, since = True, None
        elif what == DISCONNECTED and seen and since is None:
            since = (at_us, reason)
    if since is not None:
        times.append(Away(since[0], end_us, since[1]))
    return times


def write_evidence(
    directory: Path,
    expected: Mapping[str, Sequence[Due]],
    taken: Mapping[str, Sequence[Taken]],
    journals: Mapping[str, Sequence[Entry]],
    moves: Sequence[Move],
    planned_ends: Sequence[PlannedEnd],
    end_us: int,
) -> None:
    """Write the four files into ``directory``, which is created."""
    directory.mkdir(parents=True, exist_ok=True)
    _write(
        directory / "expected.jsonl",
        ({"user": user, **due._asdict()} for user, every in expected.items() for due in every),
    )
    _write(
        directory / "taken.jsonl",
        (
            {"user": user, "subject": each.subject, "seq": each.seq, "row": each.row, "at_us": each.at_us}
            for user, every in taken.items()
            for each in every
        ),
    )
    _write(directory / "moves.jsonl", (_healing(move, moves, journals) for move in moves))
    _write(
        directory / "away.jsonl",
        (
            {"user": user, "from_us": away.from_us, "to_us": away.to_us, "why": away.why}
            for user, journal in journals.items()
            for away in away_times(journal, [each for each in planned_ends if each.user == user], end_us)
        ),
    )


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def _healing(move: Move, moves: Sequence[Move], journals: Mapping[str, Sequence[Entry]]) -> dict[str, Any]:
    later = [other.moved_us for other in moves if other.user == move.user and other.moved_us > move.moved_us]
    healed = healed_us(move, journals[move.user], min(later, default=None))
    return {"user": move.user, "moved_us": move.moved_us, "healed_us": healed, "address": move.address}


def _write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
