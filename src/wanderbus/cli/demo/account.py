"""Account of a demonstration: what each user is due, what the user got, and the difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec


class UserFigures(msgspec.Struct, frozen=True):
    """Figures of one user, in events."""

    user: str
    due: int
    received: int
    lost: int
    repeated: int
    out_of_order: int

    @property
    def is_good(self) -> bool:
        """Return whether the user got everything that was due, once and in order, and nothing else."""
        return not (self.lost or self.repeated or self.out_of_order) and self.due == self.received


def account_of(user: str, due: Sequence[int], received: Sequence[int]) -> UserFigures:
    """Return the account of ``user``, from the numbers of the events in the order of their publication and arrival."""
    counts = Counter(received)
    return UserFigures(
        user=user,
        due=len(due),
        received=len(received),
        lost=len(set(due) - counts.keys()),
        repeated=sum(counts.values()) - len(counts),
        out_of_order=sum(later < earlier for earlier, later in pairwise(received)),
    )


def verdict(accounts: Sequence[UserFigures]) -> str:
    """Return the result in one sentence."""
    if all(each.is_good for each in accounts):
        return "nothing was lost or repeated, and everything arrived in order"
    found = {name: sum(getattr(each, name) for each in accounts) for name in ("lost", "repeated", "out_of_order")}
    unexpected = sum(max(0, each.received - each.repeated - (each.due - each.lost)) for each in accounts)
    counts = ", ".join(
        f"{count} {name.replace('_', ' ')}" for name, count in (*found.items(), ("unexpected", unexpected))
    )
    return f"this is wrong: {counts}"
