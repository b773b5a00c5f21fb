"""Directions of media in offer and answer: sendrecv, sendonly, recvonly, inactive (RFC 3264 6.1, 8.4)."""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.sip.message.sdp import MediaDescription

SENDRECV: Final = "sendrecv"
INACTIVE: Final = "inactive"

_BY_FLOWS: Final = {
    (True, True): SENDRECV,
    (True, False): "sendonly",
    (False, True): "recvonly",
    (False, False): INACTIVE,
}
"""Direction by (the side sends, the side receives)."""

_FLOWS: Final = {word: flows for flows, word in _BY_FLOWS.items()}

_UNSPECIFIED: Final = ("0.0.0.0", "::")
"""Addresses by which senders older than RFC 3264 state that they do not receive (8.4)."""


def direction_of(line: MediaDescription) -> str:
    """Return the direction that ``line`` states, from its own side; sendrecv by default."""
    sends, receives = _flows(line)
    return _BY_FLOWS[sends, receives]


def receives(line: MediaDescription) -> bool:
    """Return whether the side that ``line`` describes receives data."""
    return _flows(line)[1]


def agreed_direction(ours: MediaDescription, theirs: MediaDescription) -> str:
    """Return the direction in which data may flow between two lines, from our side."""
    (we_send, we_receive), (they_send, they_receive) = _flows(ours), _flows(theirs)
    return _BY_FLOWS[we_send and they_receive, we_receive and they_send]


def answering(ours: MediaDescription, offered: MediaDescription) -> MediaDescription:
    """Return our line as the answer to ``offered``, limited to the directions of the offer (RFC 3264 6.1)."""
    direction = agreed_direction(ours, offered)
    return ours if direction == direction_of(ours) else with_direction(ours, direction)


def with_direction(line: MediaDescription, direction: str) -> MediaDescription:
    """Return ``line`` with this direction; sendrecv is the default and is not written."""
    rest = tuple(pair for pair in line.attributes if pair[0] not in _FLOWS)
    stated = () if direction == SENDRECV else ((direction, None),)
    return msgspec.structs.replace(line, attributes=(*rest, *stated))


def _flows(line: MediaDescription) -> tuple[bool, bool]:
    stated = next((name for name, _ in line.attributes if name in _FLOWS), SENDRECV)
    sends, receives = _FLOWS[stated]
    return sends, receives and line.address not in _UNSPECIFIED
