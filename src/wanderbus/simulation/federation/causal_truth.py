"""Truth about causal order between domains, by all their logs together: nobody reads an answer before its cause.

A cause that comes to a domain later than the time for which anything waits excuses what comes before it; and while it
is missing, later events of its domain are not waited for either (decision 0175).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from wanderbus.broker.servers.server_users import domain_of
from wanderbus.channels.causal.domain_past import CAUSE_WAIT_S
from wanderbus.records import Arrived, Notified, Published
from wanderbus.simulation.federation.interest import is_of_user
from wanderbus.simulation.federation.node import FederatedNode

ANSWERS: Final = "Answers"
"""Attribute with the name of the event that an event answers."""

_WAIT_US: Final = round(CAUSE_WAIT_S * 1e6)


class Accepted(NamedTuple):
    """An event as a domain has accepted it: its own one, or another one."""

    at_us: int
    source: str
    """Domain in which it was published."""


class CausalTruth:
    """Truth by all logs together; it collects ``problems``."""

    def __init__(self, nodes: Mapping[str, FederatedNode]) -> None:
        self.problems: list[str] = []
        self.counters: Counter[str] = Counter()
        self._nodes = nodes
        self._published: dict[str, Accepted] = {}
        """Each event in its own domain."""
        self._imports: dict[str, dict[str, Accepted]] = defaultdict(dict)
        """Events of others by domain and name."""
        self._answers: dict[str, str] = {}
        self._got: dict[tuple[str, str, str], dict[int, str]] = defaultdict(dict)
        """Events of each session, by its number there: server, user and session."""
        names: dict[object, str] = {}
        for node in nodes.values():
            for offset, record in enumerate(node.disk.records()):
                if isinstance(record, Published):
                    names[record.acceptance.id] = str(record.event["Uid"])
                    self._follow(node, record, node.walls_us[offset])
        for node in nodes.values():
            for record in node.disk.records():
                if isinstance(record, Published | Arrived):
                    found = record.acceptance.id if isinstance(record, Published) else record.arrival.id
                    self._notify(node, names[found], record.delivery.notified)
        for session, got in self._got.items():
            self.problems += self._check(session, [got[number] for number in sorted(got)])

    def _follow(self, node: FederatedNode, record: Published, at_us: int) -> None:
        uid, source = str(record.event["Uid"]), domain_of(record.acceptance.user, node.domain)
        accepted = Accepted(at_us, source or node.domain)
        if source is None:
            self._published[uid] = accepted
            if (cause := record.event.get(ANSWERS)) is not None:
                self._answers[uid] = str(cause)
        else:
            self._imports[node.domain][uid] = accepted

    def _notify(self, node: FederatedNode, uid: str, notified: Iterable[Notified]) -> None:
        for each in notified:
            if is_of_user(each.user, node.domain):
                self._got[node.name, each.user, each.session][each.number] = uid

    def _causes(self, uid: str) -> Iterator[str]:
        """Yield what an event answers, what that answers, and so on."""
        while (cause := self._answers.get(uid)) is not None:
            yield cause
            uid = cause

    def _check(self, session: tuple[str, str, str], got: list[str]) -> Iterator[str]:
        """Check that no event comes before one of its causes, unless that is late."""
        places = {uid: place for place, uid in enumerate(got)}
        domain = self._nodes[session[0]].domain
        for uid, place in places.items():
            for cause in self._causes(uid):
                if (cause_place := places.get(cause)) is None:
                    continue
                self.counters["read"] += 1
                sources = self._published[uid].source, self._published[cause].source
                self.counters["crossed"] += len({*sources, domain}) > 2
                if cause_place < place:
                    continue
                if self._is_late(domain, uid, cause):
                    self.counters["excused"] += 1
                else:
                    yield f"{session} has {uid} of {sources[0]} before its cause {cause} of {sources[1]}"

    def _is_late(self, domain: str, uid: str, cause: str) -> bool:
        """Return whether the cause was late, or the domain that it is from, when an event came to another domain."""
        imports = self._imports[domain]
        if uid not in imports or cause not in imports:
            return False
        came_us, source = imports[uid].at_us, imports[cause].source
        return any(
            each.source == source and each.at_us > came_us and self._published[one].at_us <= came_us - _WAIT_US
            for one, each in imports.items()
        )
