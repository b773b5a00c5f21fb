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

EVENT_TIME_US_MIN: Final = -62_135_596_800_000_000
"""The first time variable of an event: the beginning of year 1 in UTC, before which no date can be."""

EVENT_TIME_US_MAX: Final = 253_402_300_799_999_999
"""The last one: the end of year 9999 in UTC."""

NUMBER_MAX: Final = 2**63 - 1
"""An epoch or a number that an agent chooses: the log's readers hold it in 64 bits with a sign."""

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

CESQL_SOUGHT_CHARACTERS_MAX: Final = 1_024
"""Characters between two ``%`` in all patterns of one expression in CESQL: each may meet each of a value's."""

CESQL_TEXT_CHARACTERS_MAX: Final = 2 * MESSAGE_BYTES_MAX
"""Characters of a text that an expression in CESQL puts together of others."""

XML_FILTER_BYTES_MAX: Final = 8 * EXPRESSION_CHARACTERS_MAX
"""One filter in XML, which has room for every expression of interest."""

XML_FILTER_DEPTH_MAX: Final = 2 * EXPRESSION_DEPTH_MAX + 8
"""Nesting of elements of one filter in XML: an `or` of `and` is two deep without a parenthesis."""

XML_FILTER_ELEMENTS_MAX: Final = 8_192
"""Elements of one filter in XML."""

XML_NOTIFICATION_BYTES_MAX: Final = 32 * EVENT_BYTES_MAX
"""One notification in XML, which has room for every event, a list of small numbers too."""

XML_NOTIFICATION_ELEMENTS_MAX: Final = 2 * EVENT_BYTES_MAX
"""Elements of one notification in XML."""

XML_STREAM_BYTES_MAX: Final = 2**30
"""A compressed stream of filters, once decompressed."""

NORMAL_FORM_CONJUNCTIONS_MAX: Final = 256
"""Conjunctions of one filter's normal form; what would give more is evaluated and not looked into."""

CONJUNCTION_FILTERS_MAX: Final = 256
"""Attribute filters of one conjunction; those past it are evaluated and not looked into."""

CLAUSE_TERMS_MAX: Final = 128
"""Terms and patterns of one clause; a clause that would have more is evaluated and not looked into."""

CLOUDEVENT_BYTES_MAX: Final = 8 * EVENT_BYTES_MAX
"""One event as the JSON of CloudEvents, which has room for every event."""

SIP_MESSAGE_BYTES_MAX: Final = 65_535
"""One SIP message over UDP (RFC 3261 18.1.1: the largest datagram)."""

SIP_HEAD_BYTES_MAX: Final = 16_384
"""Start line and header fields of one SIP message: reading takes time for every byte, and anybody may send them."""

SIP_HEADERS_MAX: Final = 256
"""Header fields of one SIP message."""

DATAGRAM_BYTES_MAX: Final = 1_200
"""One datagram of the data channel: under the path MTU of nearly every network (RFC 9000 14)."""

UDP_PAYLOAD_BYTES_MAX: Final = 65_507
"""What one UDP datagram carries at most over IPv4 (RFC 768, RFC 791): a message of the original ECI is one datagram."""
