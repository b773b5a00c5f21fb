"""Items that a consumer has read, and the events that were due to it and that it never learned of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Item(NamedTuple):
    """An event, by its publisher and number; or a gap or an error: then ``n`` is 0, and events may be missing.

    ``acknowledged`` is the highest number that was acknowledged to each publisher when the item was read, and
    ``restored`` the highest that it had used when a server was last restored.
    """

    by: str
    n: int
    acknowledged: Mapping[str, int] = {}
    restored: Mapping[str, int] = {}
    text: str = ""


def silent_losses(by: str, due: Iterable[int], items: Sequence[Item]) -> list[int]:
    """Return the numbers of ``due``, of one publisher, that are not among the items and that no gap or error means.

    A gap means events that were acknowledged before it was read, and that were published between the last event before
    it and the next one behind it. It may come late for events from before a restoration: a server learns from its
    agents that its data are a copy, and has accepted others by then. The events of a publisher have ascending numbers;
    a repetition counts at its first place.
    """
    first: dict[int, int] = {}
    notices: list[_Notice] = []
    for place, item in enumerate(items):
        if not item.n:
            notices.append(_Notice(place, item.acknowledged.get(by, 0), item.restored.get(by, 0)))
        elif item.by == by:
            first.setdefault(item.n, place)
    return [n for n in due if n not in first and not _is_noticed(n, first, notices)]


class _Notice(NamedTuple):
    """A gap or an error among the items."""

    place: int
    acknowledged: int
    restored: int


def _is_noticed(n: int, first: Mapping[int, int], notices: Sequence[_Notice]) -> bool:
    """Return whether one of the notices means event ``n``."""
    end = min((place for number, place in first.items() if number > n), default=None)
    earlier = (place for number, place in first.items() if number < n and (end is None or place < end))
    begin = max(earlier, default=-1)
    return any(
        begin < each.place and (n <= each.restored or (n <= each.acknowledged and (end is None or each.place < end)))
        for each in notices
    )
