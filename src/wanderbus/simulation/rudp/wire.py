"""Reader of reliable UDP datagrams, for watchers and attackers: written from the format, independent of ``rudp``.

So an error that both ends of a connection share is noticed here.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from wanderbus.rudp.interface import Secrets
from wanderbus.rudp.sealing import Sealer

SEALED: Final = 0x01
RESET: Final = 0x02
PLAIN: Final = 0x03
HEADER_BYTES: Final = 28
RESET_BYTES: Final = 33
KIND_OFFSET: Final = 16

_HEADER = struct.Struct("!QQBBHQ")
_DATA = struct.Struct("!QH")
_ACK = struct.Struct("!QQQ")
_DATA_KINDS: Final = (0x01, 0x02)
_HALF_KINDS: Final = (0x0A, 0x0B, 0x0C, 0x0D)
_ACK_KIND: Final = 0x03
_PING, _WINDOW, _CHALLENGE, _RESPONSE, _TOKEN, _FINISH = range(0x04, 0x0A)
_BYTES: Final = {0x00: 0, _PING: 0, _WINDOW: 8, _CHALLENGE: 8, _RESPONSE: 8, _TOKEN: 16, _FINISH: 8}
_NOT_ELICITING: Final = (0x00, _ACK_KIND, _CHALLENGE, _RESPONSE)
_NEVER: Final = 2**62
"""Packets until a watcher would change keys by itself: it only decrypts."""


class Packet(msgspec.Struct, frozen=True):
    """One packet as it was sent, as a watcher with the keys reads it."""

    number: int
    epoch: int
    """The low 8 bits of the key epoch."""
    generation: int
    data: tuple[int, ...]
    """The DATA numbers in it, including that of a FINISH; of two halves that of the first."""
    halved: tuple[int, ...]
    """Those of them that are only the first half."""
    fresh: tuple[int, ...]
    """Packet numbers that are acknowledged as just arrived."""
    again: tuple[int, ...]
    """Packet numbers that are acknowledged again."""
    granted: int
    """The highest DATA number, exclusive, that may be sent; 0 if the packet does not mention it."""
    challenges: bool
    eliciting: bool


class Wiretap:
    """Reads the datagrams of one side of a connection; ``secrets`` are those of that side, None in plain mode."""

    def __init__(self, secrets: Secrets | None) -> None:
        swapped = Secrets(sending=secrets.receiving, receiving=secrets.sending) if secrets else None
        self._opener = Sealer(swapped, _NEVER) if swapped else None

    def read(self, datagram: bytes) -> Packet:
        """Return the packet; raise ``ValueError`` or ``struct.error`` if its format is wrong."""
        _, _, kind, epoch, generation, number = _HEADER.unpack_from(datagram)
        if kind != (SEALED if self._opener else PLAIN):
            raise ValueError(f"kind {kind} is not that of the connection")
        frames: bytes | None = datagram[HEADER_BYTES:]
        if self._opener:
            frames = self._opener.open(datagram, number, epoch)
        if frames is None:
            raise ValueError(f"packet {number} is not sealed with the key of epoch {epoch}")
        return _read_frames((number, epoch, generation), frames)


def ids_of(datagram: bytes) -> tuple[int, int]:
    """Return (destination id, source id)."""
    return int.from_bytes(datagram[:8], "big"), int.from_bytes(datagram[8:16], "big")


def _read_frames(header: tuple[int, int, int], frames: bytes) -> Packet:
    data: list[int] = []
    halved: list[int] = []
    fresh: list[int] = []
    again: list[int] = []
    granted, challenges, eliciting = 0, False, False
    offset = 0
    while offset < len(frames):
        kind = frames[offset]
        offset += 1
        if kind in _DATA_KINDS or kind in _HALF_KINDS:
            data_number, length = _DATA.unpack_from(frames, offset)
            if kind not in _HALF_KINDS or kind & 1 == 0:
                data.append(data_number)
            if kind in _HALF_KINDS and kind & 1 == 0:
                halved.append(data_number)
            offset += _DATA.size + length
        elif kind == _ACK_KIND:
            newest, fresh_bits, again_bits = _ACK.unpack_from(frames, offset)
            fresh += [newest, *_marks(newest, fresh_bits)]
            again += _marks(newest, again_bits)
            offset += _ACK.size
        elif kind in _BYTES:
            value = int.from_bytes(frames[offset : offset + 8], "big")
            if kind == _WINDOW:
                granted = max(granted, value)
            elif kind == _FINISH:
                data.append(value)
            challenges = challenges or kind == _CHALLENGE
            offset += _BYTES[kind]
        else:
            raise ValueError(f"frame type {kind:#04x} is unknown")
        eliciting = eliciting or kind not in _NOT_ELICITING
    if offset > len(frames):
        raise ValueError("a frame is cut short")
    return Packet(*header, tuple(data), tuple(halved), tuple(fresh), tuple(again), granted, challenges, eliciting)


def _marks(newest: int, bits: int) -> list[int]:
    return [newest - 1 - i for i in range(64) if bits >> i & 1]
