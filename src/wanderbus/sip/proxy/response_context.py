"""One request under way through the proxy, with all its branches, and which of their answers is the best one.

RFC 3261 16 calls it the response context. It remembers; what is done with it is the proxy's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.targets import Target
from wanderbus.sip.proxy.anchoring import Anchored

_CHALLENGES: Final = {401: "WWW-Authenticate", 407: "Proxy-Authenticate"}
_TELLING: Final = (415, 420, 484)
"""Refusals that tell the caller what to do differently (RFC 3261 16.7 item 6)."""
_EMPTY: Final = (408, 481, 503)
"""Refusals that say nothing about the user: that device is gone, knows of no such call, or is overloaded."""


class Branch:
    """One copy of the request, sent to one target; ``name`` is its client transaction and its timer."""

    __slots__ = ("alternatives", "cancelled", "destination", "ended", "name", "sent", "showed_life", "straight")

    def __init__(self, name: str, sent: Request, destination: Target, alternatives: tuple[Target, ...]) -> None:
        self.name = name
        self.sent = sent
        self.destination = destination
        self.alternatives = alternatives
        """Servers to try if this one cannot serve the request."""
        self.showed_life = False
        """Whether any response came."""
        self.straight = not sent.routes
        """Whether it went to its target, and not to another proxy."""
        self.cancelled = False
        self.ended = False

    def end(self) -> None:
        """Note the final answer, after which nobody cancels the request any more."""
        self.ended = True
        self.sent = _bare(self.sent)


class ResponseContext:
    """A received request, named by its server transaction, and its branches."""

    __slots__ = (
        "anchored",
        "answered",
        "branches",
        "cancelled",
        "lets_go",
        "received",
        "refusals",
        "started_at",
        "transaction",
    )

    def __init__(self, transaction: str, received: Request, started_at: float) -> None:
        self.transaction = transaction
        self.received = received
        self.started_at = started_at
        self.branches: dict[str, Branch] = {}
        self.refusals: list[Response] = []
        """Final answers that were not passed on yet, in the order in which they came."""
        self.answered = False
        """Whether the INVITE had its answer, and branches of it may still run."""
        self.cancelled = False
        """Whether the caller has given up."""
        self.anchored: Anchored | None = None
        """The offer in the request, if a relay has it."""
        self.lets_go = False
        """Whether the request, once accepted, takes a call away from a relay, if one had it."""

    @property
    def is_invite(self) -> bool:
        """Whether the request may ring for long, be cancelled, and be accepted more than once."""
        return self.received.method == "INVITE"

    def add(self, sent: Request, destination: Target, alternatives: tuple[Target, ...] = ()) -> Branch:
        """Return a new branch."""
        branch = Branch(f"{self.transaction}/{len(self.branches)}", sent, destination, alternatives)
        self.branches[branch.name] = branch
        return branch

    def pending(self) -> Iterator[Branch]:
        """Yield the branches without a final answer."""
        return (branch for branch in self.branches.values() if not branch.ended)

    def settle(self) -> None:
        """Note that the INVITE had its answer, so that none is made here any more."""
        self.answered = True
        self.received = _bare(self.received)

    def waits_for_the_silent_alone(self) -> bool:
        """Say whether a device wants to know who is calling, and all others have given no sign of life.

        The caller will call them all again with credentials, so nothing is lost by not waiting for them. Waiting
        would mean that one dead device keeps a user with two from being called at all.
        """
        challenged = any(response.status in _CHALLENGES for response in self.refusals)
        return challenged and not any(branch.showed_life for branch in self.pending())

    def best(self) -> Response:
        """Return the answer to pass on now that there is no 2xx; there has to be some answer."""
        return best_response(self.refusals)


def transaction_of(name: str) -> str:
    """Return the server transaction that a branch, a CANCEL or a timer of that ``name`` belongs to."""
    return name.partition("/")[0]


def best_response(responses: Sequence[Response]) -> Response:
    """Choose among final answers other than 2xx, at least one (RFC 3261 16.7 items 6 and 7).

    A 6xx speaks for the user and wins; else it is one of the lowest class. A challenge comes with those of all
    other devices. A 503 speaks for the device that sent it, not for this server, and becomes 500.
    """
    global_failures = [response for response in responses if response.status >= 600]
    lowest = min(response.status // 100 for response in responses)
    candidates = global_failures or [response for response in responses if response.status // 100 == lowest]
    best = min(candidates, key=_rank)
    if best.status in _CHALLENGES:
        return _with_all_challenges(best, responses)
    if best.status == 503:
        return msgspec.structs.replace(best, status=500, reason="Server Internal Error")
    return best


def _bare(request: Request) -> Request:
    """Return what is remembered of ``request`` for the half minute in which answers to it may come again."""
    return msgspec.structs.replace(request, headers=(), body=b"")


def _rank(response: Response) -> int:
    if response.status in _CHALLENGES:
        return 0
    if response.status in _TELLING:
        return 1
    return 3 if response.status in _EMPTY else 2


def _with_all_challenges(best: Response, responses: Sequence[Response]) -> Response:
    for response in responses:
        name = _CHALLENGES.get(response.status)
        if name is not None and response is not best:
            for value in response.headers_all(name):
                best = best.with_header(name, value)
    return best
