"""Pace at which users may let the broker merge the filters of a subject for their publishing agents (SPEC N-02, U-02).

Who asks for filters chooses when they are merged, and all others wait meanwhile. A user who asks too fast gets none for
now, and publishes every event.
"""

from __future__ import annotations

from typing import Final

from wanderbus.broker.links import Links
from wanderbus.broker.readers import Link
from wanderbus.broker.state.journal import Journal
from wanderbus.limits import MERGE_WORK_MAX, USER_MERGE_WORK_PER_S_MAX
from wanderbus.work import WorkBudget

MERGE_ALL_WORK_MAX: Final = 5 * MERGE_WORK_MAX
"""Units of work to merge all filters of a subject; with more, agents publish every event of it."""

AT_ONCE_S: Final = 2.0
"""Time whose units a user may spend at once."""

WORK_A_UNIT: Final = 4_000
"""Units of work that count as one unit of the broker's turns."""


class MergePace:
    """Counts the work of merging, for the broker's turns and by user."""

    def __init__(self, journal: Journal, links: Links) -> None:
        self._journal = journal
        self._links = links
        self._paid_at: dict[str, float] = {}
        """Time at which the work of each user is paid for."""

    def may_merge(self, link: Link) -> bool:
        """Return whether filters may be merged now for the agent on ``link``; another server never waits."""
        if link.is_server or self._paid_at.get(link.user, 0.0) <= self._links.now + AT_ONCE_S:
            return True
        self._journal.tally.note("limits.USER_MERGE_WORK_PER_S_MAX", link.user, "an agent gets no filters for now")
        return False

    def pay(self, link: Link, work: WorkBudget) -> None:
        """Charge the work of merging all filters of a subject to the user who has asked for them."""
        self.count(work)
        paid_at = max(self._paid_at.get(link.user, 0.0), self._links.now)
        self._paid_at[link.user] = paid_at + work.done / USER_MERGE_WORK_PER_S_MAX

    def count(self, work: WorkBudget) -> None:
        """Count the work of a change of one subscription, for which its user waits (:mod:`..subscribe_pacing`)."""
        self._journal.merging += work.done
        self._journal.work += work.done / WORK_A_UNIT

    def sweep(self) -> None:
        """Forget the users whose work is paid for."""
        self._paid_at = {user: at for user, at in self._paid_at.items() if at > self._links.now}
