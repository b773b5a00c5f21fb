"""Large publishes wait for the bound of the broker, and nothing overtakes them (SPEC U-02, X25; decision 0134)."""

from __future__ import annotations

import pytest

from tests.client.test_conversation import ENCODED, EVENT, conversation, opening, receive
from wanderbus import protocol
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.messages import PublishEvent, PublishSettled
from wanderbus.event import Event
from wanderbus.limits import EVENT_BYTES_MAX
from wanderbus.protocol import Attachment, Publish

LARGE = Event("Trade", {"text": "x" * 2 * EVENT_BYTES_MAX})


def with_three() -> Conversation:
    """A conversation that has to send a small event, a large one, and a small one."""
    talk = conversation()
    for number, event in ((1, ENCODED), (2, protocol.encode_event(LARGE)), (3, ENCODED)):
        talk.send(PublishEvent(number, event))
    return talk


def sent(talk: Conversation) -> list[object]:
    return [protocol.decode_from_agent(each) for each in talk.take_unsent()]


@pytest.mark.parametrize("again", [False, True])
def test_a_large_publish_and_what_follows_wait_for_each_attachment(again: bool) -> None:
    talk = with_three()
    if again:
        opening(talk)
        receive(talk, Attachment(1, event_bytes_max=100_000))
        sent(talk)
    assert opening(talk)[1:] == [Publish(1, EVENT)]
    assert talk.send(PublishEvent(4, ENCODED)) is None
    assert receive(talk, Attachment(1, event_bytes_max=100_000)) == []
    assert sent(talk) == [Publish(2, LARGE), Publish(3, EVENT), Publish(4, EVENT)]
    assert talk.send(PublishEvent(5, protocol.encode_event(LARGE))) is not None


def test_a_too_large_publish_is_refused_by_the_agent_and_the_others_are_sent() -> None:
    talk = with_three()
    opening(talk)
    (settled,) = receive(talk, Attachment(1))
    assert isinstance(settled, PublishSettled)
    assert (settled.number, settled.id, settled.limit) == (2, None, "event_bytes_max")
    assert "the limit is 32,768 (`broker.event_bytes_max`)" in str(settled.reason)
    assert sent(talk) == [Publish(3, EVENT)]
    assert talk.send(PublishEvent(4, protocol.encode_event(LARGE))) is None
    assert [each.number for each in talk.take_held_back() if isinstance(each, PublishSettled)] == [4]
    assert opening(talk)[1:] == [Publish(1, EVENT), Publish(3, EVENT)]
