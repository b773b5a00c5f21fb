"""Mutation tests of the simulator: without any one safeguard, some of the first forty seeds fail (DESIGN rule 3).

A simulator that accepts a broken product proves nothing about the correct one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from wanderbus import protocol
from wanderbus.broker.links import Links
from wanderbus.broker.queues.queue import SessionQueue
from wanderbus.broker.readers import Link
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.state import BrokerState, SessionRow, SubscriptionRow
from wanderbus.client.machine import data_path
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.core import TRANSPORTS, USER_AGENT, AgentMachine
from wanderbus.client.machine.messages import Moved
from wanderbus.datachannel import Transports
from wanderbus.machine import Output, RandomSource
from wanderbus.mobility import messages as sip
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.parameters.transports import RudpConfig
from wanderbus.records import AnyRecord, Started
from wanderbus.rudp.sending import Sender
from wanderbus.simulation.system.scenario import SystemScenario
from wanderbus.tcp.sending import Sender as StreamSender

pytestmark = pytest.mark.integration

SEEDS = range(1, 41)
Patch = pytest.MonkeyPatch


def say_at_once(patch: Patch) -> None:
    """Output commit: acknowledge before the sync (DESIGN 5.1)."""
    patch.setattr(Journal, "emit", lambda self, output: self._ready.append(output))


def hear_repeats(patch: Patch) -> None:
    """Exactly once: the agent delivers duplicates (DESIGN 5.5)."""
    patch.setattr(Conversation, "_notified", _without_a_look(Conversation._notified))


def _without_a_look(notified: Callable[[Conversation, protocol.Notify, int], list[Output]]) -> Any:
    """Return a handler that delivers a notification without a check for duplicates."""

    def hear(self: Conversation, notify: protocol.Notify, size: int) -> list[Output]:
        for reader in self._readers.all():
            reader.received = min(reader.received, notify.number - 1)
        return notified(self, notify, size)

    return hear


def move_without_reinvite(patch: Patch) -> None:
    """Healing: the agent registers its new address and does not tell the broker (SPEC D-08)."""

    def moved(self: AgentMachine, given: Moved, now: float) -> None:
        self._data = given.data
        self._parts.give(TRANSPORTS, self._channel.moved())
        self._parts.give(USER_AGENT, [sip.AddressChanged(given.sip)])

    patch.setattr(AgentMachine, "_moved", moved)


def never_retransmit(patch: Patch) -> None:
    """Reliable UDP: overdue packets count as acknowledged (SPEC F-05)."""
    give_up = Sender._give_up

    def forget(self: Sender, bundle: Any, sent_at: float | None) -> None:
        give_up(self, bundle, sent_at)
        bundle.confirmed = True

    patch.setattr(Sender, "_give_up", forget)


def never_repeat_over_tcp(patch: Patch) -> None:
    """TCP: sent data counts as arrived when the TCP connection breaks (SPEC X37)."""
    resume = StreamSender.resume

    def resume_behind(self: StreamSender, expected: int, grant: int, now: float) -> int:
        repeated = resume(self, expected, grant, now)
        for _ in range(repeated):
            self.waiting_bytes -= len(self._waiting.popleft())
        return repeated

    patch.setattr(StreamSender, "resume", resume_behind)


def forget_the_queue(patch: Patch) -> None:
    """Disconnection: a returning device gets only newly published events (SPEC G-13)."""
    read = Links.read

    def read_at_the_end(self: Links, link: Link, handle: int, subscription: str) -> None:
        read(self, link, handle, subscription)
        if (reader := link.reader(subscription)) is not None:
            reader.sent = self._state.sessions[f"{link.user}/{link.session}"].next - 1

    patch.setattr(Links, "read", read_at_the_end)


def forget_publishers(patch: Patch) -> None:
    """Repeats: after a restart no publish is recognised (DESIGN 5.2)."""
    apply_record = BrokerState.apply

    def apply(self: BrokerState, offset: int, record: AnyRecord) -> None:
        apply_record(self, offset, record)
        if isinstance(record, Started):
            for key in [key for key, _ in self.publishers.items()]:
                self.publishers.drop(key)

    patch.setattr(BrokerState, "apply", apply)


def take_one_too_many(patch: Patch) -> None:
    """Cursor: the queue forgets one notification that no device has taken (DESIGN 5.4)."""
    trim = BrokerState._trim

    def trim_more(self: BrokerState, session: SessionRow, queue: SessionQueue, row: SubscriptionRow) -> None:
        trim(self, session, queue, row)
        if (its_own := queue.queues.get(row.subscription.id)) and (oldest := its_own.oldest()):
            queue.take(row.subscription.id, oldest.number)

    patch.setattr(BrokerState, "_trim", trim_more)


def publish_out_of_order(patch: Patch) -> None:
    """Order: after a reconnection the agent repeats its publishes last first (DESIGN 5.2)."""
    opening = Conversation.opening

    def reversed_opening(self: Conversation) -> list[bytes]:
        first, *rest = opening(self)
        return [first, *reversed(rest)]

    patch.setattr(Conversation, "opening", reversed_opening)


def never_probe(patch: Patch) -> None:
    """Liveness: a silent data channel is not probed, a disconnected agent does not try again (SPEC D-10)."""

    def silent(random: RandomSource, *, rudp_config: RudpConfig, **options: Any) -> Transports:
        return Transports(random, rudp_config=msgspec.structs.replace(rudp_config, keepalive_s=None), **options)

    patch.setattr(data_path, "Transports", silent)
    patch.setattr(AgentMachine, "_channel_failed", lambda self, reason, now: self._disconnected(reason))


def never_register_again(patch: Patch) -> None:
    """Signalling over TCP: a broken connection to the server is replaced at the next refresh only (RFC 5626 4.5)."""
    patch.setattr(UserAgent, "_flow_failed", lambda self, now, reason="": [])


def some_seed_fails(seeds: Iterable[int]) -> bool:
    for seed in seeds:
        try:
            if SystemScenario.run_seed(seed).problems:
                return True
        except (AssertionError, KeyError):
            return True
    return False


@pytest.mark.parametrize(
    "sabotage",
    [
        say_at_once,
        hear_repeats,
        move_without_reinvite,
        never_retransmit,
        never_repeat_over_tcp,
        forget_the_queue,
        forget_publishers,
        take_one_too_many,
        publish_out_of_order,
        never_probe,
        never_register_again,
    ],
    ids=lambda sabotage: sabotage.__name__,
)
def test_the_simulator_notices(sabotage: Callable[[Patch], None], monkeypatch: Patch) -> None:
    sabotage(monkeypatch)
    assert some_seed_fails(SEEDS)
