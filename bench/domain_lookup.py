"""Lookup of a subject's leader, with 10 to 100,000 subjects (SPEC J-07).

Subjects are drawn at random, and each lookup has a string of its own, as that of an event which has just been decoded.
Each turn has other subjects, because the time depends a little on the group; a figure is the median of all turns.
"""

from __future__ import annotations

import random
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
LOOKUPS: Final = 5_000
TURNS: Final = 60
SEED: Final = 20


def measured(sizes: Sequence[int], turns: int, lookups: int) -> list[dict[str, float]]:
    """Return a row for each number of subjects: time of one lookup, and bytes of the directory after all lookups."""
    drawn = random.Random(SEED)
    took_s: dict[int, list[float]] = {size: [] for size in sizes}
    for turn in range(turns):
        if turn % 20 == 0:
            progress(f"lookups, turn {turn} of {turns}")
        for size in sizes:
            subjects = [_subject(turn, drawn.randrange(size)) for _ in range(lookups)]
            took_s[size].append(_lookups_s(_directory(), subjects))
    return [
        {"subjects": size, "lookup_us": median(took_s[size]) / lookups * 1e6, "bytes": _bytes_after(size)}
        for size in sizes
    ]


def goals_of(results: Sequence[dict[str, float]]) -> list[Goal]:
    """Return the goals: the growth of time from the fewest to the most subjects, and the memory of both."""
    fewest, most = results[0], results[-1]
    return [
        goal("lookup_growth", most["lookup_us"] / fewest["lookup_us"], "ratio", most=1.2),
        goal("lookup_us", most["lookup_us"], "us"),
        goal("lookup_bytes_10", fewest["bytes"], "bytes"),
        goal("lookup_bytes_100k", most["bytes"], "bytes"),
    ]


def _subject(turn: int, number: int) -> str:
    return f"subject.{turn:02}.{number:06}"


def _directory() -> Directory:
    return Directory(ChannelGroups(KEY), first_table(GROUPS, SERVERS, KEY))


def _lookups_s(directory: Directory, subjects: Sequence[str]) -> float:
    lookup = directory.lookup
    started = time.process_time()
    for subject in subjects:
        lookup(subject)
    return time.process_time() - started


def _bytes_after(size: int) -> int:
    """Return the memory of a directory that has looked up so many subjects."""
    tracemalloc.start()
    directory = _directory()
    for number in range(size):
        directory.lookup(_subject(0, number))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used
