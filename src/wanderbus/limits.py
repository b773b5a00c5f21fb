"""Bounds on input from others, all in one place.

Every bound that outside input reaches raises or refuses with its own name (SPEC U, Taste: bound everything).
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
"""Earliest time variable of an event: the beginning of year 1 in UTC, the first representable date."""

EVENT_TIME_US_MAX: Final = 253_402_300_799_999_999
"""Latest time variable of an event: the end of year 9999 in UTC."""

NUMBER_MAX: Final = 2**63 - 1
"""An epoch or a number that an agent chooses: the log stores it as a signed 64-bit integer."""

MESSAGE_BYTES_MAX: Final = 65_536
"""One application message on the data channel, encoded."""

EVENT_BYTES_MAX: Final = MESSAGE_BYTES_MAX // 2
"""One event, encoded, unless ``broker.event_bytes_max`` differs. The rest of a notification's message holds the ids of
the matching subscriptions."""

ORIGIN_BYTES_MAX: Final = 640
"""Bytes that the origin adds to an event of a foreign domain: names of the domain and of its server, two numbers."""

PAST_BYTES_MAX: Final = 2_048
"""Bytes that its causal past in other domains adds to an event."""

EVENT_BYTES_MOST: Final = 2**20
"""Largest value of ``broker.event_bytes_max``: agents and links between servers accept events of this size."""

SUBSCRIPTION_BYTES_MAX: Final = MESSAGE_BYTES_MAX // 2
"""One subscription, encoded; longer listings are sent in parts."""

SCHEMA_BYTES_MAX: Final = MESSAGE_BYTES_MAX // 2
"""Declared attributes of one subject, encoded."""

SCHEMA_UNIT_CHARACTERS_MAX: Final = 64
"""Unit of a declared attribute."""

SCHEMA_MEANING_CHARACTERS_MAX: Final = 1_000
"""Meaning of a declared attribute."""

FORWARDED_BYTES_MAX: Final = 2**20
"""Events of one device that wait for the answers of the servers which lead their channels; each counts a KiB more."""

HELD_BYTES_MAX: Final = 2**17
"""Events of one publisher that wait at the leader of their channels until all servers have reported which they want, or
another one leads; each counts :data:`HELD_EVENT_BYTES` more."""

HELD_EVENT_BYTES: Final = 1_024
"""Bytes that an event takes while it waits, beside its own."""

FOREIGN_PUBLISHERS_MAX: Final = 4_096
"""Servers of one foreign domain, each with each of its channels, whose events are recognised here when they are
repeated."""

RESTRICTIONS_MAX: Final = 64
"""Restrictions of one subscription: each may be evaluated for every matching event."""

REASON_CHARACTERS_MAX: Final = 1_000
"""Text of a refusal, which may quote the refused value."""

EXPRESSION_CHARACTERS_MAX: Final = 16_384
"""Characters of one expression of interest."""

EXPRESSION_DEPTH_MAX: Final = 64
"""Nesting of one expression of interest."""

CESQL_SOUGHT_CHARACTERS_MAX: Final = 1_024
"""Characters between two ``%`` in all patterns of one CESQL expression: each may be compared with each of a value's."""

CESQL_TEXT_CHARACTERS_MAX: Final = 2 * MESSAGE_BYTES_MAX
"""Characters of a text that a CESQL expression concatenates."""

XML_FILTER_BYTES_MAX: Final = 8 * EXPRESSION_CHARACTERS_MAX
"""One filter in XML; large enough for every expression of interest."""

XML_FILTER_DEPTH_MAX: Final = 2 * EXPRESSION_DEPTH_MAX + 8
"""Nesting of elements of one filter in XML: an `or` of `and` is two deep without a parenthesis."""

XML_FILTER_ELEMENTS_MAX: Final = 8_192
"""Elements of one filter in XML."""

XML_NOTIFICATION_BYTES_MAX: Final = 32 * EVENT_BYTES_MAX
"""One notification in XML; large enough for every event, including a list of small numbers."""

XML_NOTIFICATION_ELEMENTS_MAX: Final = 2 * EVENT_BYTES_MAX
"""Elements of one notification in XML."""

XML_STREAM_BYTES_MAX: Final = 2**30
"""A compressed stream of filters, after decompression."""

NORMAL_FORM_CONJUNCTIONS_MAX: Final = 256
"""Conjunctions of one filter's normal form; a filter with more is evaluated but not analysed."""

NORMAL_FORM_WORK_MAX: Final = 4_000_000
"""Units of work for one normal form, of about 10 ns; a filter that needs more is evaluated but not analysed."""

INTEREST_CONJUNCTIONS_MAX: Final = 32
"""Conjunctions of a filter that are compared and merged with others; a larger filter is compared as a whole."""

INTEREST_WEIGHT_MAX: Final = 2_048
"""Parts of all conjunctions of a filter that is compared and merged with others; a larger one, as a whole."""

MERGE_WORK_MAX: Final = 300_000
"""Units of work, of about 10 ns, to compare a filter with others and to merge it, when it is added or removed; what
exceeds it stays as it is, which costs more messages."""

USER_MERGE_WORK_PER_S_MAX: Final = 500_000
"""Units of work a second to merge all filters of a subject, for the publishing agents of one user; a burst of two
seconds at once. Beyond it they get no filters for now, and publish every event."""

PUBLISHER_FILTER_WORK_MAX: Final = 500_000
"""Units of work of all filters of a subject for one event at a publishing agent; beyond it the event is sent."""

MERGE_WEIGHT_MAX: Final = 512
"""Parts of the filters of one structure that are merged with one another; more of them, in blocks of as many."""

CONJUNCTION_FILTERS_MAX: Final = 256
"""Attribute filters of one conjunction; further ones are evaluated but not analysed."""

CLAUSE_TERMS_MAX: Final = 128
"""Terms and patterns of one clause; a clause with more is evaluated but not analysed."""

CLOUDEVENT_BYTES_MAX: Final = 8 * EVENT_BYTES_MAX
"""One event as the JSON of CloudEvents; large enough for every event."""

SIP_MESSAGE_BYTES_MAX: Final = 65_535
"""One SIP message over UDP (RFC 3261 18.1.1: the largest datagram)."""

SIP_HEAD_BYTES_MAX: Final = 16_384
"""Start line and header fields of one SIP message: parsing takes time for every byte, and anybody may send them."""

SIP_HEADERS_MAX: Final = 256
"""Header fields of one SIP message."""

DATAGRAM_BYTES_MAX: Final = 1_200
"""One datagram of the data channel: under the path MTU of nearly every network (RFC 9000 14)."""

UDP_PAYLOAD_BYTES_MAX: Final = 65_507
"""Largest payload of a UDP datagram over IPv4 (RFC 768, RFC 791): a message of the original ECI is one datagram."""
