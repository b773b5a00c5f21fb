"""Servers that a foreign domain has named: each costs rows at leaders here, so there is a bound (docs/SECURITY.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wanderbus.errors import RemoteProtocolError
from wanderbus.federation.wire import NAME_CHARACTERS_MAX, SERVERS_MAX

TEXT_CHARACTERS_MAX: Final = 200
"""Characters of a text of a foreign domain, or about it, that are kept and shown."""


class NamedServers:
    """Names of the servers of a foreign domain in one life of a gateway, of all links."""

    def __init__(self, domain: str) -> None:
        self._domain = domain
        self._names: set[str] = set()

    def check(self, name: str) -> None:
        """Note a name; :class:`RemoteProtocolError` if it is none, or one too many.

        A name has no "/", which divides it from the type in the name of a device.
        """
        if name in self._names:
            return
        if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable() or "/" in name:
            raise RemoteProtocolError(f"{name[:TEXT_CHARACTERS_MAX]!r} is no name of a server", None)
        if len(self._names) >= SERVERS_MAX:
            raise RemoteProtocolError(f"{self._domain} names more than {SERVERS_MAX} servers", None)
        self._names.add(name)


def shown(text: str) -> str:
    """Return a text in which a foreign domain may have a part, short and in one line."""
    cut = text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}..."
    return "".join(each if each.isprintable() else "?" for each in cut)


class NamedFarServers:
    """Names of the servers of all foreign domains, each counted."""

    def __init__(self, domains: Iterable[str]) -> None:
        self._of = {each: NamedServers(each) for each in domains}

    def check(self, domain: str, name: str) -> None:
        """Raise :class:`RemoteProtocolError` for a name that a domain cannot use, or for one too many."""
        self._of[domain].check(name)
