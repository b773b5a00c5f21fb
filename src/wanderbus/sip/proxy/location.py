"""Location service: the current contacts of each address of record (RFC 3261 10, SPEC D-02, A-05).

It is a table from address of record to bindings. The registrar writes it, the proxy reads it. It has no policy: the
registrar decides who may register, for how long, and in which order updates count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from wanderbus.errors import LimitExceeded
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy.bindings import Binding

BINDINGS_PER_AOR_MAX: Final = 16
"""Largest number of contacts of one address of record: more devices than one person carries."""

AORS_MAX: Final = 100_000
"""Largest number of addresses of record with at least one binding."""

SIP_PORT: Final = 5060
"""Default port of SIP over UDP (RFC 3261 19.1.2)."""

Place = tuple[str | None, str, int | None]
"""User, host and port of a contact: the parts that are equal in all equivalent forms."""

_DECISIVE_PARAMS: Final = frozenset({"user", "ttl", "method", "maddr"})


class LocationService:
    """Bindings by address of record, each list with the newest contact first."""

    def __init__(self) -> None:
        self._bindings: dict[str, tuple[Binding, ...]] = {}
        self._owners: dict[Place, tuple[str, ...]] = {}
        """Owners of each contact: nearly always one; a tuple takes a quarter of the memory of a set."""

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
        """Replace all bindings of ``aor`` by ``bindings``, newest first.

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
                place = _destination_of(SIPUri.parse(binding.contact))
                if aor not in (owners := self._owners.get(place, ())):
                    self._owners[place] = (*owners, aor)

    def held(self, aor: str) -> tuple[Binding, ...]:
        """Return the stored bindings of ``aor``, newest first, including expired ones."""
        return self._bindings.get(aor, ())

    def bindings_at(self, uri: SIPUri, now: float) -> Iterator[Binding]:
        """Yield the live bindings of any user with contact ``uri`` at second ``now``.

        Anybody can register any contact, so those of the user in ``uri`` precede those of others.
        """
        owners = sorted(
            self._owners.get(_destination_of(uri), ()), key=lambda aor: (SIPUri.parse(aor).user != uri.user, aor)
        )
        bindings = (binding for aor in owners for binding in self.bindings(aor, now))
        return (binding for binding in bindings if same_contact(SIPUri.parse(binding.contact), uri))

    def snapshot(self) -> dict[str, tuple[Binding, ...]]:
        """Return all bindings as plain values; their times are valid in this process only (:func:`moved`)."""
        return dict(self._bindings)

    def restore(self, bindings: Mapping[str, Iterable[Binding]], now: float) -> None:
        """Replace all bindings by those of ``bindings`` that are live at monotonic second ``now``.

        Their connections are dropped.

        Raises:
            LimitExceeded: there are too many of one address of record, or too many in total.
            SIPParseError: a contact cannot be read.
        """
        for aor, each in bindings.items():
            live = (binding for binding in each if binding.expires_at > now)
            self.replace(aor, [msgspec.structs.replace(binding, connection=None) for binding in live])

    def expire(self, aor: str, now: float) -> bool:
        """Remove the expired bindings of ``aor`` at ``now``; return whether there were any."""
        held = self._bindings.get(aor, ())
        live = tuple(binding for binding in held if binding.expires_at > now)
        self.replace(aor, live)
        return len(live) < len(held)

    def _disown(self, aor: str) -> None:
        for binding in self._bindings.pop(aor, ()):
            place = _destination_of(SIPUri.parse(binding.contact))
            if owners := tuple([each for each in self._owners.get(place, ()) if each != aor]):
                self._owners[place] = owners
            else:
                self._owners.pop(place, None)

    def next_expiry(self, aor: str) -> float | None:
        """Return the monotonic second at which the first binding of ``aor`` expires, None if it has none."""
        return min((binding.expires_at for binding in self._bindings.get(aor, ())), default=None)


def moved(bindings: Iterable[Binding], by_s: float) -> tuple[Binding, ...]:
    """Return ``bindings`` with their expiry ``by_s`` seconds later: from one clock to another."""
    return tuple(msgspec.structs.replace(binding, expires_at=binding.expires_at + by_s) for binding in bindings)


def same_contact(first: SIPUri, second: SIPUri) -> bool:
    """Return whether two contact URIs name one binding (RFC 3261 19.1.4, without percent-decoding the user)."""
    if (first.scheme, first.user, first.host, first.port) != (second.scheme, second.user, second.host, second.port):
        return False
    ours, theirs = _folded(first), _folded(second)
    shared = ours.keys() & theirs.keys()
    lone = ours.keys() ^ theirs.keys()
    return all(ours[name] == theirs[name] for name in shared) and lone.isdisjoint(_DECISIVE_PARAMS)


def _destination_of(uri: SIPUri) -> Place:
    return uri.user, uri.host, uri.port


def _folded(uri: SIPUri) -> dict[str, str]:
    return {name.lower(): (value or "").lower() for name, value in uri.params}
