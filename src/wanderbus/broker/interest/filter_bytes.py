"""Memory of the filters of each user (SPEC A-11); a bound on it also bounds the start time of a server."""

from __future__ import annotations

from collections import Counter

from wanderbus.errors import LimitExceeded


class FilterBytes:
    """Estimated bytes of each live subscription's filter, and the sum for each user."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, int]] = {}
        self._of_user: Counter[str] = Counter()

    def put(self, identity: str, user: str, size: int) -> None:
        """Add the filter of a subscription, in place of an earlier one."""
        self.drop(identity)
        self._of[identity] = user, size
        self._of_user[user] += size

    def drop(self, identity: str) -> None:
        """Remove the filter of a subscription; does nothing for an unknown one."""
        if known := self._of.pop(identity, None):
            user, size = known
            self._of_user[user] -= size
            if not self._of_user[user]:
                del self._of_user[user]

    def of_user(self, user: str) -> int:
        """Return the bytes of all filters of ``user``."""
        return self._of_user[user]

    def check(self, user: str, size: int, most: int) -> None:
        """Raise :class:`LimitExceeded` if one more filter of ``size`` bytes would take ``user`` beyond ``most``."""
        if self._of_user[user] + size > most:
            raise LimitExceeded(
                f"the filters of {user} would take {self._of_user[user] + size} bytes; the limit is {most}: "
                "end some subscriptions, or use fewer attributes in each",
                "user_filter_bytes_max",
            )
