"""Fuzzing of the readers of a data channel's remote input: reliable UDP, TCP, their openings, and their SDP.

Readers may only raise :class:`RemoteProtocolError`, and accepted input is written and has to be read the same again.
Live endpoints never raise and keep their bounds, for strangers and for malicious peers with the right keys.
"""

from __future__ import annotations

from random import Random
from typing import Final

from fuzz import channel, rudp_endpoint, rudp_grammar, rudp_openings
from fuzz.target_runs import Broken, Target
from wanderbus.errors import RemoteProtocolError
from wanderbus.rudp.frames import (
    FINISH,
    HEADER_BYTES,
    PADDING,
    PING,
    RESET,
    WINDOW,
    Frames,
    decode_frames,
    decode_header,
    encode_ack,
    encode_carrying,
    encode_data,
    encode_numbered,
)


def handle_frames(data: bytes) -> bool:
    """Read a datagram in plain, and write its frames."""
    try:
        header = decode_header(data)
        if header[2] == RESET:
            return True
        frames = decode_frames(data, HEADER_BYTES)
    except RemoteProtocolError:
        return False
    if decode_frames(_encoded(frames)) != frames:
        raise Broken("it is not read as it was written")
    return True


def _encoded(frames: Frames) -> bytes:
    written = [
        encode_numbered(FINISH, number) if kind == FINISH else encode_data(number, kind == 0x02, payload)
        for number, kind, payload in frames.data
    ]
    written += [encode_ack(*ack) for ack in frames.acks]
    for kind, carried in frames.controls:
        if kind == WINDOW:
            assert isinstance(carried, int)
            written.append(encode_numbered(kind, carried))
        elif kind == PING:
            written.append(bytes([PING, PADDING]))
        else:
            assert isinstance(carried, bytes)
            written.append(encode_carrying(kind, carried))
    return b"".join(written)


def handle_endpoint(script: bytes) -> bool:
    """Play a script against an endpoint of reliable UDP."""
    return rudp_endpoint.play(script).endpoint.counters.received > 0


def examine_nothing(data: bytes) -> None:
    """Do nothing: everything was checked in handling."""


def make_datagram(random: Random) -> bytes:
    """Return an approximate datagram."""
    return rudp_grammar.datagram(random)


TARGETS: Final = (
    Target("rudp-frames", make_datagram, handle_frames, examine_nothing),
    Target("rudp-endpoint", rudp_grammar.script, handle_endpoint, examine_nothing),
    Target("rudp-openings", rudp_openings.make, rudp_openings.handle, examine_nothing),
    Target("tcp-frames", channel.make_stream, channel.handle_stream, examine_nothing),
    Target("tcp-endpoint", channel.make_script, channel.handle_script, examine_nothing),
    Target("channel-sdp", channel.make_description, channel.handle_description, examine_nothing),
)
