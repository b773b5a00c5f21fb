"""Response context of one forwarded request: all its branches, and the choice of the best response.

The term is that of RFC 3261 16. The context is data only; :mod:`.response_forwarding` acts on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.targets import Target
from wanderbus.sip.proxy.anchoring import Anchored
from wanderbus.sip.proxy.decisions import Attempt

_CHALLENGES: Final = {401: "WWW-Authenticate", 407: "Proxy-Authenticate"}
_INFORMATIVE: Final = (415, 420, 484)
"""Refusals that inform the caller how to change the request (RFC 3261 16.7 item 6)."""
_UNINFORMATIVE: Final = (408, 481, 503)
"""Refusals without information about the user: the device is gone, does not know the call, or is overloaded."""


class Branch:
    """One copy of the request, sent to one target; ``name`` identifies its client transaction and its timer."""

    __slots__ = (
        "alternatives",
        "cancelled",
        "destination",
        "ended",
        "has_responded",
        "name",
        "sent",
        "sent_at",
        "server",
        "straight",
    )

    def __init__(self, name: str, attempt: Attempt, alternatives: Sequence[Attempt], sent_at: float) -> None:
        self.name = name
        self.sent = attempt.request
        self.sent_at = sent_at
        self.destination: Target = attempt.destination
        self.server = attempt.server
        """Name of the access server, "" for any other target."""
        self.alternatives = alternatives
        """Attempts to make next if this one fails."""
        self.has_responded = False
        """True if any response was received."""
        self.straight = not self.sent.routes
        """True if it was sent directly to its target, and not to another proxy."""
        self.cancelled = False
        self.ended = False

    def end(self) -> None:
        """Record the final response; after it the request is not cancelled any more."""
        self.ended = True
        self.sent = _bare(self.sent)


class ResponseContext:
    """A received request, named by its server transaction, and its branches."""

    __slots__ = (
        "anchored",
        "answered",
        "branches",
        "cancelled",
        "received",
        "refusals",
        "releases_relay",
        "started_at",
        "transaction",
    )

    def __init__(self, transaction: str, received: Request, started_at: float) -> None:
        self.transaction = transaction
        self.received = received
        self.started_at = started_at
        self.branches: dict[str, Branch] = {}
        self.refusals: list[Response] = []
        """Final responses that were not forwarded yet, in the order of arrival."""
        self.answered = False
        """True if the INVITE has its final response, while branches of it may still run."""
        self.cancelled = False
        """True if the caller has cancelled."""
        self.anchored: Anchored | None = None
        """The offer in the request, if a relay has it."""
        self.releases_relay = False
        """True if the request, once accepted, removes the call from a relay."""

    @property
    def is_invite(self) -> bool:
        """True if the request may ring for long, be cancelled, and be accepted more than once."""
        return self.received.method == "INVITE"

    def add(self, attempts: Sequence[Attempt], now: float) -> Branch:
        """Return a new branch for the first of ``attempts``; the others follow if it fails."""
        branch = Branch(f"{self.transaction}/{len(self.branches)}", attempts[0], attempts[1:], now)
        self.branches[branch.name] = branch
        return branch

    def is_impatient(self, branch: Branch) -> bool:
        """Return whether ``branch`` ends early without any response: another access server can begin the call."""
        begins = self.is_invite and self.received.to.tag is None
        return begins and bool(branch.server) and bool(branch.alternatives)

    def pending(self) -> Iterator[Branch]:
        """Yield the branches without a final answer."""
        return (branch for branch in self.branches.values() if not branch.ended)

    def settle(self) -> None:
        """Record that the INVITE has its final response, so that none is made here any more."""
        self.answered = True
        self.received = _bare(self.received)

    def waits_only_for_silent(self) -> bool:
        """Return whether a device has challenged the caller, and no other has responded at all.

        The caller will try them all again with credentials, so the challenge is forwarded without waiting for them.
        Otherwise one dead device would block every call to a user with two devices.
        """
        challenged = any(response.status in _CHALLENGES for response in self.refusals)
        return challenged and not any(branch.has_responded for branch in self.pending())

    def best(self) -> Response:
        """Return the response to forward if there is no 2xx; there must be some response."""
        return best_response(self.refusals)


def transaction_of(name: str) -> str:
    """Return the server transaction of the branch, CANCEL or timer ``name``."""
    return name.partition("/")[0]


def best_response(responses: Sequence[Response]) -> Response:
    """Choose among final responses other than 2xx, at least one (RFC 3261 16.7 items 6 and 7).

    A 6xx is valid for the user and wins; else the lowest class wins. A challenge is combined with those of all other
    devices. A 503 is about one device, not about this server, and becomes 500.
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
    """Return the part of ``request`` that is kept for the half minute in which responses may be repeated."""
    return msgspec.structs.replace(request, headers=(), body=b"")


def _rank(response: Response) -> int:
    if response.status in _CHALLENGES:
        return 0
    if response.status in _INFORMATIVE:
        return 1
    return 3 if response.status in _UNINFORMATIVE else 2


def _with_all_challenges(best: Response, responses: Sequence[Response]) -> Response:
    for response in responses:
        name = _CHALLENGES.get(response.status)
        if name is not None and response is not best:
            for value in response.headers_all(name):
                best = best.with_header(name, value)
    return best
