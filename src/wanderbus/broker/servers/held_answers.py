"""Answers to requests, each held until what was requested is effective at other servers (SPEC J-10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wanderbus.broker.links import Links
from wanderbus.broker.readers import Link
from wanderbus.channels.pending import Pending

Answer = Callable[[], None]


class HeldAnswers:
    """Answers about things that are pending, by the id of each; those for links that have closed are lost."""

    def __init__(self, links: Links) -> None:
        self.pending: Pending[str, str] = Pending()
        """Things that are not effective yet; what they wait for are the names of reports."""
        self._links = links
        self._answers: dict[str, list[tuple[Link | None, Answer]]] = {}

    def hold(self, identity: str, reports: Iterable[str]) -> None:
        """Hold the answers about ``identity`` until each of ``reports`` has come."""
        self.pending.add(identity, dict.fromkeys(reports, 0))

    def hold_for(self, identity: str, report: str, former: str | None) -> None:
        """Hold the answers about ``identity`` until ``report`` has come, in place of a ``former`` one."""
        reports = [each for each in self.pending.peers_of(identity) if each != former]
        self.hold(identity, [*reports, report])

    def when_effective(self, identity: str, link: Link | None, answer: Answer) -> None:
        """Call ``answer`` once ``identity`` is effective or has ended: now, unless it is pending.

        It is not called once ``link`` is closed; without one it is called in any case.
        """
        if identity not in self.pending:
            answer()
            return
        others = [each for each in self._answers.get(identity, ()) if self._is_wanted(each[0])]
        self._answers[identity] = [*others, (link, answer)]

    def give(self, identity: str) -> None:
        """Give the answers that wait for ``identity``, which is effective or has ended."""
        self.pending.drop(identity)
        for link, answer in self._answers.pop(identity, ()):
            if self._is_wanted(link):
                answer()

    def _is_wanted(self, link: Link | None) -> bool:
        return link is None or self._links.is_open(link)
