"""Rate limits on SIP messages to an agent, strict for hosts other than the server and the broker.

Anybody who learns the port can call an agent, and each call costs a transaction that repeats its refusal for half a
minute. An agent needs no such calls. It refuses the first few according to RFC 3261, and discards the rest unread.
"""

from __future__ import annotations

import contextlib
from typing import Final

from wanderbus.errors import SIPParseError
from wanderbus.hosts import network_of
from wanderbus.machine import Address, Output
from wanderbus.refusal_table import Tally
from wanderbus.sip.message.dialog import Dialog
from wanderbus.tokens import TokenBucket

BURST_S: Final = 5.0
"""Size of the burst, in seconds of the rate."""

KNOWN_PER_S: Final = 500.0
"""Most SIP messages per second from the server's and the broker's hosts together; their addresses may be forged."""


class StrangerLimits:
    """Admits datagrams to the SIP port by their source; ``per_s`` bounds those of all strangers together."""

    def __init__(self, server: Address, per_s: float) -> None:
        self._server = server[0]
        self._known = frozenset({self._server})
        self._of_strangers = TokenBucket(per_s, max(1.0, per_s * BURST_S))
        self._of_known = TokenBucket(KNOWN_PER_S, KNOWN_PER_S * BURST_S)
        self._tally = Tally()

    def know(self, broker: Dialog | None) -> None:
        """Treat the next hop of the dialog with the ``broker`` as a known host from now on."""
        if broker is not None:
            with contextlib.suppress(SIPParseError):
                self._known = frozenset({self._server, broker.next_hop().address[0]})

    def admits(self, source: Address, now: float) -> bool:
        """Count a datagram from ``source`` at monotonic second ``now``; return whether to read it."""
        is_known = source[0] in self._known
        if (self._of_known if is_known else self._of_strangers).take(now):
            return True
        limit = "known_per_s" if is_known else "strangers_per_s"
        self._tally.note(limit, network_of(source[0]), "SIP messages to an agent")
        return False

    def take_reports(self, now: float) -> list[Output]:
        """Return the reports about discarded messages."""
        return list(self._tally.take(now))
