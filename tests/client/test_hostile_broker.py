"""A hostile broker: it ends subscriptions, sends unrequested responses, never stops sending. The agent stays intact."""

from __future__ import annotations

import msgspec
import pytest

from tests.client.test_conversation import EVENT, SUBSCRIBE, SUBSCRIPTION, conversation, receive
from tests.client.town import DATA_ADDRESS, Phone, Town, connected
from wanderbus import protocol
from wanderbus.broker.messages import SendOnLink
from wanderbus.broker.readers import Link
from wanderbus.client.machine import answer_checks
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.heal_pacing import FREE_FAILURES, STABLE_S, HealPacing
from wanderbus.client.machine.messages import (
    Acknowledge,
    AskBroker,
    ConnectRefused,
    EndReading,
    ItemArrived,
    ServerUnreachable,
)
from wanderbus.datachannel import description
from wanderbus.datachannel.description import ChannelEnd
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Event, EventId, Loss, Position
from wanderbus.machine import SendDatagram, SetTimer, TimerFired
from wanderbus.protocol import Attachment, Done, Inspect, Kick, Listing, ListSchemas, Query, Renew, Unsubscribe
from wanderbus.simulation.world import SeededRandom, World
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.transport import ConnectionReset


def invites(town: Town, start: float) -> set[tuple[str, int]]:
    """The INVITEs since ``start``, each once."""
    messages = [sent.message for sent in town.since(start) if sent.method == "INVITE"]
    return {(message.call_id, message.cseq.number) for message in messages if message is not None}


def begin_to_lie(town: Town, uri: str) -> None:
    """Let the broker answer every attachment of ``uri`` with garbage, and close the present connection so."""
    links = town.access.broker._links
    send = links.send

    def garble(link: Link, message: protocol.BrokerMessage) -> None:
        if isinstance(message, Attachment) and link.user == uri:
            links._journal.emit(SendOnLink(link.link, b"\xc1"))
        else:
            send(link, message)

    links.send = garble  # type: ignore[method-assign]
    links._journal.emit(SendOnLink(links.of_user(uri)[0].link, b"\xc1"))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("over", ["UDP", "TCP"])
def test_a_broker_that_garbles_every_attachment_is_asked_less_and_less_often(seed: int, over: str) -> None:
    town = Town(seed=seed)
    phone = connected(town, data_transport=over)
    start = town.world.now
    begin_to_lie(town, phone.uri)
    phone.publish(1)
    town.run(120.0)
    assert 8 <= len(invites(town, start)) <= 24
    del town.access.broker._links.send
    town.run(20.0)
    assert phone.statuses[-1] == "CONNECTED"
    phone.publish(2)
    town.run(1.0)
    assert phone.received == [1, 2]


def test_after_a_move_the_agent_retries_a_lying_broker_at_once() -> None:
    town = Town()
    phone = connected(town)
    begin_to_lie(town, phone.uri)
    phone.publish(1)
    town.run(60.0)
    del town.access.broker._links.send
    phone.move("10.9.0.1")
    town.run(1.0)
    assert phone.statuses[-1] == "CONNECTED"


def test_a_broker_that_resets_every_connection_is_asked_less_and_less_often() -> None:
    """Also where it resets the connection that is probed: a sign of life, and again none that lasts."""
    town = Town()
    phone = connected(town)
    agent = phone.agent

    def reset() -> None:
        for identity in (agent._channel.local, agent._channel.failed):
            agent._route_transports([ConnectionReset(identity)] if identity else [], town.world.now)
        phone.node.feed([])
        town.world.after(0.02, reset)

    start = town.world.now
    reset()
    town.run(120.0)
    assert 8 <= len(invites(town, start)) <= 30


def test_a_row_of_failures_ends_when_a_connection_holds() -> None:
    pacing = HealPacing(SeededRandom(World(1)), 16.0)
    now = 0.0
    pauses = []
    for _ in range(12):
        pacing.agreed(now)
        pauses.append(pacing.failed(now + 1.0))
        now += 1.0 + pauses[-1]
    assert max(pauses[:FREE_FAILURES]) <= 1.0
    assert 8.0 <= pauses[-1] <= 16.0
    pacing.agreed(now)
    pacing.agreed(now + STABLE_S)
    assert pacing.failed(now + STABLE_S) <= 1.0


def attached(**options: object) -> Conversation:
    talk = conversation(**options)
    receive(talk, Attachment(1))
    return talk


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (SUBSCRIBE, Done(1, ())),
        (SUBSCRIBE, Done(1, (SUBSCRIPTION, SUBSCRIPTION))),
        (SUBSCRIBE, Listing(1, ())),
        (Renew(1, "wb-1", None), Done(1, ())),
        (protocol.Restrict(1, "wb-1", ()), Done(1, ())),
        (Query(1), Listing(1, ({"user": "x"},))),
        (Unsubscribe(1, "wb-1"), Listing(1, ())),
        (Inspect(1, "sessions", None), Done(1, (SUBSCRIPTION,))),
        (Kick(1, "sip:a@b", None, False), Done(1, ())),
        (ListSchemas(1), Done(1, ())),
    ],
)
def test_an_answer_of_another_kind_than_was_asked_for_is_malformed(
    asked: protocol.SubscriptionRequest | protocol.OperatorRequest, answer: protocol.BrokerMessage
) -> None:
    talk = attached()
    talk.send(AskBroker(asked))
    with pytest.raises(RemoteProtocolError, match="the broker"):
        receive(talk, answer)
    assert talk.unanswered == 1


def test_a_renewal_of_our_own_that_is_answered_with_nothing_is_malformed() -> None:
    talk = attached(on_ended="renew")
    talk.send(AskBroker(SUBSCRIBE))
    receive(talk, Done(1, (SUBSCRIPTION,)), protocol.SubscriptionEnded(SUBSCRIPTION, "expired"))
    with pytest.raises(RemoteProtocolError, match="0 subscriptions instead of one"):
        receive(talk, Done(-1, ()))


def test_an_answer_without_end_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_checks, "ANSWER_BYTES_MAX", 10_000)
    talk = attached()
    talk.send(AskBroker(Query(1)))
    parts = [Done(1, (SUBSCRIPTION,), more=True)] * 1_000
    with pytest.raises(RemoteProtocolError, match="more than 10000 bytes"):
        receive(talk, *parts)
    talk.opening()
    assert receive(talk, Attachment(1), Done(1, (SUBSCRIPTION,))) != []


def notify(number: int, event: object = EVENT, readers: tuple[int, ...] = ()) -> protocol.Notify:
    raw = msgspec.Raw(msgspec.msgpack.encode(event))
    return protocol.Notify(number, EventId("wb", 1, number), raw, ("wb-1",), False, readers)


def reading(bytes_max: int) -> Conversation:
    talk = conversation(untaken_bytes_max=bytes_max)
    talk.send(AskBroker(SUBSCRIBE, reads=True))
    receive(talk, Attachment(1), Done(1, (SUBSCRIPTION,)))
    return talk


def test_a_broker_that_sends_on_to_who_takes_nothing_loses_the_connection() -> None:
    talk = reading(10_000)
    with pytest.raises(RemoteProtocolError, match="untaken_bytes_max, 10000"):
        receive(talk, *map(notify, range(1, 10_000)))
    taken = talk._unacknowledged._by_subscription["wb-1"][-1][0].number
    assert 100 < taken < 500
    assert receive(talk, Attachment(1)) == []
    talk.send(Acknowledge("wb-1", Position(1, taken)))
    (arrived,) = receive(talk, notify(taken + 1))
    assert isinstance(arrived, ItemArrived), "what was refused comes again and is not lost"


def test_a_reader_that_acknowledges_may_receive_any_number() -> None:
    talk = reading(1_000)
    for number in range(1, 2_000):
        assert len(receive(talk, notify(number))) == 1
        if number % 8 == 0:
            talk.send(Acknowledge("wb-1", Position(1, number)))


def test_the_bound_holds_over_gaps_and_over_epochs_without_end() -> None:
    talk = reading(10_000)
    gap = protocol.NotifyGap(1, 1, (Loss("wb-1", "full", 1),))
    messages = [each for epoch in range(1, 10_000) for each in (Attachment(epoch), gap)]
    with pytest.raises(RemoteProtocolError, match="untaken_bytes_max"):
        receive(talk, *messages)


def test_notifications_of_closed_readers_are_not_counted() -> None:
    talk = reading(1_000)
    for number in range(1, 6):
        receive(talk, notify(number))
    assert talk._unacknowledged._bytes > 0
    talk.send(EndReading("wb-1"))
    assert talk._unacknowledged._bytes == 0


@pytest.mark.parametrize(
    "event",
    [
        {"subject": "Trade", "attributes": {"N": {"nested": 1}}},
        {"subject": "Trade", "attributes": {"N": None}},
        {"subject": "Trade", "attributes": {"N": float("nan")}},
        {"subject": "Trade", "attributes": {"N": [[1]]}},
        {"subject": "Trade", "attributes": {"N": b"bytes"}},
        {"subject": "", "attributes": {}},
        {"subject": "T" * 300, "attributes": {}},
        {"subject": "Trade", "attributes": {"N": 2**63}},
    ],
)
def test_an_event_that_no_program_expects_is_malformed(event: object) -> None:
    talk = reading(10_000)
    with pytest.raises(RemoteProtocolError, match="the broker sent an invalid event"):
        receive(talk, notify(1, event))


def test_an_old_event_of_a_time_beyond_the_calendar_still_comes() -> None:
    """Earlier servers accepted such events, and their logs contain them."""
    talk = reading(10_000)
    (arrived,) = receive(talk, notify(1, Event("Trade", {"N": 1}, 2**63)))
    assert isinstance(arrived, ItemArrived)


@pytest.mark.parametrize(
    "place", ["224.0.0.1", "255.255.255.255", "0.0.0.0", "127.0.0.1", "ff02::1", "::1", "::ffff:127.0.0.1"]
)
def test_data_are_never_sent_where_no_broker_can_be(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The MAC leaves out addresses, and whoever signals may write any."""

    def moved(media: MediaDescription) -> ChannelEnd:
        end = description.read_end(media)
        broker = end.address[1] == DATA_ADDRESS[1]
        return msgspec.structs.replace(end, address=(place, 9)) if broker else end

    monkeypatch.setattr("wanderbus.datachannel.channel.read_end", moved)
    town = Town()
    phone = Phone(town).connect()
    assert phone.statuses == []
    assert [sent for sent in town.sent if sent.source == (phone.ip, 40_000)] == []
    (refused,) = phone.all_of(ConnectRefused)
    assert f"described at {place}" in refused.reason


def test_an_invalid_response_is_reported_to_its_caller() -> None:
    town = Town()
    links = town.access.broker._links
    send = links.send

    def answer_otherwise(link: Link, message: protocol.BrokerMessage) -> None:
        send(link, Listing(message.request, ()) if isinstance(message, Done) else message)

    links.send = answer_otherwise  # type: ignore[method-assign]
    phone = Phone(town).connect()
    phone.node.feed([AskBroker(Query(1))])
    town.run(2.0)
    reasons = {each.reason for each in phone.all_of(ServerUnreachable)}
    assert reasons == {"the broker answered a request with a listing"}


def test_a_device_that_wakes_after_ten_hours_sends_a_handful_of_datagrams() -> None:
    """All its timers are due at once; none makes up for the time asleep."""
    town = Town()
    phone = connected(town)
    town.run(30.0)
    fired = [TimerFired(key) for key in phone.node.timers.keys]
    assert fired
    outputs = phone.agent.step(fired, town.world.now + 36_000.0)
    assert len([each for each in outputs if isinstance(each, SendDatagram)]) <= 2 * len(fired)
    assert all(each.at >= town.world.now + 36_000.0 for each in outputs if isinstance(each, SetTimer))
