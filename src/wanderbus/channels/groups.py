"""Channel groups: each subject belongs to one, which has one leader (SPEC J-02, J-07; DESIGN 10.2).

The group is computed from the subject, by rendezvous hashing: among all groups, the one with the greatest weight for
the subject. A weight is 32 bits of a keyed BLAKE2b digest. With one group more, a subject stays where it is or moves to
the new group. The time does not depend on the number of subjects; the groups of the last ones are remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Final

from wanderbus.channels.hierarchy import Hierarchy
from wanderbus.errors import ConfigurationError
from wanderbus.subscription import EVERY_SUBJECT

GROUPS: Final = 64
"""Channel groups of a domain by default."""

GROUPS_MAX: Final = 1024
"""Largest number of channel groups; the weight of each is computed for each event."""

REMEMBERED_MAX: Final = 1_024
"""Subjects whose groups are remembered: a server asks for that of each event."""

_DIGEST_BYTES: Final = blake2b.MAX_DIGEST_SIZE
_WEIGHT_BYTES: Final = 4


class ChannelGroups:
    """Channel group of each subject: that of its hierarchy, pinned by the configuration or chosen by hash."""

    def __init__(
        self,
        key: bytes,
        count: int = GROUPS,
        *,
        pins: Mapping[str, int] | None = None,
        parents: Mapping[str, str] | None = None,
    ) -> None:
        """Create ``count`` groups.

        ``key``, at most 64 bytes, is secret, so that nobody can choose subjects of one group. ``pins`` are the groups
        of some subjects, ``parents`` the parent of each child in a hierarchy.

        :raises ConfigurationError: the count is out of range, a pin names no group, a child or ``*``, or see
            :class:`Hierarchy`
        """
        if not 1 <= count <= GROUPS_MAX:
            raise ConfigurationError(f"groups: {count} is out of range (expected 1 to {GROUPS_MAX})")
        self.count = count
        self.hierarchy = Hierarchy(parents or {})
        self._pins = dict(pins or {})
        digests = -(-count * _WEIGHT_BYTES // _DIGEST_BYTES)
        salts = (number.to_bytes(blake2b.SALT_SIZE, "little") for number in range(digests))
        # Copies of keyed hashes spare the block of the key, a third of the time of a lookup.
        self._hashes = [blake2b(key=key, salt=salt) for salt in salts]
        self._weights = Struct(f"<{count}I")
        self.group_of = lru_cache(REMEMBERED_MAX)(self._group_of)
        """Returns the channel group of the events of a subject, from 0 on."""
        for subject, group in self._pins.items():
            self._check_pin(subject, group)

    def _group_of(self, subject: str) -> int:
        top = self.hierarchy.top(subject)
        pinned = self._pins.get(top)
        if pinned is not None:
            return pinned
        data = top.encode("utf-8", "surrogatepass")
        digests = []
        for keyed in self._hashes:
            digest = keyed.copy()
            digest.update(data)
            digests.append(digest.digest())
        weights = self._weights.unpack_from(b"".join(digests))
        return weights.index(max(weights))

    def groups_of(self, subjects: Iterable[str]) -> frozenset[int]:
        """Return the groups whose events a subscription to ``subjects`` can match; ``*`` means all groups.

        A subscription names one subject. One to a pattern has the subjects of the pattern's steps.
        """
        wanted = set(subjects)
        return frozenset(range(self.count) if EVERY_SUBJECT in wanted else map(self.group_of, wanted))

    def _check_pin(self, subject: str, group: int) -> None:
        if not 0 <= group < self.count:
            raise ConfigurationError(
                f"pins: {subject!r} is pinned to {group} (expected a group, 0 to {self.count - 1})"
            )
        if subject == EVERY_SUBJECT:
            raise ConfigurationError(f"pins: {subject!r} means every subject and has no group; remove it")
        if (top := self.hierarchy.top(subject)) != subject:
            raise ConfigurationError(f"pins: {subject!r} is in the group of its ancestor {top!r}; pin {top!r} instead")
