"""Requests of users to learn when their interest counts in all other domains that can be reached (SPEC M-02).

A server asks every gateway of its domain, once they have all interest of its users. A gateway answers for the domains
that it has links to. What does not count after a while is not waited for: another domain may never confirm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Final

from wanderbus.federation.everywhere_messages import EverywhereRequest, InterestCounts, Marks

WAIT_S: Final = 10.0
"""Time after which a request is answered in any case."""

ASKED_MAX: Final = 4_096
"""Requests that wait at a gateway; the first is forgotten beyond, and its server answers it after :data:`WAIT_S`."""


class EverywhereRequests:
    """The requests at one server, by their numbers for the gateways."""

    def __init__(self) -> None:
        self._waiting: dict[int, EverywhereRequest] = {}
        self._last = 0

    def ask(self, name: str, now: float) -> None:
        """Begin to wait for a name."""
        self._last += 1
        self._waiting[self._last] = EverywhereRequest(name, now + WAIT_S)

    def ask_again(self) -> None:
        """Ask all gateways again: what they were asked, they were asked by a part that has ended."""
        waiting = [EverywhereRequest(each.name, each.until) for each in self._waiting.values()]
        self._waiting = dict(enumerate(waiting, self._last + 1))
        self._last += len(waiting)

    @property
    def given_up_at(self) -> float | None:
        """Return when the next request is given up, None if there is none."""
        return next((each.until for each in self._waiting.values()), None)

    def to_ask(self, version: int | None, confirmed: float, gateways: Collection[str]) -> list[int]:
        """Return the requests to send now, each to all ``gateways``, which can be reached.

        ``version`` is that of the interest here, None while a change is not finished; the gateways have confirmed
        it up to ``confirmed``.
        """
        found = []
        for number, each in self._waiting.items():
            if each.gateways is None:
                each.mark = version if each.mark is None else each.mark
                if each.mark is not None and each.mark <= confirmed:
                    each.gateways = set(gateways)
                    found.append(number)
        return found

    def answered(self, gateway: str, number: int) -> None:
        """Take the answer of a gateway."""
        if (waiting := self._waiting.get(number)) is not None and waiting.gateways is not None:
            waiting.gateways.discard(gateway)

    def gone(self, gateway: str) -> None:
        """Wait no longer for a gateway that cannot be reached."""
        for each in self._waiting.values():
            if each.gateways is not None:
                each.gateways.discard(gateway)

    def done(self, now: float) -> tuple[str, ...]:
        """Return the names that count, or that are given up."""
        numbers = [number for number, each in self._waiting.items() if each.gateways == set() or now >= each.until]
        return tuple(self._waiting.pop(number).name for number in numbers)


class EverywhereAnswers:
    """The requests that servers have sent to one gateway, with the interest that has to count."""

    def __init__(self) -> None:
        self._asked: deque[tuple[Marks | None, InterestCounts]] = deque()

    def asked(self, link: int, number: int) -> None:
        """Take a request from a link."""
        self._asked.append((None, InterestCounts(link, number)))
        if len(self._asked) > ASKED_MAX:
            self._asked.popleft()

    def forget(self) -> None:
        """Let all requests wait for the present interest: the routing has begun again."""
        self._asked = deque((None, each) for _, each in self._asked)

    def to_answer(self, marks: Callable[[], Marks | None], counts: Callable[[Marks], bool]) -> list[InterestCounts]:
        """Return the answers to the requests whose interest counts now.

        ``marks`` returns those of the present interest, None while a change of it takes several turns.
        """
        found: list[InterestCounts] = []
        if self._asked and self._asked[-1][0] is None and (present := marks()) is not None:
            self._asked = deque((present if each is None else each, answer) for each, answer in self._asked)
        # Interest counts in the order in which it was wanted.
        while self._asked and (wanted := self._asked[0][0]) is not None and counts(wanted):
            found.append(self._asked.popleft()[1])
        return found
