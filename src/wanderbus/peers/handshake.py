"""Binary format of offers and answers between servers, their authentication, and the keys of a link (SPEC J-12).

::

    offer    0 u64 | 0x01 | opener's id u64 | 0 u64             | public key | opener, acceptor | tables | MAC
    answer   0 u64 | 0x02 | opener's id u64 | acceptor's id u64 | public key | MAC
    refusal  0 u64 | 0x03 | opener's id u64 | 0 u64             | 0          | tables | MAC

All numbers are big-endian; a public key and a MAC have 32 bytes each. A name is its length in bytes, one byte, and its
UTF-8. Tables are digests of those parts of the domain's file that have to be equal, 8 bytes each. Packets of reliable
UDP share the socket with these datagrams, which begin with 0: that is no id of a connection. An answer, or a refusal,
is shorter than its offer.

The MACs are HMAC-SHA256, that of an answer or a refusal also over its whole offer. Their keys are derived from the
static X25519 keys of the two servers, the name of the domain, both names, and who opens, so only the two servers can
compute them, and an offer of one direction, pair or domain is worth nothing in another. The public keys are fresh for
each link, and the secrets of a link come from them, so static keys that leak later do not decrypt a recording.
"""

from __future__ import annotations

import hmac
import struct
from typing import Final

from wanderbus.errors import RemoteProtocolError
from wanderbus.peers.offers import LinkAnswer, LinkOffer, LinkRefusal
from wanderbus.rudp.interface import Secrets
from wanderbus.rudp.keys import KEY_BYTES, KeyPair

NAME_BYTES_MAX: Final = 255
"""UTF-8 bytes of the name of a server or of a domain."""

_OFFER: Final = 0x01
_ANSWER: Final = 0x02
_REFUSAL: Final = 0x03
_DIGEST_BYTES: Final = 8
_TABLES_MAX: Final = 32
_RESERVED: Final = bytes(8)
_MAC_BYTES: Final = 32
_HEADER = struct.Struct(f"!QBQQ{KEY_BYTES}s")
_MAC_LABEL: Final = b"wanderbus server link, MAC 1"
_SALT_LABEL: Final = b"wanderbus server link, salt 1"


class LinkKeys:
    """Static keys of the links between two servers that one of them opens; both compute the same.

    :param keys: static keys of this server
    :param public: static public key of the other server, 32 bytes
    :param domain: name of the domain
    :param opener: name of the server that opens the links
    :param acceptor: name of the server that accepts them
    :param opens: True if this server is the opener
    :raises RemoteProtocolError: ``public`` is not a key, or gives everybody the same secret
    :raises ValueError: a name is empty or has more than ``NAME_BYTES_MAX`` bytes
    """

    def __init__(self, keys: KeyPair, public: bytes, *, domain: str, opener: str, acceptor: str, opens: bool) -> None:
        self._names = _encode_name(opener) + _encode_name(acceptor)
        context = _encode_name(domain) + self._names
        macs = keys.secrets(public, salt=b"", context=_MAC_LABEL + context, first=opens)
        salts = keys.secrets(public, salt=b"", context=_SALT_LABEL + context, first=opens)
        self._offer_key, self._answer_key = _from_opener(macs, opens)
        self._salt = b"".join(_from_opener(salts, opens))
        self._opens = opens

    def offer(self, opener_id: int, public: bytes, tables: bytes = b"") -> bytes:
        """Return an offer with the id of the opener's connection, its fresh public key, and digests of its tables."""
        body = _HEADER.pack(0, _OFFER, opener_id, 0, public) + self._names + tables
        return body + _mac(self._offer_key, body)

    def answer(self, offer: LinkOffer, acceptor_id: int, public: bytes) -> bytes:
        """Return the answer to ``offer`` with the id of the acceptor's connection and its fresh public key."""
        body = _HEADER.pack(0, _ANSWER, offer.opener_id, acceptor_id, public)
        return body + _mac(self._answer_key, offer.data + body)

    def refusal(self, offer: LinkOffer, tables: bytes) -> bytes:
        """Return the refusal of ``offer`` with the digests of the acceptor's tables."""
        body = _HEADER.pack(0, _REFUSAL, offer.opener_id, 0, bytes(KEY_BYTES)) + tables
        return body + _mac(self._answer_key, offer.data + body)

    def is_genuine_offer(self, offer: LinkOffer) -> bool:
        """Return whether the opener has made ``offer``, now or at an earlier time."""
        return _is_mac(self._offer_key, offer.data[:-_MAC_BYTES], offer.data)

    def is_genuine_answer(self, answer: LinkAnswer | LinkRefusal, offer: bytes) -> bool:
        """Return whether the acceptor has made ``answer`` to the datagram ``offer``."""
        return _is_mac(self._answer_key, offer + answer.data[:-_MAC_BYTES], answer.data)

    def secrets(self, fresh: KeyPair, public: bytes, offer: bytes, answer: bytes) -> Secrets:
        """Return the secrets of a link from this side's ``fresh`` keys and the other's fresh ``public`` key.

        They are bound to the static keys and to the datagrams ``offer`` and ``answer``, which contain both ids.

        :raises RemoteProtocolError: ``public`` is not a key, or gives everybody the same secret
        """
        return fresh.secrets(public, salt=self._salt, context=offer + answer, first=self._opens)


def is_handshake(data: bytes) -> bool:
    """Return whether ``data`` is an offer or an answer, if anything; no packet of reliable UDP begins so."""
    return data.startswith(_RESERVED)


def decode_handshake(data: bytes) -> LinkOffer | LinkAnswer | LinkRefusal:
    """Return the offer, the answer or the refusal in ``data``, whose MAC is not checked yet.

    :raises RemoteProtocolError: the format is invalid
    """
    if len(data) >= _HEADER.size + _MAC_BYTES and is_handshake(data):
        _, kind, opener_id, acceptor_id, public = _HEADER.unpack_from(data)
        names = data[_HEADER.size : -_MAC_BYTES]
        if kind == _OFFER and opener_id and not acceptor_id:
            opener, rest = _decode_name(names)
            acceptor, tables = _decode_name(rest)
            if _are_tables(tables):
                return LinkOffer(opener, acceptor, opener_id, public, tables, data)
        elif kind == _ANSWER and opener_id and acceptor_id and not names:
            return LinkAnswer(opener_id, acceptor_id, public, data)
        elif kind == _REFUSAL and opener_id and not acceptor_id and _are_tables(names):
            return LinkRefusal(opener_id, names, data)
    raise _malformed()


def _encode_name(name: str) -> bytes:
    encoded = name.encode()
    if not 0 < len(encoded) <= NAME_BYTES_MAX:
        raise ValueError(f"the name {name!r} has {len(encoded)} bytes (expected 1 to {NAME_BYTES_MAX})")
    return bytes([len(encoded)]) + encoded


def _decode_name(data: bytes) -> tuple[str, bytes]:
    """Return the name at the beginning of ``data``, and the rest."""
    end = 1 + data[0] if data else 0
    if not 1 < end <= len(data):
        raise _malformed()
    try:
        return data[1:end].decode(), data[end:]
    except UnicodeDecodeError:
        raise _malformed() from None


def _are_tables(data: bytes) -> bool:
    return len(data) % _DIGEST_BYTES == 0 and len(data) <= _TABLES_MAX * _DIGEST_BYTES


def _malformed() -> RemoteProtocolError:
    return RemoteProtocolError("a datagram is no offer of a server, no answer and no refusal", status=None)


def _from_opener(secrets: Secrets, opens: bool) -> tuple[bytes, bytes]:
    """Return the secret of the direction from the opener, and that of the other."""
    return (secrets.sending, secrets.receiving) if opens else (secrets.receiving, secrets.sending)


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _is_mac(key: bytes, covered: bytes, datagram: bytes) -> bool:
    return hmac.compare_digest(_mac(key, covered), datagram[-_MAC_BYTES:])
