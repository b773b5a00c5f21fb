"""The location service: which contacts an address of record has right now (RFC 3261 10, SPEC D-02, A-05).

A table from address of record to bindings. The registrar writes it, the proxy reads it. It holds no policy:
who may register, for how long and in which order updates count is the registrar's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from wanderbus.errors import LimitExceeded
from wanderbus.machine import Address, Output
from wanderbus.sip.message.targets import PORTS
from wanderbus.sip.message.uri import SIPUri

BINDINGS_PER_AOR_MAX: Final = 16
"""Contacts of one address of record: more devices than one person carries."""

AORS_MAX: Final = 100_000
"""Addresses of record with at least one binding."""

SIP_PORT: Final = 5060
"""Where SIP over UDP is served when a URI names no port (RFC 3261 19.1.2)."""

Place = tuple[str | None, str, int | None]
"""User, host and port of a contact: what is the same in all ways of writing it."""

_DECISIVE_PARAMS: Final = frozenset({"user", "ttl", "method", "maddr"})


class Domain(msgspec.Struct, frozen=True):
    """The one domain a server answers for: its ``name`` (lower case) and the ``address`` it listens on.

    ``streams`` says where it listens besides, by transport (TCP, TLS).
    """

    name: str
    address: Address
    streams: Mapping[str, Address] = {}

    @property
    def transports(self) -> frozenset[str]:
        """What the server can send over."""
        return frozenset({"UDP", *self.streams})

    def is_ours(self, address: Address) -> bool:
        """Say whether the server listens at ``address`` over any transport."""
        return address == self.address or address in self.streams.values()

    def serves(self, uri: SIPUri) -> bool:
        """Say whether ``uri`` is ours to resolve: our name or our address, at no port but ours (RFC 3261 16.4)."""
        if not uri.is_sip:
            return False
        if uri.host == self.name:
            return uri.port is None or any(uri.port == port for _, port in (self.address, *self.streams.values()))
        return self.is_ours((uri.host, uri.port or PORTS["TLS" if uri.scheme == "sips" else "UDP"]))

    def address_of_record(self, user: str) -> str:
        """Return the canonical address of record of ``user`` in this domain (SPEC A-05)."""
        return f"sip:{user}@{self.name}"


class BindingChanged(Output, frozen=True):
    """The set of contacts of ``aor`` changed; ``contacts`` is what it is now, in the order to be tried."""

    aor: str
    contacts: tuple[str, ...]


class Binding(msgspec.Struct, frozen=True):
    """One contact of an address of record.

    ``contact`` is a SIP URI; ``expires_at`` is in monotonic seconds; ``call_id`` and ``cseq`` name the REGISTER
    that last touched it (RFC 3261 10.3); ``instance`` is the device's ``+sip.instance`` (RFC 5626 4.1) or None;
    ``q`` is the preference from 0 to 1; ``connection`` is the stream that its device keeps open to us and can be
    reached on (a flow, RFC 5626), None where it has to be connected to.
    """

    contact: str
    expires_at: float
    call_id: str
    cseq: int
    instance: str | None = None
    q: float = 1.0
    connection: int | None = None


class BindingsWritten(Output, frozen=True):
    """The bindings of ``aor`` were written, be it only refreshed; ``bindings`` are all of them, newest first.

    Who wants them to survive a restart stores them, see :meth:`LocationService.snapshot`.
    """

    aor: str
    bindings: tuple[Binding, ...]


class LocationService:
    """Bindings by address of record, each list with the newest contact first."""

    def __init__(self) -> None:
        self._bindings: dict[str, tuple[Binding, ...]] = {}
        self._owners: dict[Place, tuple[str, ...]] = {}
        """Who has a contact there: nearly always one, of whom a set would take four times the room."""

    def __len__(self) -> int:
        return len(self._bindings)

    def __iter__(self) -> Iterator[str]:
        return iter(self._bindings)

    def bindings(self, aor: str, now: float) -> tuple[Binding, ...]:
        """Return the live bindings of ``aor`` at monotonic second ``now``: by falling ``q``, then newest first."""
        live = (binding for binding in self._bindings.get(aor, ()) if binding.expires_at > now)
        return tuple(sorted(live, key=lambda binding: -binding.q))

    def contacts(self, aor: str, now: float) -> tuple[str, ...]:
        """Return the live contacts of ``aor`` in the order to be tried."""
        return tuple(binding.contact for binding in self.bindings(aor, now))

    def replace(self, aor: str, bindings: Iterable[Binding]) -> None:
        """Let ``bindings``, newest first, be all bindings of ``aor``.

        Raises:
            LimitExceeded: there are too many bindings or addresses of record; nothing was changed.
        """
        kept = tuple(bindings)
        if len(kept) > BINDINGS_PER_AOR_MAX:
            raise LimitExceeded(f"{aor} has {BINDINGS_PER_AOR_MAX} bindings already", "BINDINGS_PER_AOR_MAX")
        if kept and aor not in self._bindings and len(self._bindings) >= AORS_MAX:
            raise LimitExceeded(f"{AORS_MAX} users are registered already", "AORS_MAX")
        self._disown(aor)
        if kept:
            self._bindings[aor] = kept
            for binding in kept:
                place = _place(SIPUri.parse(binding.contact))
                if aor not in (owners := self._owners.get(place, ())):
                    self._owners[place] = (*owners, aor)

    def held(self, aor: str) -> tuple[Binding, ...]:
        """Return what is kept of ``aor``, newest first, whether or not it ended meanwhile."""
        return self._bindings.get(aor, ())

    def bindings_at(self, uri: SIPUri, now: float) -> Iterator[Binding]:
        """Yield the live bindings of anybody whose contact is ``uri`` at second ``now``.

        Anybody may claim any contact, so those of the user whom ``uri`` names go before those of others.
        """
        owners = sorted(self._owners.get(_place(uri), ()), key=lambda aor: (SIPUri.parse(aor).user != uri.user, aor))
        bindings = (binding for aor in owners for binding in self.bindings(aor, now))
        return (binding for binding in bindings if same_contact(SIPUri.parse(binding.contact), uri))

    def snapshot(self) -> dict[str, tuple[Binding, ...]]:
        """Return all bindings as plain values; their times mean something in this process alone (:func:`moved`)."""
        return dict(self._bindings)

    def restore(self, bindings: Mapping[str, Iterable[Binding]], now: float) -> None:
        """Take over those of ``bindings`` that are live at monotonic second ``now``, in place of what is there.

        The connections they had are gone.

        Raises:
            LimitExceeded: there are too many of one address of record, or too many of these.
            SIPParseError: a contact cannot be read.
        """
        for aor, each in bindings.items():
            live = (binding for binding in each if binding.expires_at > now)
            self.replace(aor, [msgspec.structs.replace(binding, connection=None) for binding in live])

    def expire(self, aor: str, now: float) -> bool:
        """Forget the bindings of ``aor`` that ended by ``now``; say whether there were any."""
        held = self._bindings.get(aor, ())
        live = tuple(binding for binding in held if binding.expires_at > now)
        self.replace(aor, live)
        return len(live) < len(held)

    def _disown(self, aor: str) -> None:
        for binding in self._bindings.pop(aor, ()):
            place = _place(SIPUri.parse(binding.contact))
            if owners := tuple([each for each in self._owners.get(place, ()) if each != aor]):
                self._owners[place] = owners
            else:
                self._owners.pop(place, None)

    def next_expiry(self, aor: str) -> float | None:
        """Return the monotonic second at which the first binding of ``aor`` ends, None if it has none."""
        return min((binding.expires_at for binding in self._bindings.get(aor, ())), default=None)


def moved(bindings: Iterable[Binding], by_s: float) -> tuple[Binding, ...]:
    """Return ``bindings`` with their ends ``by_s`` seconds later: from one clock to another."""
    return tuple(msgspec.structs.replace(binding, expires_at=binding.expires_at + by_s) for binding in bindings)


def same_contact(first: SIPUri, second: SIPUri) -> bool:
    """Say whether two contact URIs name one binding (RFC 3261 19.1.4, without percent-decoding the user)."""
    if (first.scheme, first.user, first.host, first.port) != (second.scheme, second.user, second.host, second.port):
        return False
    ours, theirs = _folded(first), _folded(second)
    shared = ours.keys() & theirs.keys()
    lone = ours.keys() ^ theirs.keys()
    return all(ours[name] == theirs[name] for name in shared) and lone.isdisjoint(_DECISIVE_PARAMS)


def _place(uri: SIPUri) -> Place:
    return uri.user, uri.host, uri.port


def _folded(uri: SIPUri) -> dict[str, str]:
    return {name.lower(): (value or "").lower() for name, value in uri.params}
