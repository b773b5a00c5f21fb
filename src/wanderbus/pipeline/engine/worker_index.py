"""The index of a worker process, which it keeps and brings up to the version that a task needs (SPEC T-06)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from wanderbus.broker.interest.filter_work import FilterWork
from wanderbus.broker.interest.index_entries import entries_of
from wanderbus.broker.interest.matcher import Matcher, lineage_of
from wanderbus.errors import FilterError
from wanderbus.event import Event
from wanderbus.matching import load_kernel
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.pipeline.engine.index_versions import IndexVersion
from wanderbus.pipeline.engine.interest import Changes, EngineFilter
from wanderbus.pipeline.workers import settle
from wanderbus.runtime.services.engine import EventMatches
from wanderbus.subscription import Subscription

FEW: Final = 200
"""Subscriptions that are added one by one; more are added at once, which settles the index."""

_wanted: Final = msgspec.msgpack.Decoder(tuple[EngineFilter, ...])
_changes: Final = msgspec.msgpack.Decoder(Changes)


class WorkerIndex:
    """The broker's own index, with the subscriptions of ``version``.

    The only bound on the work of filters is ``filter_work_max``: the others are accounts of the server.
    """

    def __init__(self, version: IndexVersion, filter_work_max: int, parents: Mapping[str, str]) -> None:
        config = BrokerConfig(
            server="",
            filter_work_max=filter_work_max,
            user_event_filter_work_max=max(filter_work_max, 2**62),
            user_filter_work_per_s=math.inf,
        )
        self.beginning = version.beginning
        self.number = version.base_number
        self._work = FilterWork(config, lambda: 0)
        self._matcher = Matcher(load_kernel(), self._work, lineage_of(parents))
        self._add(_wanted.decode(version.base.value))

    def may_reach(self, version: IndexVersion) -> bool:
        """Return whether :meth:`reach` can be called with ``version``."""
        return self.beginning == version.beginning and self.number >= version.first

    def reach(self, version: IndexVersion) -> None:
        """Apply the changes up to ``version``; a later version stays as it is."""
        for block in version.blocks[self.number - version.first :]:
            changes = _changes.decode(block)
            for identity in changes.removed:
                self._matcher.remove(identity)
            self._add(changes.added)
            self.number += 1

    def match(self, offsets: Iterable[int], events: Sequence[Event]) -> list[EventMatches]:
        """Return the matches of the ``events`` at these offsets, without the events that match nothing."""
        matcher, found = self._matcher, []
        matcher.prematch(events)
        for offset, event in zip(offsets, events, strict=True):
            ids = matcher.matching(event)
            if not ids:
                continue
            if undecided := self._work.take_undecided(event):
                matched = tuple(identity for identity in ids if identity not in undecided)
                found.append(EventMatches(offset, matched, tuple(undecided)))
            else:
                found.append(EventMatches(offset, tuple(ids)))
        return found

    def _add(self, several: Sequence[EngineFilter]) -> None:
        """Add subscriptions; one that cannot be parsed matches nothing, as in the broker."""
        if len(several) > FEW:
            self._matcher.add_many([_subscription(each) for each in several])
            return
        for each in several:
            try:
                self._matcher.add(_subscription(each), entries_of(_subscription(each)))
            except FilterError:
                continue


_indexes: Final[list[WorkerIndex]] = []
"""The index of this process, if it has one."""


def index_of(version: IndexVersion, filter_work_max: int, parents: Mapping[str, str]) -> WorkerIndex:
    """Return the index of this process, brought up to ``version``; ``parents`` are the parents of subjects."""
    if not (_indexes and _indexes[0].may_reach(version)):
        _indexes.clear()
        _indexes.append(WorkerIndex(version, filter_work_max, parents))
    _indexes[0].reach(version)
    settle()
    return _indexes[0]


def _subscription(wanted: EngineFilter) -> Subscription:
    return Subscription(wanted.id, "", "", wanted.subject, wanted.expression, language=wanted.language)
