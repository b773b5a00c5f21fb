"""Permissions of users by subject: patterns that an operator sets; without patterns everything is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

from wanderbus.protocol import shortened

EVERYBODY: Final = "*"
"""Name of the entry for all users without an entry of their own."""


class Permissions:
    """Checks one kind of request against patterns of subjects, by user."""

    def __init__(self, key: Literal["may_publish", "may_subscribe"], allowed: Mapping[str, Sequence[str]]) -> None:
        self._key = key
        self._allowed = allowed

    def refusal(self, user: str, subject: str) -> str | None:
        """Return the reason of a refusal for ``subject``, None if ``user`` has the permission."""
        if not self._allowed:
            return None
        patterns = self._allowed.get(user, self._allowed.get(EVERYBODY))
        if patterns is None or any(fnmatchcase(subject, pattern) for pattern in patterns):
            return None
        verb = "publish" if self._key == "may_publish" else "subscribe to"
        those = ", ".join(patterns) or "no subject"
        return shortened(f"{user} may not {verb} {subject!r}; the broker's {self._key} allows {those}")
