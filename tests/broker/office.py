"""A desk with an operator and an administrator, and helpers for their requests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from tests.broker.desk import BOB, Desk
from wanderbus.broker.messages import LinkClosed, LinkDropped
from wanderbus.parameters.broker import BrokerConfig, Role
from wanderbus.protocol import AwaitTransfer, Inspect, Listing, OperatorRequest, Purge, RequestRefused

OLGA, ADAM = "sip:olga@example.org", "sip:adam@example.org"
ROLES: dict[str, Role] = {OLGA: "operator", ADAM: "administrator"}
_requests = itertools.count(1)


class Office(Desk):
    """A desk that remembers which links the broker wants ended, and ends them as the layer below does."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.dropped: list[LinkDropped] = []
        super().__init__(config or BrokerConfig(roles=ROLES))

    def perform(self, outputs: Any) -> None:
        super().perform(outputs)
        for output in outputs:
            if isinstance(output, LinkDropped):
                self.dropped.append(output)
                self.give(LinkClosed(output.link, output.reason))


def answers(office: Desk, link: int, request: OperatorRequest | AwaitTransfer) -> list[Any]:
    """Send a request, and return all messages that the broker sends because of it."""
    before = len(office.out.get(link, ()))
    office.send(link, request)
    said = office.out[link][before:]
    del office.out[link][before:]
    return said


def refusal(office: Desk, link: int, request: OperatorRequest | AwaitTransfer) -> str:
    (answer,) = answers(office, link, request)
    assert isinstance(answer, RequestRefused), answer
    assert answer.request == request.request
    return answer.reason


def listed(
    office: Desk, link: int, request: OperatorRequest | AwaitTransfer
) -> tuple[list[Mapping[str, Any]], str | None]:
    """The rows of one answer, and where to go on from."""
    said = answers(office, link, request)
    assert all(isinstance(part, Listing) and part.request == request.request for part in said), said
    assert [part.more for part in said] == [True] * (len(said) - 1) + [False]
    return [row for part in said for row in part.rows], said[-1].next


def inspected(
    office: Desk, link: int, what: Any, user: str | None = None, limit: int = 1_000
) -> list[Mapping[str, Any]]:
    """All rows, requested page by page."""
    rows, after = listed(office, link, Inspect(next(_requests), what, user, None, limit))
    while after is not None:
        more, after = listed(office, link, Inspect(next(_requests), what, user, after, limit))
        rows += more
    return rows


def purged(office: Desk, link: int, user: str, session: str = "default", subscription: str | None = None) -> int:
    """Purge in steps; give how many matches were dropped."""
    rows, after = listed(office, link, Purge(next(_requests), user, session, subscription))
    while after is not None:
        more, after = listed(office, link, Purge(next(_requests), user, session, subscription, after))
        rows += more
    return sum(row["purged"] for row in rows)


def with_queue(office: Office, *numbers: int) -> int:
    """Alice is away, and these wait for her; give the link of the publisher, Bob."""
    alice, bob = office.attach(), office.attach(BOB)
    office.subscribed(alice)
    office.close(alice)
    for number in numbers:
        office.publish(bob, number)
    return bob
