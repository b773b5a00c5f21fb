"""Reaction of an agent to subscriptions that end without its request (SPEC G-10, G-11, G-12, X21)."""

from __future__ import annotations

import msgspec
import pytest

from tests.client.test_conversation import PROPERTIES, opening, receive
from wanderbus import protocol
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.lifetimes import MISSED, OVER_MAX
from wanderbus.client.machine.messages import AskBroker, OnEnded, RequestSettled, SubscriptionOver
from wanderbus.machine import Output
from wanderbus.protocol import (
    AgentMessage,
    Attachment,
    Done,
    Query,
    Renew,
    RequestRefused,
    Subscribe,
    SubscriptionEnded,
    Unsubscribe,
)
from wanderbus.subscription import Frequency, QueuePolicy, Subscription

POLICY = QueuePolicy(notifications_max=5)
ASKED = Subscribe(1, "Trade", "N > 1", 60.0, (Frequency(1.0),), True, POLICY, language="cesql")
FORGOTTEN = RequestRefused(-1, "the session has no such subscription")


def subscription(identity: str = "wb-1") -> Subscription:
    return Subscription(
        identity, "sip:alice@example.org", "default", "Trade", "N > 1", 77, (Frequency(1.0),), "phone", POLICY, "cesql"
    )


class Talk(Conversation):
    """An attached conversation with one subscription, ``wb-1``, of the application."""

    def __init__(self, on_ended: OnEnded, asked: Subscribe = ASKED) -> None:
        super().__init__(msgspec.structs.replace(PROPERTIES, on_ended=on_ended))
        self.opening()
        receive(self, Attachment(1))
        self.send(AskBroker(asked))
        receive(self, Done(asked.request, (subscription(),)))
        assert self.sent_messages() == []

    def sent_messages(self) -> list[AgentMessage]:
        """Messages that it has sent by itself since the last call."""
        return [protocol.decode_from_agent(payload) for payload in self.take_unsent()]

    def attach_again(self) -> list[AgentMessage]:
        self.opening()
        receive(self, Attachment(1))
        return self.sent_messages()


def ended(identity: str = "wb-1", reason: str = "expired") -> SubscriptionEnded:
    return SubscriptionEnded(subscription(identity), reason)


def over(successor: str | None = None, reason: str = "expired") -> list[Output]:
    return [SubscriptionOver(subscription(), reason, subscription(successor) if successor else None)]


def test_g10_the_notice_alone_suffices() -> None:
    talk = Talk("ignore")
    assert receive(talk, ended()) == over()
    assert talk.sent_messages() == []


def test_g10_g12_the_query_alone_suffices_and_follows_every_reconnection() -> None:
    talk = Talk("ignore")
    assert talk.attach_again() == [Query(-1)]
    assert receive(talk, Done(-1, (subscription(),))) == []
    assert talk.attach_again() == [Query(-2)]
    assert receive(talk, Done(-2, ())) == over(reason=MISSED)
    assert talk.attach_again() == [], "nothing is left to ask about"


def test_g12_an_agent_without_subscriptions_sends_no_query() -> None:
    talk = Conversation(PROPERTIES)
    talk.opening()
    receive(talk, Attachment(1))
    talk.opening()
    receive(talk, Attachment(1))
    assert talk.take_unsent() == []


def test_g12_a_question_that_is_broken_off_is_repeated_and_asks_about_what_lives_then() -> None:
    talk = Talk("ignore")
    assert talk.attach_again() == [Query(-1)]
    receive(talk, Done(-1, (subscription(),), more=True))
    talk.send(AskBroker(msgspec.structs.replace(ASKED, request=2)))
    receive(talk, Done(2, (subscription("wb-2"),)))
    assert Query(-1) in opening(talk)
    receive(talk, Attachment(1))
    assert talk.sent_messages() == []
    assert receive(talk, Done(-1, ())) == [
        SubscriptionOver(subscription("wb-1"), MISSED),
        SubscriptionOver(subscription("wb-2"), MISSED),
    ]


def test_g12_subscriptions_requested_after_the_query_are_not_missing() -> None:
    talk = Talk("ignore")
    talk.attach_again()
    talk.send(AskBroker(msgspec.structs.replace(ASKED, request=2)))
    assert receive(talk, Done(2, (subscription("wb-2"),)))[1:] == []
    assert receive(talk, Done(-1, (subscription("wb-1"),))) == []


def test_g10_hearing_of_an_end_twice_is_no_news() -> None:
    talk = Talk("ignore")
    assert receive(talk, ended(), ended()) == over()
    talk = Talk("ignore")
    talk.attach_again()
    assert receive(talk, ended(), Done(-1, ()), ended()) == over()
    talk = Talk("ignore")
    talk.attach_again()
    assert receive(talk, Done(-1, ()), ended()) == over(reason=MISSED)


def test_g10_an_end_requested_by_the_application_is_not_reported() -> None:
    talk = Talk("renew")
    talk.send(AskBroker(Unsubscribe(2, "wb-1")))
    assert receive(talk, ended(), Done(2, ())) == [RequestSettled(2, ())]
    assert talk.sent_messages() == []
    assert talk.attach_again() == []


def test_g10_the_end_of_another_devices_subscription_is_only_reported_once() -> None:
    talk = Talk("renew")
    assert receive(talk, ended("wb-9", "removed"), ended("wb-9", "removed")) == [
        SubscriptionOver(subscription("wb-9"), "removed")
    ]
    assert talk.sent_messages() == []


def test_g10_the_memory_of_ended_subscriptions_is_bounded() -> None:
    talk = Talk("ignore")
    for number in range(OVER_MAX + 10):
        receive(talk, ended(f"wb-x{number}"))
    assert len(talk._lifetimes._over) == OVER_MAX


def test_g11_x21_renew_has_it_back_for_as_long_as_was_asked_at_first() -> None:
    talk = Talk("renew")
    assert receive(talk, ended()) == []
    assert talk.sent_messages() == [Renew(-1, "wb-1", 60.0)]
    assert receive(talk, Done(-1, (subscription(),))) == over("wb-1")
    assert receive(talk, ended()) == [], "it may end again"
    assert talk.sent_messages() == [Renew(-2, "wb-1", 60.0)]


def test_g11_the_lifetime_is_the_one_that_the_application_asked_for_last() -> None:
    talk = Talk("renew")
    talk.send(AskBroker(Renew(2, "wb-1", 5.0)))
    receive(talk, Done(2, (subscription(),)))
    receive(talk, ended())
    assert talk.sent_messages() == [Renew(-1, "wb-1", 5.0)]


def test_g11_x21_resubmit_requests_the_same_subscription_again() -> None:
    talk = Talk("resubmit")
    assert receive(talk, ended()) == []
    assert talk.sent_messages() == [msgspec.structs.replace(ASKED, request=-1)]
    assert receive(talk, Done(-1, (subscription("wb-2"),))) == over("wb-2")
    receive(talk, ended("wb-2"))
    assert talk.sent_messages() == [msgspec.structs.replace(ASKED, request=-2)]


def test_g11_a_resubmission_has_the_latest_changes() -> None:
    talk = Talk("resubmit")
    changed = msgspec.structs.replace(subscription(), restrictions=())
    receive(talk, SubscriptionEnded(changed, "expired"))
    assert talk.sent_messages() == [msgspec.structs.replace(ASKED, request=-1, restrictions=())]


def test_g11_a_subscription_that_the_broker_removed_is_submitted_again() -> None:
    talk = Talk("renew")
    receive(talk, ended())
    assert talk.sent_messages() == [Renew(-1, "wb-1", 60.0)]
    assert receive(talk, FORGOTTEN) == []
    assert talk.sent_messages() == [msgspec.structs.replace(ASKED, request=-2)]
    assert receive(talk, Done(-2, (subscription("wb-2"),))) == over("wb-2")


@pytest.mark.parametrize("on_ended", ["renew", "resubmit"])
def test_g11_a_reaction_that_is_refused_is_an_end(on_ended: OnEnded) -> None:
    talk = Talk(on_ended)
    receive(talk, ended())
    outputs = [output for request in (-1, -2) for output in receive(talk, RequestRefused(request, "no"))]
    assert outputs == over()
    assert receive(talk, ended()) == []


def test_g11_a_reaction_that_is_broken_off_is_repeated() -> None:
    talk = Talk("renew")
    receive(talk, ended())
    assert opening(talk)[1:] == [Renew(-1, "wb-1", 60.0)]


def test_g11_a_subscription_that_the_application_ended_stays_ended() -> None:
    until = msgspec.structs.replace(ASKED, lifetime_s=None, expires_us=77)
    talk = Talk("renew", until)
    assert receive(talk, ended()) == over()
    talk = Talk("renew", until)
    receive(talk, ended(reason="removed"))
    assert talk.sent_messages() == [Renew(-1, "wb-1", None, 77)]


@pytest.mark.parametrize("on_ended", ["renew", "resubmit"])
def test_a_subscription_ended_by_another_device_stays_ended(on_ended: OnEnded) -> None:
    talk = Talk(on_ended)
    assert receive(talk, ended(reason="unsubscribed")) == over(reason="unsubscribed")
    assert talk.sent_messages() == []


@pytest.mark.parametrize(
    ("on_ended", "answer", "said"),
    [
        ("renew", Done(-1, (subscription("wb-1"),)), []),
        ("renew", FORGOTTEN, []),
        ("resubmit", Done(-1, (subscription("wb-2"),)), [Unsubscribe(-2, "wb-2")]),
    ],
)
def test_g11_an_application_that_ends_it_meanwhile_is_obeyed(
    on_ended: OnEnded, answer: Done | RequestRefused, said: list[AgentMessage]
) -> None:
    talk = Talk(on_ended)
    receive(talk, ended())
    talk.sent_messages()
    talk.send(AskBroker(Unsubscribe(2, "wb-1")))
    assert receive(talk, answer) == []
    assert talk.sent_messages() == said


def test_g10_two_agents_of_one_session_react_alike() -> None:
    """Both request the same; the broker answers both with the one subscription."""
    one, other = Talk("resubmit"), Talk("resubmit")
    for talk in (one, other):
        receive(talk, ended())
        assert talk.sent_messages() == [msgspec.structs.replace(ASKED, request=-1)]
        assert receive(talk, Done(-1, (subscription("wb-2"),))) == over("wb-2")


def test_an_answer_to_a_request_made_here_is_not_the_applications() -> None:
    talk = Talk("ignore")
    talk.attach_again()
    assert receive(talk, RequestRefused(-1, "no")) == []
    assert talk.attach_again() == [Query(-2)]
