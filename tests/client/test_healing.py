"""Retries of an agent that gets no response: their intervals and timeouts (SPEC D-08, D-10)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.client.town import Phone, Town, connected
from wanderbus.client.machine.core import TRANSPORTS
from wanderbus.client.machine.messages import AgentStatusChanged, Connect, ConnectRefused, Moved, PublishSettled
from wanderbus.client.machine.states import ChannelState
from wanderbus.machine import Input, SendDatagram, SetTimer, TimerFired
from wanderbus.simulation.network import PathConditions
from wanderbus.sip.message.message import Request, parse_message
from wanderbus.transport import ConnectionReset, SendMessage, TransportOutput


@pytest.fixture
def town() -> Town:
    return Town()


def pause_s(phone: Phone) -> float:
    """Let the agent try to heal once more, without a response; return the wait until the next try."""
    now = phone.town.world.now
    outputs = phone.agent.step([TimerFired("heal")], now)
    phone.reports += [output for output in outputs if isinstance(output, AgentStatusChanged)]
    return [output.at - now for output in outputs if isinstance(output, SetTimer) and output.key == "heal"][-1]


def test_d10_healing_is_tried_at_growing_intervals(town: Town) -> None:
    phone = Phone(town, heal_s=3.0, heal_s_max=10.0)
    phone.agent.step([Connect()], town.world.now)
    assert [pause_s(phone) for _ in range(4)] == pytest.approx([6.0, 10.0, 10.0, 10.0])


def test_d08_after_a_move_healing_is_tried_soon_again(town: Town) -> None:
    phone = connected(town, heal_s=3.0, heal_s_max=10.0)
    assert [pause_s(phone) for _ in range(2)] == pytest.approx([6.0, 10.0])
    now = town.world.now
    outputs = phone.agent.step([Moved(("10.1.9.9", 5060), ("10.1.9.9", 40_000))], now)
    assert SetTimer("heal", now + 3.0) in outputs


def test_d10_once_healed_healing_is_tried_soon_again(town: Town) -> None:
    phone = connected(town, heal_s=3.0, heal_s_max=10.0)
    assert [pause_s(phone) for _ in range(2)] == pytest.approx([6.0, 10.0])
    town.run(0.1)
    phone.node.feed([TimerFired("heal")])
    town.run(1.0)
    assert phone.statuses == ["CONNECTED", "DISCONNECTED", "CONNECTED"]
    assert pause_s(phone) == pytest.approx(6.0)


def test_d10_a_channel_that_ends_before_any_data_is_not_replaced_at_once(town: Town) -> None:
    """Something on its way has no room for it: each new session would meet the same."""
    phone = connected(town)
    agent = phone.agent

    def turned_away(given: Sequence[Input], now: float) -> list[TransportOutput]:
        if any(isinstance(each, SendMessage) for each in given):
            town.world.after(0.001, reset)
        return []

    def reset() -> None:
        agent._route_transports([ConnectionReset(agent._channel.local)], town.world.now)
        phone.node.feed([])

    agent._parts.add(TRANSPORTS, turned_away, agent._route_transports)
    start = town.world.now
    phone.publish(1)
    town.run(20.0)
    invites = {s.message.cseq.number for s in town.since(start) if s.message and s.method == "INVITE"}
    assert 5 <= len(invites) <= 12


@pytest.mark.parametrize("over", ["UDP", "TCP"])
def test_d10_a_round_trip_of_more_than_two_seconds_is_no_reason_not_to_connect(over: str) -> None:
    """With a challenge on the way, the response takes longer than the first retry interval."""
    town = Town(PathConditions(delay_min_s=1.1, delay_max_s=1.1))
    town.network.within = PathConditions(delay_min_s=0.001, delay_max_s=0.001)
    town.run(10.0)
    alice = Phone(town, data_transport=over)
    assert alice.properties.heal_s < 2 * 2.2
    alice.connect()
    town.run(30.0)
    assert alice.statuses == ["CONNECTED"]
    alice.publish(1)
    town.run(5.0)
    assert [settled.number for settled in alice.all_of(PublishSettled)] == [1]
    alice.move("10.1.7.7")
    town.run(10.0)
    assert alice.statuses == ["CONNECTED", "CONNECTED"]


def test_d10_the_answer_to_the_description_of_a_channel_that_has_ended_is_no_refusal(town: Town) -> None:
    """In this case healing waits, since no datagram had arrived on that channel."""
    phone = connected(town)
    phone.move("10.1.0.9")
    town.run(0.001)
    phone.agent._use = ChannelState.OPENED
    phone.agent._route_transports([ConnectionReset(phone.agent._channel.local)], town.world.now)
    phone.node.feed([])
    town.run(5.0)
    assert phone.all_of(ConnectRefused) == []
    assert phone.statuses[-2:] == ["DISCONNECTED", "CONNECTED"]


def test_d10_an_update_that_stays_in_vain_gives_way_to_a_new_session(town: Town) -> None:
    """Both sides have moved, so each calls the other's old address; the registrar has the broker's new one."""
    phone = connected(town, heal_s=3.0)

    def calls_anew() -> bool:
        """Heal once more, without a response; return whether an INVITE outside of a dialog is sent."""
        outputs = phone.agent.step([TimerFired("heal")], town.world.now)
        sent = [parse_message(output.data) for output in outputs if isinstance(output, SendDatagram)]
        return any(isinstance(each, Request) and each.method == "INVITE" and each.to.tag is None for each in sent)

    assert [calls_anew() for _ in range(3)] == [False, True, True]
