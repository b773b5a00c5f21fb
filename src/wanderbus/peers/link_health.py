"""Reachability of the other servers, from what is known of the links to them (SPEC J-12, X18).

A server counts as away if it acknowledges nothing on an open link for a while, if the link that this server keeps to it
has been closed for a while, or if their domain files differ. So it is known within about a second from the first packet
without an answer; a link fails some seconds later.
"""

from __future__ import annotations

from collections.abc import Sequence

from wanderbus.machine import Address, shown
from wanderbus.peers.link_parameters import (
    FIRST_LINK_S,
    LOOK_S,
    REPORT_S,
    SUSPECT_ROUND_TRIPS,
    SUSPECT_S,
)
from wanderbus.peers.link_sight import LinkSight
from wanderbus.peers.messages import PeerUnreachable, ServerReachable


class ServerHealth:
    """View of another server at ``address``: what was seen of it, and what was reported.

    ``never`` is added to the report if it has had no link with this server yet.
    """

    def __init__(self, server: str, address: Address, never: str = "") -> None:
        self.difference = ""
        """Difference of the domain files of the two, which prevents a link; "" without one, or if nothing is known."""
        self.report = ""
        """Reason of the present report; "" if the server can be reached, as far as is known."""
        self._server = server
        self._address = address
        self._never = never
        self._closed_at: float | None = None
        """Time since which a link is wanted and closed; None if it is open or not wanted."""
        self._has_opened = False
        self._failure = ""
        """Reason why the last link was closed."""
        self._elsewhere: Address | None = None
        """Address other than its own from which it has sent offers since the last link."""
        self._stuck: dict[int, tuple[int, float]] = {}
        """Highest acknowledged packet of each link that waits for more, and when that was first seen."""
        self._looked_at: float | None = None
        self._away_at = 0.0
        self._kind = ""
        self._reported_at: float | None = None

    def wanted(self, now: float) -> None:
        """Expect an own link from now on."""
        self._closed_at = now

    def unwanted(self) -> None:
        """Expect no own link any more; whether the server can be reached is not known then, and not reported."""
        self._closed_at = None
        self._kind = self.report = ""

    def opened(self) -> None:
        """Note that the own link has opened."""
        self._closed_at, self._has_opened, self.difference, self._elsewhere = None, True, "", None

    def closed(self, reason: str, now: float) -> None:
        """Note that the own link was closed."""
        self._closed_at, self._failure = now, reason

    def offered_from(self, source: Address) -> None:
        """Note where a genuine offer has come from."""
        self._elsewhere = None if source == self._address else source

    def look(self, links: Sequence[LinkSight], now: float) -> list[PeerUnreachable | ServerReachable]:
        """Take the state of the open links; return a report if one is due."""
        if self._looked_at is not None and now - self._looked_at > 4 * LOOK_S:
            self._stuck.clear()  # this process was suspended, and has not read what came meanwhile
        self._looked_at = now
        kind, reason = self._trouble(links, now)
        if not kind:
            return self._recovered(now)
        if not self._kind:
            self._away_at = now
            if self._reported_at is not None and now - self._reported_at < REPORT_S:
                return []
        elif kind == self._kind:
            return []
        self._kind, self.report, self._reported_at = kind, reason, now
        return [PeerUnreachable(self._server, reason)]

    def _recovered(self, now: float) -> list[PeerUnreachable | ServerReachable]:
        if not self._kind:
            return []
        self._kind = self.report = ""
        return [ServerReachable(self._server, round(now - self._away_at, 1))]

    def _trouble(self, links: Sequence[LinkSight], now: float) -> tuple[str, str]:
        """Return the kind of trouble, and the reason; both "" without trouble."""
        stuck_s = self._stuck_s(links, now)
        if self.difference:
            return self.difference, self.difference
        address = shown(self._address)
        if self._closed_at is not None:
            closed_s = now - self._closed_at
            if self._kind or closed_s >= (SUSPECT_S if self._has_opened else FIRST_LINK_S):
                if self._elsewhere is not None:
                    return (
                        "elsewhere",
                        f"it sends from {shown(self._elsewhere)}, and the domain file here has {address}",
                    )
                after = f"; its last link was closed: {self._failure}" if self._failure else ""
                after = after if self._has_opened else self._never
                return "away", f"{address} has not answered for {closed_s:.1f} s{after}"
        elif stuck_s:
            return "away", f"{address} has acknowledged nothing for {stuck_s:.1f} s"
        return "", ""

    def _stuck_s(self, links: Sequence[LinkSight], now: float) -> float:
        """Return the longest time for which a link has waited in vain, 0 if none has waited for too long."""
        before, self._stuck = self._stuck, {}
        longest_s = 0.0
        for each in links:
            if not each.is_waiting:
                continue
            acknowledged, since = before.get(each.number, (-2, now))
            if acknowledged != each.acknowledged:
                since = now
            self._stuck[each.number] = each.acknowledged, since
            if now - since >= max(SUSPECT_S, SUSPECT_ROUND_TRIPS * (each.rtt_s or 0.0)):
                longest_s = max(longest_s, now - since)
        return longest_s
