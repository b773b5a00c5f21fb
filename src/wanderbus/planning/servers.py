"""Servers with the subjects that are placed on them, and the hash that places a subject without a plan."""

from __future__ import annotations

import hashlib
import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import Final

_HASH_BYTES: Final = 8

Item = tuple[int, str]
"""A subject with its load, which comes first: items are ordered by load."""


def hashed_server(subject: str, servers: int) -> int:
    """Return the server of a subject that no plan names: the first 8 bytes of BLAKE2b of its UTF-8, modulo servers."""
    digest = hashlib.blake2b(subject.encode(), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, "big") % servers


def loads_by_server(servers: int, loads: Mapping[str, int], server_of: Mapping[str, int]) -> list[int]:
    """Return the load of each server."""
    found = [0] * servers
    for subject, server in server_of.items():
        found[server] += loads[subject]
    return found


def descending(loads: Mapping[str, int]) -> list[Item]:
    """Return the subjects from the largest load to the smallest; equal ones in the order of their names."""
    return sorted(((load, subject) for subject, load in loads.items()), key=lambda item: (-item[0], item[1]))


class Servers:
    """Servers, numbered from 0 on, with their items in ascending order and the sums of their loads."""

    def __init__(self, count: int) -> None:
        self.items: list[list[Item]] = [[] for _ in range(count)]
        self.loads = [0] * count

    @classmethod
    def of(cls, count: int, loads: Mapping[str, int], server_of: Mapping[str, int]) -> Servers:
        """Return servers with this placement."""
        made = cls(count)
        for subject, server in server_of.items():
            made.items[server].append((loads[subject], subject))
        for items in made.items:
            items.sort()
        made.loads = [sum(load for load, _ in items) for items in made.items]
        return made

    def add(self, server: int, items: Iterable[Item]) -> None:
        """Put items on a server."""
        for item in items:
            insort(self.items[server], item)
            self.loads[server] += item[0]

    def add_idle(self, items: Iterable[Item]) -> None:
        """Put items without load, one by one, on the server with the fewest of them, the least loaded of equal ones.

        A subject that had no events may have some later: all of these on one server could overload it.
        """
        heap = [(bisect_left(own, (1, "")), self.loads[number], number) for number, own in enumerate(self.items)]
        heapq.heapify(heap)
        for item in items:
            count, load, number = heap[0]
            self.add(number, (item,))
            heapq.heapreplace(heap, (count + 1, load, number))

    def remove(self, server: int, item: Item) -> None:
        """Take an item from its server."""
        del self.items[server][bisect_left(self.items[server], item)]
        self.loads[server] -= item[0]

    def move(self, item: Item, source: int, target: int) -> None:
        """Move an item to another server."""
        self.remove(source, item)
        self.add(target, (item,))

    def server_of(self) -> dict[str, int]:
        """Return the server of each subject."""
        return {subject: server for server, items in enumerate(self.items) for _, subject in items}

    def most_loaded(self) -> int:
        """Return the server with the largest load, the first of equal ones."""
        return max(range(len(self.loads)), key=lambda server: (self.loads[server], -server))

    def ascending(self) -> list[int]:
        """Return the servers from the least loaded to the most loaded."""
        return sorted(range(len(self.loads)), key=lambda server: (self.loads[server], server))
