"""Bounds on what others may send us, in one place, so that each can be found and argued about.

Every bound that is met by outside input raises or refuses with its own name (SPEC U, Taste: bound everything).
"""

from __future__ import annotations

from typing import Final

EVENT_ATTRIBUTES_MAX: Final = 256
"""Attributes of one event."""

EVENT_NAME_CHARACTERS_MAX: Final = 256
"""Characters of a subject or of an attribute's name."""

EVENT_LIST_ITEMS_MAX: Final = 1_024
"""Items of one list attribute."""

MESSAGE_BYTES_MAX: Final = 65_536
"""One application message on the data channel, encoded."""

EVENT_BYTES_MAX: Final = MESSAGE_BYTES_MAX // 2
"""One event, encoded: what is left of a notification's message is for the ids of the subscriptions it matches."""

SUBSCRIPTION_BYTES_MAX: Final = MESSAGE_BYTES_MAX // 2
"""One subscription, encoded; answers that list more than that are sent in parts."""

RESTRICTIONS_MAX: Final = 64
"""Restrictions of one subscription: each may be asked for every event that matches."""

REASON_CHARACTERS_MAX: Final = 1_000
"""Text of a refusal, which may quote what was refused."""

EXPRESSION_CHARACTERS_MAX: Final = 16_384
"""Characters of one expression of interest."""

EXPRESSION_DEPTH_MAX: Final = 64
"""Nesting of one expression of interest."""

SIP_MESSAGE_BYTES_MAX: Final = 65_535
"""One SIP message over UDP (RFC 3261 18.1.1: the largest datagram)."""

SIP_HEADERS_MAX: Final = 256
"""Header fields of one SIP message."""

DATAGRAM_BYTES_MAX: Final = 1_200
"""One datagram of the data channel: under the path MTU of nearly every network (RFC 9000 14)."""

UDP_PAYLOAD_BYTES_MAX: Final = 65_507
"""What one UDP datagram carries at most over IPv4 (RFC 768, RFC 791): a message of the original ECI is one datagram."""
