"""Division of frames that are too long for their path; see :mod:`wanderbus.rudp.path_mtu`.

A frame that was sent keeps its DATA number and is divided into two halves. Frames that still wait get new numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wanderbus.rudp.frames import (
    DATA_HEADER_BYTES,
    DATA_MORE,
    FINISH,
    HALF,
    PING,
    PING_FRAME,
    WINDOW,
    decode_frames,
    encode_carrying,
    encode_data,
    encode_half,
    encode_halves,
    encode_numbered,
)


def divided(payload: bytes, size_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Yield the ``payload`` of a packet in pieces of at most ``size_bytes``, each with the bytes of its DATA frames.

    A piece is a bundle of its own; no two halves of a frame share one, since DATA numbers rise in a packet.
    """
    piece, data_bytes = b"", 0
    for frame, is_data, begins in _frames(payload, size_bytes):
        if piece and (begins or len(piece) + len(frame) > size_bytes):
            yield piece, data_bytes
            piece, data_bytes = b"", 0
        piece += frame
        data_bytes += len(frame) * is_data
    if piece:
        yield piece, data_bytes


def _frames(payload: bytes, size_bytes: int) -> Iterator[tuple[bytes, bool, bool]]:
    """Yield each frame or half, whether it is DATA, and whether it must begin another packet."""
    data, _, controls = decode_frames(payload)
    for kind, carried in controls:
        if isinstance(carried, int):
            yield encode_numbered(WINDOW, carried), False, False
        else:
            yield PING_FRAME if kind == PING else encode_carrying(kind, carried), False, False
    for number, kind, content in data:
        if kind == FINISH:
            yield encode_numbered(FINISH, number), True, False
        elif kind >= HALF:
            yield encode_half(number, kind, content), True, False
        elif DATA_HEADER_BYTES + len(content) <= size_bytes:
            yield encode_data(number, kind == DATA_MORE, content), True, False
        else:
            first, second = encode_halves(number, kind == DATA_MORE, content)
            yield first, True, False
            yield second, True, True


def renumbered(waiting: Iterable[bytes], first: int, content_bytes_max: int) -> list[bytes]:
    """Return DATA and FINISH frames that were never sent, numbered from ``first``, with at most so many bytes each."""
    frames: list[bytes] = []
    for frame in waiting:
        ((_, kind, content),) = decode_frames(frame).data
        if kind == FINISH:
            frames.append(encode_numbered(FINISH, first + len(frames)))
            continue
        for start in range(0, len(content) or 1, content_bytes_max):
            is_last = start + content_bytes_max >= len(content)
            piece = content[start : start + content_bytes_max]
            frames.append(encode_data(first + len(frames), kind == DATA_MORE or not is_last, piece))
    return frames
