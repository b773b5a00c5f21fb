"""Choice of the rendezvous domain of a type, which is the same at all domains with the same backbone (SPEC M-03)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

REMEMBERED_MAX: Final = 2_048
"""Types whose rendezvous is remembered."""


class RendezvousChoice:
    """The domains of the backbone. If one of them leaves, only its types get another rendezvous."""

    def __init__(self, backbone: Iterable[str]) -> None:
        self._backbone = sorted(backbone)
        self.of = lru_cache(REMEMBERED_MAX)(self._of)
        """Returns the rendezvous of a type; None without a backbone."""

    def _of(self, type: str) -> str | None:
        return max(self._backbone, key=lambda domain: (_weight(type, domain), domain), default=None)


def _weight(type: str, domain: str) -> bytes:
    # The length divides the two texts, so that no other pair has the same bytes.
    of_type = type.encode("utf-8", "surrogatepass")
    of_domain = domain.encode("utf-8", "surrogatepass")
    return blake2b(len(of_type).to_bytes(4, "big") + of_type + of_domain, digest_size=8).digest()
