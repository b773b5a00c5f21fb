"""Spanning tree of least length over the domains of a type (SPEC M-04)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec


class Edge(msgspec.Struct, frozen=True, order=True):
    """A link between two domains, in the order in which links become part of the tree.

    One on which the type goes in one direction alone follows all others. Names decide between equal lengths, so all
    domains find the same tree.
    """

    is_one_way: bool
    distance: float
    one: str
    other: str


class SpanningTree(msgspec.Struct, frozen=True):
    """The tree of the domains that ``own`` reaches: its ``edges``, all ``members``, and the neighbours of ``own``.

    ``id`` is the same at all members that find the same tree.
    """

    id: int
    edges: tuple[Edge, ...]
    members: frozenset[str]
    neighbours: tuple[str, ...]


def spanning_tree(type: str, own: str, edges: Iterable[Edge]) -> SpanningTree:
    """Return the tree of a type (Kruskal's algorithm), cut to the part of ``own``."""
    chosen = _chosen(edges)
    members = _reached(own, chosen)
    inside = tuple([each for each in chosen if each.one in members])
    neighbours = tuple(sorted(_other_end(each, own) for each in inside if own in (each.one, each.other)))
    return SpanningTree(_id_of(type, inside), inside, members, neighbours)


def _chosen(edges: Iterable[Edge]) -> list[Edge]:
    parents: dict[str, str] = {}

    def top(name: str) -> str:
        while (parent := parents.setdefault(name, name)) != name:
            parents[name] = parents.setdefault(parent, parent)
            name = parents[name]
        return name

    chosen = []
    for each in sorted(edges):
        one, other = top(each.one), top(each.other)
        if one != other:
            parents[one] = other
            chosen.append(each)
    return chosen


def _reached(own: str, edges: Sequence[Edge]) -> frozenset[str]:
    beside: dict[str, list[str]] = {}
    for each in edges:
        beside.setdefault(each.one, []).append(each.other)
        beside.setdefault(each.other, []).append(each.one)
    found = {own}
    waiting = [own]
    for name in waiting:
        new = [each for each in beside.get(name, ()) if each not in found]
        found.update(new)
        waiting += new
    return frozenset(found)


def _other_end(edge: Edge, own: str) -> str:
    return edge.other if edge.one == own else edge.one


def _id_of(type: str, edges: Sequence[Edge]) -> int:
    pairs = [(each.one, each.other) for each in sorted(edges)]
    digest = blake2b(msgspec.msgpack.encode((type, pairs)), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
