"""Items that become effective once each of several peers has confirmed them (SPEC J-10): answers, reports, changes."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)
Peer = TypeVar("Peer", bound=Hashable)


class Pending(Collection[Item], Generic[Item, Peer]):
    """Items, and the version of each that several peers have to confirm.

    A confirmation counts once, whatever happens to the peer later. At one peer, versions never fall from item to item.
    """

    def __init__(self) -> None:
        self._unconfirmed: dict[Item, dict[Peer, None]] = {}
        """Peers that have not confirmed each item."""
        self._of_peer: dict[Peer, OrderedDict[Item, float]] = {}
        """Versions of the items that each peer has to confirm, in order."""

    def __contains__(self, item: object) -> bool:
        """Return whether ``item`` is not effective yet."""
        return item in self._unconfirmed

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the items that are not effective yet, in order."""
        return iter(self._unconfirmed)

    def __len__(self) -> int:
        """Return the number of items that are not effective yet."""
        return len(self._unconfirmed)

    def add(self, item: Item, versions: Mapping[Peer, float]) -> None:
        """Add an item, in place of an equal one, with the version that each of several peers has to confirm."""
        self.drop(item)
        self._unconfirmed[item] = dict.fromkeys(versions)
        for peer, version in versions.items():
            self._of_peer.setdefault(peer, OrderedDict())[item] = version

    def peers_of(self, item: Item) -> list[Peer]:
        """Return the peers that have not confirmed an item."""
        return list(self._unconfirmed.get(item, ()))

    def drop(self, item: Item) -> None:
        """Forget an item; does nothing for an unknown one."""
        for peer in self._unconfirmed.pop(item, ()):
            self._remove(item, peer)

    def awaited(self) -> dict[Peer, float]:
        """Return the peers for which something waits, and the highest version at each of them."""
        return {peer: versions[next(reversed(versions))] for peer, versions in self._of_peer.items()}

    def confirmed(self, peer: Peer, version: float = math.inf) -> list[Item]:
        """Note that ``peer`` has confirmed all up to ``version``; return the items that are effective now, in order."""
        several = []
        for item, wanted in self._of_peer.get(peer, {}).items():
            if wanted > version:
                break
            several.append(item)
        for item in several:
            self._remove(item, peer)
            del self._unconfirmed[item][peer]
        effective = [item for item in several if not self._unconfirmed[item]]
        for item in effective:
            del self._unconfirmed[item]
        return effective

    def _remove(self, item: Item, peer: Peer) -> None:
        versions = self._of_peer[peer]
        del versions[item]
        if not versions:
            del self._of_peer[peer]
