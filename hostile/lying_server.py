"""``python -m hostile.lying_server DIRECTORY up ...``: wanderbus that lies to the other servers of its domain.

It lies as long as the file :data:`ORDERS` is in DIRECTORY, and counts there what it has said (:data:`COUNTS`). Besides
it does what a server does, since the domain would not be whole otherwise.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from hostile.attack import DOMAIN
from hostile.lies import GHOST, SESSION, Honest, Lies
from wanderbus.access import access_server
from wanderbus.broker.state.exported_session import export_session
from wanderbus.broker.state.state import BrokerState
from wanderbus.cli import main
from wanderbus.errors import RemoteProtocolError
from wanderbus.machine import Input, Output, SetTimer, TimerFired
from wanderbus.peers import links
from wanderbus.peers.handover.messages import MoveReady, decode
from wanderbus.peers.handover.session_handovers import HandoversOutput, SessionHandovers
from wanderbus.peers.messages import SendOnServerLink, ServerLinkClosed, ServerLinkOpened, ServerMessageReceived
from wanderbus.peers.owner_messages import OwnerAnswered, OwnerAsked
from wanderbus.peers.session_owners import SessionOwners
from wanderbus.records import Cut

ORDERS: Final = "orders.json"
"""Sessions of honest users, as :class:`Honest`; it is there as long as the server is to lie."""

COUNTS: Final = "counts.json"
"""Number of lies by kind, and of links that others have closed because of them."""

OWNED: Final = f"sip:sybil@{DOMAIN}"
"""User of the session that the server owned."""

TICK_S: Final = 0.02
LIES_EACH_TICK: Final = 5
LOUD_EACH: Final = 40
"""Ticks from one lie that closes a link to the next."""

RETRY_S: Final = 0.25
"""Longest time until a link that was closed is opened again."""

_TIMER: Final = "lie"


class LyingHandovers(SessionHandovers):
    """Moves sessions, and lies about them in between."""

    directory: Path
    """Directory of the orders."""

    claimed: frozenset[str] = frozenset()
    """Honest users whose sessions it says it has."""

    def __init__(self, others: Iterable[str], access: Any, state: BrokerState, *more: Any, **named: Any) -> None:
        super().__init__(others, access, state, *more, **named)
        self._own_state = state
        self._random = Random(7)
        self._open: dict[int, str] = {}
        """Server of each open link."""
        self._is_started = False
        self._lies: Lies | None = None
        self._counts: Counter[str] = Counter()

    def step(self, inputs: Iterable[Input | Output], now: float) -> list[HandoversOutput]:
        """Take a batch of inputs; return the outputs in order, and lies behind them."""
        true: list[Input | Output] = []
        outputs: list[HandoversOutput] = []
        is_due = not self._is_started
        for given in inputs:
            match given:
                case TimerFired(key=key) if key == _TIMER:
                    is_due = True
                case ServerMessageReceived() if exported := self._export_for(given):
                    outputs += exported
                case ServerLinkOpened(link=link, server=server):
                    self._open[link] = server
                    true.append(given)
                case ServerLinkClosed(link=link):
                    self._open.pop(link, None)
                    self._counts["closed"] += self._lies is not None
                    true.append(given)
                case _:
                    true.append(given)
        outputs = super().step(true, now) + outputs
        if is_due:
            self._is_started = True
            outputs += self._tick()
            outputs.append(SetTimer(_TIMER, now + TICK_S))
        return outputs

    def _export_for(self, received: ServerMessageReceived) -> list[HandoversOutput]:
        """Return the export of a session that another server now awaits; nothing for any other message."""
        try:
            message = decode(received.payload)
        except RemoteProtocolError:
            return []
        if self._lies is None or not isinstance(message, MoveReady) or not message.move.user.startswith(GHOST):
            return []
        self._counts["exports"] += 1
        return [SendOnServerLink(received.link, each) for each in self._lies.export(message.move)]

    def _tick(self) -> list[HandoversOutput]:
        """Follow the orders; return some lies for the open links."""
        orders = self.directory / ORDERS
        if not orders.exists():
            if self._lies is not None:
                self.directory.joinpath(COUNTS).write_text(json.dumps(self._counts))
            self._lies, LyingHandovers.claimed = None, frozenset()
            return []
        if self._lies is None:
            self._lies = self._prepared(msgspec.json.decode(orders.read_bytes(), type=list[Honest]))
        said: list[HandoversOutput] = []
        at_us = time.time_ns() // 1_000
        kinds = [self._lies.quiet] * LIES_EACH_TICK
        kinds += [self._lies.loud] * (not self._random.randrange(LOUD_EACH))
        for number, kind in enumerate(kinds if self._open else ()):
            link = self._random.choice(list(self._open))
            said += [SendOnServerLink(link, each) for each in kind(self._open[link], at_us + number)]
        self._counts["lies"] += len(said)
        return said

    def _prepared(self, honest: list[Honest]) -> Lies:
        LyingHandovers.claimed, state = frozenset(each.user for each in honest), self._own_state
        here = Cut(state.next_id, state.next_id)
        exported = export_session(state, OWNED, SESSION, 2, (here,))
        return Lies(state.server, exported, honest, self._random)


class LyingOwners(SessionOwners):
    """Says that it has the sessions of honest users. A server can really draw the calls of users without a session."""

    def _answer(self, asked: OwnerAsked) -> OwnerAnswered:
        answer = super()._answer(asked)
        if asked.user not in LyingHandovers.claimed:
            return answer
        return msgspec.structs.replace(answer, contacts=("sip:drawn@192.0.2.1:5060",), is_exact=True)


if __name__ == "__main__":
    LyingHandovers.directory = Path(sys.argv.pop(1))
    assert {"SessionHandovers", "SessionOwners"} <= vars(access_server).keys()
    vars(access_server).update(SessionHandovers=LyingHandovers, SessionOwners=LyingOwners)
    assert vars(links)["RETRY_S_MAX"] > RETRY_S
    vars(links).update(RETRY_S_MAX=RETRY_S)
    main()
