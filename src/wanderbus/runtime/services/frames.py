"""Frames between a server and a service: length and msgpack, after both sides have proved that they know the key.

A service has a socket ``services/NAME.sock`` in the data directory of its server, and a key in ``services/NAME.key``.
It sends an :class:`OpeningFrame`, and each side answers the other's nonce with a :class:`Proof`. Then each
:class:`RequestFrame` has one :class:`AnswerFrame`. A request has a name and a version, so a
service may answer several versions.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
from typing import Final, TypeVar

import msgspec

from wanderbus.errors import AuthenticationError, RemoteProtocolError, StorageError

PROTOCOL: Final = 1
"""Version of the frames and of the proofs."""

FRAME_BYTES_MAX: Final = 16 * 2**20

_LENGTH: Final = struct.Struct(">I")
_PEER: Final = struct.Struct("iII")
"""Process, user and group of a peer (``struct ucred``)."""
_NONCE_BYTES: Final = 32
_SERVICE: Final = b"service"
_CALLER: Final = b"caller"

Message = TypeVar("Message")


class ServiceAway(StorageError):
    """The service cannot answer now; it may later."""


class ServiceAbsent(ServiceAway):
    """No process is the service."""


class OpeningFrame(msgspec.Struct, frozen=True):
    """First frame of a service; the caller's proof contains ``nonce``. With a ``refusal`` it is the last frame too."""

    protocol: int
    service: str
    nonce: bytes
    refusal: str = ""


class Proof(msgspec.Struct, frozen=True):
    """Proof that the sender knows the key; the answer to the caller's proof contains the caller's ``nonce``."""

    digest: bytes
    nonce: bytes = b""


class RequestFrame(msgspec.Struct, frozen=True):
    """Request ``name`` in ``version``; the answer has the same ``number``."""

    number: int
    name: str
    version: int
    body: msgspec.Raw


class AnswerFrame(msgspec.Struct, frozen=True):
    """Answer to a request: a ``body``, or the ``reason`` for which there is none.

    :param failure: ``refused`` (asking again is useless), ``unavailable`` (the service may answer later) or ``unknown``
        (the service has no such request)
    """

    number: int
    body: msgspec.Raw = msgspec.Raw(b"\xc0")
    failure: str = ""
    reason: str = ""


def send(connection: socket.socket, message: msgspec.Struct) -> None:
    """Send one frame; ``OSError`` if the connection is closed."""
    body = msgspec.msgpack.encode(message)
    if len(body) > FRAME_BYTES_MAX:
        raise RemoteProtocolError(f"a frame of {len(body)} bytes is longer than {FRAME_BYTES_MAX}", None)
    connection.sendall(_LENGTH.pack(len(body)) + body)


def receive(connection: socket.socket, kind: type[Message]) -> Message | None:
    """Return the next frame as ``kind``, None at the end of the connection.

    :raises RemoteProtocolError: the frame is too long, or is not such a message
    :raises OSError: the connection was broken, or the timeout of the socket has passed
    """
    head = _exactly(connection, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > FRAME_BYTES_MAX:
        raise RemoteProtocolError(f"a frame of {length} bytes is longer than {FRAME_BYTES_MAX}", None)
    body = _exactly(connection, length)
    if body is None:
        return None
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"a frame is no {kind.__name__}: {error}", None) from None


def refuse(connection: socket.socket, service: str, reason: str) -> None:
    """Send the reason for which this caller gets no answer; the service's side."""
    send(connection, OpeningFrame(PROTOCOL, service, b"", reason))


def peer_user(connection: socket.socket) -> int:
    """Return the id of the user whose process has opened a connection of a Unix socket, as the system knows it."""
    _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(user)


def admit(connection: socket.socket, service: str, key: bytes) -> None:
    """Let a caller prove that it knows the key, and prove it to the caller; the service's side.

    :raises AuthenticationError: the caller does not know the key
    """
    nonce = secrets.token_bytes(_NONCE_BYTES)
    send(connection, OpeningFrame(PROTOCOL, service, nonce))
    proof = receive(connection, Proof)
    if proof is None or not hmac.compare_digest(proof.digest, _digest(key, _CALLER, service, nonce)):
        raise AuthenticationError(f"a caller of the service {service} does not know its key")
    send(connection, Proof(_digest(key, _SERVICE, service, proof.nonce)))


def introduce(connection: socket.socket, service: str, key: bytes) -> None:
    """Prove to a service that we know the key, and require the same of it; the caller's side.

    :raises ServiceAway: the service is another one, has another version or does not know the key
    :raises AuthenticationError: the service refuses the user of this process
    """
    opening = receive(connection, OpeningFrame)
    if opening is not None and opening.refusal:
        raise AuthenticationError(opening.refusal)
    if opening is None or (opening.protocol, opening.service) != (PROTOCOL, service):
        raise ServiceAway(f"the service {service} has another version; start it again from the same installation")
    nonce = secrets.token_bytes(_NONCE_BYTES)
    send(connection, Proof(_digest(key, _CALLER, service, opening.nonce), nonce))
    proof = receive(connection, Proof)
    if proof is None or not hmac.compare_digest(proof.digest, _digest(key, _SERVICE, service, nonce)):
        raise ServiceAway(f"the service {service} has another key; start it again")


def _digest(key: bytes, side: bytes, service: str, nonce: bytes) -> bytes:
    return hmac.digest(key, b"\x00".join((side, service.encode(), nonce)), "sha256")


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    """Return the next ``count`` bytes, None if the connection ends before."""
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 2**20))
        if not part:
            return None
        parts += part
    return bytes(parts)
