"""Tables of the agent's states, read by trigger (docs/agent-states.md)."""

from __future__ import annotations

from tests.client.town import Town, connected
from wanderbus.client.machine.states import (
    AGENT,
    CHANNEL,
    AgentState,
    AgentTrigger,
    ChannelState,
    ChannelTrigger,
    after,
)
from wanderbus.machine import SendDatagram, TimerFired
from wanderbus.mobility import messages as sip
from wanderbus.sip.message.message import Request, parse_message

A, AT, C, CT = AgentState, AgentTrigger, ChannelState, ChannelTrigger


AGENT_MOVES: dict[AgentTrigger, dict[AgentState, AgentState]] = {
    AT.CONNECT: {A.IDLE: A.CALLING},
    AT.ANSWERED: dict.fromkeys((A.CALLING, A.RECALLING), A.DISCONNECTED),
    AT.AGREED: {A.DISCONNECTED: A.CONNECTED, A.LEFT: A.LEAVING},
    AT.LOST: {A.CONNECTED: A.DISCONNECTED, A.LEAVING: A.LEFT},
    AT.ENDED: {A.DISCONNECTED: A.RECALLING},
    AT.DISCONNECT: {**dict.fromkeys(A, A.LEFT), A.CONNECTED: A.LEAVING, A.LEAVING: A.LEAVING},
}
CHANNEL_MOVES: dict[ChannelTrigger, dict[ChannelState, ChannelState]] = {
    CT.OFFERED: dict.fromkeys(C, C.RESTARTED),
    CT.OPENING: dict.fromkeys(C, C.OPENED),
    CT.MESSAGE: {C.OPENED: C.IN_USE},
    CT.FAILURE: dict.fromkeys((C.RESTARTED, C.OPENED, C.IN_USE), C.FAILED),
    CT.PROBE: {C.FAILED: C.PROBED},
    CT.RESPONSE: {C.PROBED: C.FAILED},
}


def test_each_trigger_moves_the_agent_from_these_states_alone() -> None:
    for trigger, moves in AGENT_MOVES.items():
        assert {each: after(AGENT, each, trigger) for each in A} == {each: moves.get(each, each) for each in A}, trigger


def test_each_trigger_moves_the_data_channel_from_these_states_alone() -> None:
    for trigger, moves in CHANNEL_MOVES.items():
        assert {each: after(CHANNEL, each, trigger) for each in C} == {each: moves.get(each, each) for each in C}, (
            trigger
        )


def test_d10_an_update_that_failed_is_followed_by_a_new_session() -> None:
    """The session stands at the user agent, but nobody answers in it."""
    phone = connected(Town())
    agent, now = phone.agent, phone.town.world.now
    agent._route_user_agent([sip.UpdateFailed(agent._session, 500, "broken")], now)
    outputs = agent.step([TimerFired("heal")], now + 1.0)
    sent = [parse_message(each.data) for each in outputs if isinstance(each, SendDatagram)]
    assert any(isinstance(each, Request) and each.method == "INVITE" and each.to.tag is None for each in sent)
