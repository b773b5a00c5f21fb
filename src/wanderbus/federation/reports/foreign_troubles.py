"""Troubles with foreign domains: why there is no link to each, reported once for a while."""

from __future__ import annotations

from typing import Final

from wanderbus.federation.messages import ForeignTrouble

LINK_HINT: Final = "compare key and addresses with its card, and ask whether it has yours"
"""Advice about a domain with which there is no link: it does not say whether it knows this one."""

UNREACHABLE_EACH_S: Final = 600.0
"""Least time between two reports that a domain cannot be reached."""


class ForeignTroubles:
    """The last trouble with each foreign domain."""

    def __init__(self) -> None:
        self._reports: list[ForeignTrouble] = []
        self._troubles: dict[str, str] = {}
        self._unreachable_at: dict[str, float] = {}
        """Time of the last report that a domain cannot be reached, unless it can be reached now."""

    def of(self, domain: str) -> str:
        """Return the trouble with a domain, "" if there is none."""
        return self._troubles.get(domain, "")

    def note(self, domain: str, reason: str) -> None:
        """Note a trouble that is not worth a report."""
        self._troubles[domain] = reason

    def report(self, domain: str, reason: str) -> None:
        """Report a trouble that is not the last one, or with "" that it is over."""
        if not reason:
            self._unreachable_at.pop(domain, None)
        if self.of(domain) != reason:
            self._troubles[domain] = reason
            self._reports.append(ForeignTrouble(domain, reason))

    def unreachable(self, domain: str, reason: str, now: float) -> None:
        """Note why a domain cannot be reached; report it once for a while, however many gateways are tried in turn."""
        reported_at = self._unreachable_at.get(domain)
        if reported_at is None or now - reported_at >= UNREACHABLE_EACH_S:
            self._unreachable_at[domain] = now
            self.report(domain, reason)
        else:
            self.note(domain, reason)

    def take(self) -> list[ForeignTrouble]:
        """Return the reports since the last call."""
        reports, self._reports = self._reports, []
        return reports
