"""Differences between what was found and what was promised, in the kinds that the programs check."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from harness.reporting import Goal, goal
from wanderbus.broker.state.state import BrokerState
from wanderbus.records import Published, decode_record

Kind = Literal[
    "lost", "repeated", "out_of_order", "integrity_errors", "seam_lost", "seam_repeated", "causal_violations", "loops"
]
KINDS: Final[tuple[Kind, ...]] = ("lost", "repeated", "out_of_order", "integrity_errors")
SEAM_KINDS: Final[tuple[Kind, ...]] = ("seam_lost", "seam_repeated")
"""Events that are missing, or that came again, for subscriptions that begin in the past (SPEC T-05)."""

DOMAIN_KINDS: Final[tuple[Kind, ...]] = ("lost", "repeated", "out_of_order", "causal_violations", "integrity_errors")
FEDERATION_KINDS: Final[tuple[Kind, ...]] = ("lost", "repeated", "out_of_order", "loops", "integrity_errors")

SHOWN_MAX: Final = 20


@dataclass
class Verdict:
    """Number of broken promises of each kind, and a description of the first."""

    counts: Counter[Kind] = field(default_factory=Counter)
    words: list[str] = field(default_factory=list)

    def broken(self, kind: Kind, what: str, count: int = 1) -> None:
        """Record ``count`` broken promises."""
        self.counts[kind] += count
        if len(self.words) < SHOWN_MAX:
            self.words.append(f"{kind}: {what}")

    def add(self, other: Verdict, where: str) -> None:
        """Add what was found at ``where``."""
        self.counts += other.counts
        self.words += [f"{where}: {word}" for word in other.words][: SHOWN_MAX - len(self.words)]

    @property
    def good(self) -> bool:
        """Return whether nothing was broken."""
        return not self.counts.total()

    def goals(self, kinds: Sequence[Kind] = KINDS) -> list[Goal]:
        """Return the goals of the report."""
        return [goal(kind, self.counts[kind], "found", most=0) for kind in kinds]


def check_order(
    verdict: Verdict,
    promised: Iterable[int],
    found: list[int],
    what: str,
    kinds: tuple[Kind, Kind] = ("lost", "repeated"),
) -> None:
    """Compare two lists of numbers, the first ascending: no number may be missing, repeated or out of order."""
    wanted, counted = set(promised), Counter(found)
    if lacking := sorted(wanted - counted.keys()):
        verdict.broken(kinds[0], f"{what}: {lacking[:5]} of {len(lacking)} that lack", len(lacking))
    if strange := sorted(counted.keys() - wanted):
        verdict.broken("integrity_errors", f"{what}: {strange[:5]} were never due", len(strange))
    if twice := [number for number, count in counted.items() if count > 1]:
        verdict.broken(kinds[1], f"{what}: {twice[:5]} came more than once", len(twice))
    once = list(dict.fromkeys(found))
    if wrong := [late for early, late in itertools.pairwise(once) if late < early]:
        verdict.broken("out_of_order", f"{what}: {wrong[:5]} came after higher ones", len(wrong))


def check_publishes(verdict: Verdict, payloads: Iterable[bytes]) -> None:
    """Check that no publish of a device is in the log twice."""
    counted = Counter(
        (by.user, by.device, by.epoch, by.outbox, by.number)
        for record in map(decode_record, payloads)
        if isinstance(record, Published) and (by := record.acceptance)
    )
    if twice := [publish for publish, count in counted.items() if count > 1]:
        verdict.broken("repeated", f"{len(twice)} publishes are in the log more than once: {twice[0]}", len(twice))


def folded(server: str, publishes_remembered: int, payloads: Iterable[bytes]) -> BrokerState:
    """Return the state that results from the log alone."""
    state = BrokerState(server, publishes_remembered)
    for offset, payload in enumerate(payloads):
        state.apply(offset, decode_record(payload))
    return state


def check_state(verdict: Verdict, loaded: BrokerState, alone: BrokerState) -> None:
    """Check that the state file brought up to date is what the log alone gives."""
    if (loaded.offset, loaded.wall_us) != (alone.offset, alone.wall_us):
        verdict.broken("integrity_errors", f"the state is at {loaded.offset}, the log at {alone.offset}")
    ours, theirs = _rows(loaded), _rows(alone)
    for table in ours:
        keys = [
            key for key in ours[table].keys() | theirs[table].keys() if ours[table].get(key) != theirs[table].get(key)
        ]
        if keys:
            verdict.broken("integrity_errors", f"{len(keys)} rows of {table} are not what the log gives: {min(keys)}")


def _rows(state: BrokerState) -> dict[str, dict[str, bytes]]:
    encode = msgspec.json.encode
    return {table.name: {key: encode(row) for key, row in table.items()} for table in state.tables}
