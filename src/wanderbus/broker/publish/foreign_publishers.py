"""Devices of foreign domains whose publishes are recognised here; another domain chooses how many there are."""

from __future__ import annotations

from wanderbus.broker.publish.decisions import Rejected
from wanderbus.broker.state.rows import device_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.limits import FOREIGN_PUBLISHERS_MAX


class ForeignPublishers:
    """Bound on the rows of publishers of each foreign domain."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._known: dict[str, set[str]] = {}
        """Keys of the publishers of each domain that has published in this life."""

    def refusal(self, user: str, publisher: str) -> Rejected | None:
        """Count a publisher of the domain ``user`` that has no row yet; return the refusal of one too many."""
        if (known := self._known.get(user)) is None:
            begin = device_key(user, "")
            rows = (*self._state.publishers, *self._state.groups.publishers)
            known = self._known[user] = {each for each in rows if each.startswith(begin)}
        if publisher not in known and len(known) >= FOREIGN_PUBLISHERS_MAX:
            reason = (
                f"{user} publishes from more than {FOREIGN_PUBLISHERS_MAX} servers and channels; connect fewer types"
            )
            return Rejected(reason, "foreign_publishers_max")
        known.add(publisher)
        return None
