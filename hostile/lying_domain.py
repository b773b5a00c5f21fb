"""``python -m hostile.lying_domain DIRECTORY up ...``: the gateway of a domain that lies to another one.

It lies as long as the file :data:`ORDERS` is in DIRECTORY, and acknowledges nothing meanwhile; it counts there what it
has said and received (:data:`COUNTS`). Before and after that it is a gateway as any.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

from hostile.attack import DOMAIN
from hostile.domain_lies import DomainLies
from hostile.neighbours import SENT
from wanderbus import protocol
from wanderbus.cli import main
from wanderbus.errors import RemoteProtocolError
from wanderbus.federation.gateway_choice import domain_of_link
from wanderbus.federation.member import FederationMember
from wanderbus.federation.messages import AtForeignLinks, FederationInput, FederationOutput, ForForeignLinks
from wanderbus.federation.wire import EventForwarded, decode
from wanderbus.machine import SetTimer, TimerFired
from wanderbus.peers.messages import (
    ConsumedOnServerLink,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.server import own_federation

ORDERS: Final = "lie"
COUNTS: Final = "counts.json"
TICK_S: Final = 0.02
LOUD_EACH: Final = 25
"""Ticks from one lie that closes the link to the next."""

RETRY_S: Final = 0.25
"""Longest time until a link that was closed is opened again."""

_TIMER: Final = "lie"


class LyingMember(FederationMember):
    """Shares events with other domains, and lies to one of them in between."""

    directory: Path
    """Directory of the orders."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._link: int | None = None
        """Link to the honest domain."""
        self._random = Random(7)
        self._lies: DomainLies | None = None
        self._counts: Counter[str] = Counter()

    def start(self, now: float, sharing: Iterable[str] = ()) -> list[FederationOutput]:
        """Begin, and look for orders from now on."""
        return [*super().start(now, sharing), SetTimer(_TIMER, now + TICK_S)]

    def step(self, inputs: Iterable[FederationInput], now: float) -> list[FederationOutput]:
        """Take a batch of inputs; return the outputs in order, and lies behind them."""
        true: list[FederationInput] = []
        unread: list[FederationOutput] = []
        is_due = False
        for given in inputs:
            match given:
                case TimerFired(key=key) if key == _TIMER:
                    is_due = True
                    continue
                case AtForeignLinks(report=ServerLinkOpened(link=link, server=server)):
                    if domain_of_link(server) == DOMAIN:
                        self._link = link
                case AtForeignLinks(report=ServerLinkClosed(link=link)) if link == self._link:
                    self._link = None
                    self._counts["closed"] += self._lies is not None
                case AtForeignLinks(report=ServerMessageReceived(link=link, payload=payload)) if link == self._link:
                    self._look_at(payload)
                    if self._lies is not None:
                        # An honest gateway would answer, or close the link because of the answers to its lies.
                        unread.append(ForForeignLinks(ConsumedOnServerLink(link, 1)))
                        continue
            true.append(given)
        outputs = super().step(true, now) + unread
        if is_due:
            outputs += self._tick()
            outputs.append(SetTimer(_TIMER, now + TICK_S))
        return outputs

    def _look_at(self, payload: bytes) -> None:
        """Count the events that the honest domain sends."""
        with contextlib.suppress(RemoteProtocolError):
            if isinstance(message := decode(payload), EventForwarded):
                is_shared = protocol.decode_event(message.event).subject == SENT
                self._counts["received" if is_shared else "secrets_sent"] += 1

    def _tick(self) -> list[FederationOutput]:
        """Follow the orders; return some lies for the open link."""
        if not (self.directory / ORDERS).exists():
            if self._lies is not None:
                self.directory.joinpath(COUNTS).write_text(json.dumps(self._counts))
            self._lies = None
            return []
        self._lies = self._lies or DomainLies(self._random)
        if self._link is None:
            return []
        lies = self._lies.quiet()
        if not self._random.randrange(LOUD_EACH):
            lies += self._lies.loud()
        self._counts["lies"] += len(lies)
        return [ForForeignLinks(SendOnServerLink(self._link, each)) for each in lies]


if __name__ == "__main__":
    LyingMember.directory = Path(sys.argv.pop(1))
    assert vars(own_federation)["FOREIGN_RETRY_S_MAX"] > RETRY_S
    assert "FederationMember" in vars(own_federation)
    vars(own_federation).update(FederationMember=LyingMember, FOREIGN_RETRY_S_MAX=RETRY_S)
    main()
