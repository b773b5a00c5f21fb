"""Lookup of a subject's leader, with 10 to 100,000 subjects (SPEC J-07).

A directory that has looked up so many subjects looks up others, which it does not remember; each turn has directories
and subjects of its own, and a figure is the median of all turns. Beside it stands the time for a subject that was
looked up just before, with a string of its own as that of an event which has just been decoded.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from typing import Final

from harness.reporting import Goal, goal, median, progress
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import GROUPS, ChannelGroups

SIZES: Final = (10, 1_000, 100_000)
KEY: Final = bytes(range(32))
SERVERS: Final = ("s1", "s2", "s3", "s4")
SEARCHED: Final = 50
"""Lookups of a turn; few, so that the remembered subjects of a small directory stay few."""


def measured(sizes: Sequence[int], turns: int) -> list[dict[str, float]]:
    """Return a row for each number of subjects: times of a new and a remembered subject, bytes of the directory."""
    new_s: dict[int, list[float]] = {size: [] for size in sizes}
    remembered_s: dict[int, list[float]] = {size: [] for size in sizes}
    for turn in range(turns):
        if turn % 5 == 0:
            progress(f"lookups, turn {turn} of {turns}")
        for size in sizes:
            directory = _directory_after(size)
            subjects = [_subject(turn, size + number) for number in range(SEARCHED)]
            new_s[size].append(_lookups_s(directory, subjects))
            remembered_s[size].append(_lookups_s(directory, [_subject(turn, size + n) for n in range(SEARCHED)]))
    return [
        {
            "subjects": size,
            "lookup_us": median(new_s[size]) / SEARCHED * 1e6,
            "remembered_us": median(remembered_s[size]) / SEARCHED * 1e6,
            "bytes": _bytes_after(size),
        }
        for size in sizes
    ]


def goals_of(results: Sequence[dict[str, float]]) -> list[Goal]:
    """Return the goals: the growth of time from the fewest to the most subjects, and the memory of both."""
    fewest, most = results[0], results[-1]
    return [
        goal("lookup_growth", most["lookup_us"] / fewest["lookup_us"], "ratio", most=1.2),
        goal("lookup_us", most["lookup_us"], "us"),
        goal("lookup_remembered_us", most["remembered_us"], "us"),
        goal("lookup_bytes_10", fewest["bytes"], "bytes"),
        goal("lookup_bytes_100k", most["bytes"], "bytes"),
    ]


def _subject(turn: int, number: int) -> str:
    return f"subject.{turn:02}.{number:06}"


def _directory_after(size: int) -> Directory:
    """Return a directory that has looked up so many subjects."""
    directory = Directory(ChannelGroups(KEY), first_table(GROUPS, SERVERS, KEY))
    for number in range(size):
        directory.lookup(_subject(0, number))
    return directory


def _lookups_s(directory: Directory, subjects: Sequence[str]) -> float:
    lookup = directory.lookup
    started = time.process_time()
    for subject in subjects:
        lookup(subject)
    return time.process_time() - started


def _bytes_after(size: int) -> int:
    """Return the memory of a directory that has looked up so many subjects."""
    tracemalloc.start()
    _kept = _directory_after(size)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used
