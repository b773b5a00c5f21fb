"""Event with its causes in other domains, before its destinations are known."""

from __future__ import annotations

from zlib import crc32

import msgspec

from wanderbus import protocol
from wanderbus.channels.causal.domain_past import DomainPast, encode_domain_past
from wanderbus.event import Event
from wanderbus.records import Acceptance


class MarkedEvent(msgspec.Struct, frozen=True):
    """An event with its causes; its length does not depend on its destinations."""

    event: Event
    past: DomainPast
    domains: tuple[str, ...]
    """The own domain, and those that ask for causal order."""

    @property
    def encoded(self) -> msgspec.Raw:
        """Return the bytes of the event without destinations."""
        return self._encoded(frozenset())

    def accepted(self, acceptance: Acceptance, targets: frozenset[str]) -> Acceptance:
        """Return the acceptance of the event, which is put into the queues of these domains."""
        if not targets and not self.past.causes:
            return acceptance
        return msgspec.structs.replace(acceptance, event=self._encoded(targets), digest=crc32(acceptance.event))

    def _encoded(self, targets: frozenset[str]) -> msgspec.Raw:
        past = encode_domain_past(self.past._replace(targets=targets), self.domains)
        return msgspec.Raw(protocol.encode_event(msgspec.structs.replace(self.event, past=past)))
