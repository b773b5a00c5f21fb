"""Causal past of an event across domains: which events of which servers precede it, for which domains (decision 0175).

An event that crosses is known in all domains by its id in its own one. A domain waits for it if it was put into the
queue for that domain; the own domain of an event always counts as one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from wanderbus.errors import RemoteProtocolError
from wanderbus.event import EventId, Number
from wanderbus.limits import PAST_BYTES_MAX
from wanderbus.protocol.bases import decoded

CAUSE_WAIT_S: Final = 10.0
"""Longest time for which an event waits for its causes, and time after which a cause is named no more."""

PAST_DOMAINS_MAX: Final = 32
"""Domains that a past names: the own one, and those that ask for causal order with it."""

PAST_CAUSES_MAX: Final = 64
"""Causes of one event; the oldest ones are left out if there are more."""

_TARGETS_BYTES: Final = PAST_DOMAINS_MAX // 8
_FIELD_BYTES: Final = 8
"""Bytes around a past in the event, at most: its name, and its length."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class Cause(NamedTuple):
    """An event that precedes another one, and the domains that wait for it before they may read the other one."""

    origin: str
    """Its server, as ``DOMAIN/SERVER``."""
    incarnation: int
    number: int
    targets: frozenset[str]

    @property
    def place(self) -> tuple[int, int]:
        """Return its place among the events of its server."""
        return self.incarnation, self.number


class DomainPast(NamedTuple):
    """The domains that an event itself is for, and its causes."""

    domain: str
    """Domain in which it was published."""
    targets: frozenset[str]
    """Domains whose queues have it, and its own one, if any has."""
    causes: tuple[Cause, ...] = ()


class _Cause(msgspec.Struct, frozen=True, array_like=True, gc=False):
    domain: Annotated[int, msgspec.Meta(ge=0, lt=PAST_DOMAINS_MAX)]
    server: Name
    incarnation: Number
    number: Number
    targets: Annotated[int, msgspec.Meta(ge=0, lt=1 << PAST_DOMAINS_MAX)]


class _Past(msgspec.Struct, frozen=True, array_like=True, gc=False):
    targets: Annotated[bytes, msgspec.Meta(min_length=_TARGETS_BYTES, max_length=_TARGETS_BYTES)]
    """Bitmap of fixed length, so that the length of an event is known before its destinations are."""
    domains: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=PAST_DOMAINS_MAX)]
    causes: Annotated[tuple[_Cause, ...], msgspec.Meta(max_length=PAST_CAUSES_MAX)] = ()


_decoder: Final = msgspec.msgpack.Decoder(_Past)


def encode_domain_past(past: DomainPast, domains: Sequence[str]) -> bytes:
    """Return the bytes of a past, whose newest cause is the first; what exceeds a bound is left out.

    ``domains`` begins with the own one. Others are not named.
    """
    places = {name: place for place, name in enumerate(domains[:PAST_DOMAINS_MAX])}
    causes: list[_Cause] = []
    for each in past.causes[:PAST_CAUSES_MAX]:
        domain, _, server = each.origin.partition("/")
        if domain in places:
            causes.append(_Cause(places[domain], server, *each.place, _bits(each.targets, places)))
    targets = _bits(past.targets, places).to_bytes(_TARGETS_BYTES, "big")
    while True:
        data = msgspec.msgpack.encode(_Past(targets, tuple(places), tuple(causes)))
        if len(data) + _FIELD_BYTES <= PAST_BYTES_MAX or not causes:
            return data
        del causes[len(causes) // 2 :]


def decode_domain_past(data: bytes) -> DomainPast:
    """Return the past in ``data``; :class:`RemoteProtocolError` for invalid data."""
    found = decoded(_decoder, data, "a causal past of domains")
    domains = found.domains
    causes = [
        Cause(f"{domains[each.domain]}/{each.server}", each.incarnation, each.number, _names(each.targets, domains))
        for each in found.causes
        if each.domain < len(domains) and "/" not in each.server
    ]
    return DomainPast(domains[0], _names(int.from_bytes(found.targets, "big"), domains), tuple(causes))


def readable_past(data: bytes) -> DomainPast | None:
    """Return the past of an event that another server of the own domain has sent, None for invalid data.

    The log has such an event, so it must not stop whoever reads the log.
    """
    try:
        return decode_domain_past(data)
    except RemoteProtocolError:
        return None


def restricted(past: DomainPast, domain: str, own: str, known: Iterable[str]) -> DomainPast:
    """Return what this domain believes of a past that another ``domain`` has sent.

    That is what concerns domains that ask for causal order with this one.
    """
    allowed = {own, domain, *known}
    causes = tuple(
        [
            each._replace(targets=each.targets & allowed)
            for each in past.causes
            if each.origin.partition("/")[0] in allowed and each.targets & allowed
        ]
    )
    return DomainPast(domain, (past.targets & allowed) | {domain}, causes)


def origin_of(origin: EventId | None, identity: EventId, domain: str) -> EventId:
    """Return the id by which all domains know an event: that of its ``origin``, or its own one in ``domain``."""
    return origin or EventId(f"{domain}/{identity.origin}", identity.incarnation, identity.number)


def _bits(names: Iterable[str], places: dict[str, int]) -> int:
    bits = 0
    for each in names:
        if (place := places.get(each)) is not None:
            bits |= 1 << place
    return bits


def _names(bits: int, domains: Sequence[str]) -> frozenset[str]:
    return frozenset([name for place, name in enumerate(domains) if bits >> place & 1])
