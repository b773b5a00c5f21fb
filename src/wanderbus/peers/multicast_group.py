"""Datagrams of a domain's multicast group: sealed, so that only its servers can make and read them (SPEC J-12).

::

    0x01 | sender u16 | life 16 bytes | number u64 | sealed payload

The key comes from the hash key of the domain by HKDF-SHA256 (RFC 5869), with the ``life`` as salt: 16 random bytes of
each start of the sender. So no two datagrams have the same key and number, also if a server has lost its disk. The
cipher is AES-128-GCM, with the number as nonce, and the header is authenticated.

Every server of the domain has the key, so a datagram shows that one of them made it, and not which. A recorded datagram
opens again: whoever uses a payload has to recognise repeats.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from wanderbus.machine import Address, RandomSource, SendDatagram
from wanderbus.peers.parts import MULTICAST_SOCKET

LIFE_BYTES: Final = 16

_KIND: Final = 1
_HEADER: Final = struct.Struct(f"!BH{LIFE_BYTES}sQ")
_KEY_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_LABEL: Final = b"wanderbus server multicast 1"


class MulticastGroup:
    """Seals what one server sends to the group, and opens what it receives from there.

    ``dropped`` counts datagrams that had no effect: ``malformed`` and ``forged`` ones, the latter also from servers of
    another domain, or with another list of servers.

    :param address: address of the group
    :param hash_key: secret of the domain
    :param domain: name of the domain
    :param servers: names of all its servers, in the order of their numbers
    :param server: name of this server
    :param random: source of the ``life``
    """

    def __init__(
        self,
        address: Address,
        hash_key: bytes,
        *,
        domain: str,
        servers: Sequence[str],
        server: str,
        random: RandomSource,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._address = address
        self._hash_key = hash_key
        self._servers = tuple(servers)
        self._context = b"".join(
            len(part).to_bytes(4, "big") + part for part in (_LABEL, *[each.encode() for each in (domain, *servers)])
        )
        self._own = self._servers.index(server)
        self._life = random.token(LIFE_BYTES)
        self._cipher = self._derived(self._own, self._life)
        self._number = 0
        self._openers: dict[int, tuple[bytes, AESGCM]] = {}
        """Life and cipher of the last genuine datagram of each sender."""

    def seal(self, payload: bytes) -> SendDatagram:
        """Return the datagram to the group that carries ``payload``."""
        self._number += 1
        header = _HEADER.pack(_KIND, self._own, self._life, self._number)
        sealed = self._cipher.encrypt(_nonce(self._number), payload, header)
        return SendDatagram(MULTICAST_SOCKET, self._address, header + sealed)

    def open(self, datagram: bytes) -> tuple[str, bytes] | None:
        """Return the sender and the payload of a received ``datagram``; None for an own one, or if it is dropped."""
        if len(datagram) < _HEADER.size:
            self.dropped["malformed"] += 1
            return None
        kind, sender, life, number = _HEADER.unpack_from(datagram)
        if kind != _KIND or sender >= len(self._servers):
            self.dropped["malformed"] += 1
            return None
        if sender == self._own:
            return None
        known = self._openers.get(sender)
        cipher = known[1] if known is not None and known[0] == life else self._derived(sender, life)
        try:
            payload = cipher.decrypt(_nonce(number), datagram[_HEADER.size :], datagram[: _HEADER.size])
        except InvalidTag:
            self.dropped["forged"] += 1
            return None
        self._openers[sender] = life, cipher
        return self._servers[sender], payload

    def _derived(self, sender: int, life: bytes) -> AESGCM:
        info = self._context + sender.to_bytes(2, "big")
        return AESGCM(HKDF(SHA256(), _KEY_BYTES, life, info).derive(self._hash_key))


def _nonce(number: int) -> bytes:
    return number.to_bytes(_NONCE_BYTES, "big")
