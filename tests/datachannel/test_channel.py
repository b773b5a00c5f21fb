"""Agreement of offer and answer on one connection, and the binding of its keys (DESIGN 6.1, 6.3, 6.5)."""

from __future__ import annotations

import msgspec
import pytest

from tests.datachannel.sides import BOTH, BROKER, Call, Side, changed
from wanderbus.datachannel import channel_secret, read_end
from wanderbus.datachannel.description import Protocol
from wanderbus.errors import SIPParseError
from wanderbus.sip.authentication.digest import ha1
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.transport import ConnectionFailed, ConnectionReset, ProbeAnswered

KINDS: list[tuple[Protocol, bool]] = [("UDP", True), ("UDP", False), ("TCP/TLS", True), ("TCP", False)]


@pytest.fixture(params=KINDS, ids=["udp", "plain-udp", "tls", "plain-tcp"])
def call(request: pytest.FixtureRequest) -> Call:
    protocol, encryption = request.param
    return Call(protocol, encryption=encryption)


either_offers = pytest.mark.parametrize("offerer", ["agent", "broker"])


@either_offers
def test_the_first_agreement_opens_the_connection_on_both_sides(call: Call, offerer: str) -> None:
    assert call.agree(offerer) == (True, True)
    assert call.delivered("agent", b"one", b"two") == [b"one", b"two"]
    assert call.delivered("broker", b"three") == [b"three"]


def test_f01_the_agent_connects_and_the_broker_listens() -> None:
    call = Call("TCP/TLS")
    offer = call.agent.offer()
    assert (offer.port, offer.attribute("setup"), offer.attribute("connection")) == (9, "active", "new")
    call.broker.accept(offer)
    answer = call.broker.describe()
    assert (answer.port, answer.attribute("setup")) == (BROKER[1], "passive")
    assert (answer.attribute("fingerprint") is None, offer.attribute("fingerprint")) == (False, None)
    call.agent.agreed(answer)
    assert call.agent.offer().attribute("connection") == "existing"


def test_an_offer_that_leaves_open_who_connects_is_answered_passive() -> None:
    """RFC 4145 4.1."""
    call = Call("TCP/TLS")
    assert call.broker.accept(changed(call.agent.offer(), setup="actpass"))
    assert call.broker.describe().attribute("setup") == "passive"


@pytest.mark.parametrize("mover", ["agent", "broker"])
def test_a_move_keeps_the_connection_and_changes_its_path(call: Call, mover: str) -> None:
    call.agree()
    ids = (call.agent.channel.local, call.broker.channel.local)
    side, other = call.sides(mover)
    side.move("10.0.9.9")
    assert call.agree(mover) == (False, False)
    assert (call.agent.channel.local, call.broker.channel.local) == ids
    assert read_end(side.describe()).generation == 1
    if call.agent.channel.protocol == "UDP" or mover == "agent":
        assert call.delivered("broker" if other is call.broker else "agent", b"follows") == [b"follows"]


@pytest.mark.parametrize("is_new", [False, True])
def test_an_offer_has_the_generation_of_its_sender(is_new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a connection that is younger than the move (DESIGN 6.1)."""
    call = Call()
    call.agree()
    call.agent.move("10.0.9.9")
    if is_new:
        call.agent.channel.lost()
    call.agree()
    sent: list[bytes] = []
    monkeypatch.setattr(call.network, "send", lambda source, to, data: sent.append(data))
    call.agent.send(b"from there")
    assert [int.from_bytes(packet[18:20], "big") for packet in sent] == [1]


def test_an_old_description_is_refused_also_after_a_failure(call: Call) -> None:
    call.agree()
    old = call.agent.describe()
    call.agent.move("10.0.9.9")
    call.agree()
    call.broker.ask(call.broker.channel.close())
    assert "older than its last move" in refused(call.broker, old)


def test_a_living_connection_is_described_alike_and_a_new_one_has_another_key(call: Call) -> None:
    call.agree()
    first = read_end(call.agent.describe())
    again = read_end(call.agent.offer())
    assert (again.connection, again.key) == (first.connection, first.key)
    call.agent.channel.lost()
    following = read_end(call.agent.offer())
    assert following.connection != first.connection
    assert not first.key or following.key != first.key


@either_offers
def test_a_lost_connection_is_replaced_on_both_sides_with_fresh_ids(call: Call, offerer: str) -> None:
    call.agree()
    ids = {call.agent.channel.local, call.broker.channel.local}
    call.sides(offerer)[0].channel.lost()
    assert call.agree(offerer) == (True, True)
    assert ids.isdisjoint({call.agent.channel.local, call.broker.channel.local})
    assert call.delivered("agent", b"after") == [b"after"]
    assert call.delivered("broker", b"after") == [b"after"]


def test_a_side_that_lost_the_connection_answers_with_a_fresh_id(call: Call) -> None:
    """This happens after a restart of the broker, when the agent has not noticed yet."""
    call.agree()
    call.broker.ask(call.broker.channel.close())
    assert call.agree() == (True, True)
    assert call.delivered("broker", b"after") == [b"after"]


@pytest.mark.parametrize(("loser", "second"), [("agent", (True, True)), ("broker", (True, False))])
def test_an_answer_that_was_lost_does_not_part_the_two(call: Call, loser: str, second: tuple[bool, bool]) -> None:
    call.agree()
    call.sides(loser)[0].channel.lost()
    assert call.agree(lost_answer=True) == (None, True)
    assert call.agree() == second
    assert call.delivered("agent", b"one") == [b"one"]
    assert call.delivered("broker", b"two") == [b"two"]


def test_offering_twice_while_nothing_is_agreed_forgets_the_first_id(call: Call) -> None:
    call.agent.offer()
    first = call.agent.channel.local
    call.agent.offer()
    assert call.agent.channel.local != first
    assert call.agree() == (True, True)


def test_an_answer_without_an_offer_is_refused(call: Call) -> None:
    """Or a pair of ids that was used could be used again, and with it the numbers under its keys."""
    call.agree()
    answer = call.broker.describe()
    call.agent.channel.lost()
    with pytest.raises(SIPParseError, match="none was offered"):
        call.agent.agreed(answer)


def test_a_closed_channel_receives_nothing(call: Call) -> None:
    call.agree()
    call.broker.ask(call.broker.channel.close())
    assert call.delivered("agent", b"late") == []
    assert call.broker.channel.remote is None
    assert call.broker.transports._over_tcp == set()
    call.run(60.0)
    assert call.broker.node.timers.keys == []


def refused(side: Side, media: MediaDescription) -> str:
    """Reason why ``side`` refuses ``media``; its connection stays unchanged."""
    before = (side.channel.local, side.channel.remote)
    with pytest.raises(SIPParseError) as caught:
        side.accept(media)
    assert caught.value.status == 488
    assert (side.channel.local, side.channel.remote) == before
    return str(caught.value)


def test_an_old_description_of_the_same_dialog_is_refused(call: Call) -> None:
    """Its MAC is right, but it is from before a move (DESIGN 6.1)."""
    call.agree()
    old = call.agent.describe()
    call.agent.move("10.0.9.9")
    call.agree()
    assert "older than its last move" in refused(call.broker, old)
    assert call.delivered("broker", b"there") == [b"there"]


@pytest.mark.parametrize("host", ["ff02::1", "224.0.0.1", "::ffff:255.255.255.255", "::", "64:ff9b::e000:1"])
def test_an_address_of_many_hosts_or_none_is_refused(call: Call, host: str) -> None:
    """The MAC leaves addresses out, and an agent may give any as its own."""
    call.agree()
    described = msgspec.structs.replace(call.agent.describe(), address=host)
    assert "not a single host" in refused(call.broker, described)
    assert call.delivered("broker", b"there") == [b"there"]


def test_a_living_connection_does_not_change_its_key() -> None:
    call, other = Call(), Call(seed=2)
    call.agree()
    stolen = other.agent
    stolen.offer()
    stolen.channel.local = call.agent.channel.local
    assert "another key" in refused(call.broker, stolen.describe())


def test_a_description_of_another_session_is_refused(call: Call) -> None:
    call.agree()
    replayed = call.agent.describe()
    call.broker.ask(call.broker.channel.abandon())
    call.broker.channel.begin(msgspec.structs.replace(call.broker.channel.parties, dialog="call-2"))
    assert "signature" in refused(call.broker, replayed)


def test_a_key_that_gives_everybody_the_same_secret_is_refused() -> None:
    call = Call()
    weak = msgspec.structs.replace(read_end(call.agent.offer()), key=bytes(32))
    with pytest.raises(Exception, match="key cannot be used"):
        call.broker.channel.accept(weak)
    assert (call.broker.channel.local, call.broker.channel.remote) == (0, None)
    assert call.broker.transports.udp.endpoint._allocated == set()


def test_an_agent_keeps_to_its_transport() -> None:
    over_tcp, over_udp = Call("TCP/TLS"), Call("UDP")
    assert "must use UDP" in refused(over_udp.agent, over_tcp.broker.offer())


@pytest.mark.parametrize(("protocol", "encryption"), KINDS)
def test_a_peer_without_the_password_receives_nothing(protocol: Protocol, encryption: bool) -> None:
    """Were the MACs not looked at, the secret would be missing: in the keys, and in the proof over TCP."""
    if protocol == "UDP" and not encryption:
        pytest.skip("plain reliable UDP has nothing to prove with")
    thief = msgspec.structs.replace(BOTH, role="broker", secret=channel_secret(ha1("alice", "sim.test", "guess")))
    call = Call(protocol, encryption=encryption, broker=thief)
    call.broker.ask(call.broker.channel.accept(read_end(call.agent.offer()))[1])
    call.agent.ask(call.agent.channel.agreed(read_end(call.broker.describe()))[1])
    assert call.delivered("agent", b"secret") == []
    assert call.delivered("broker", b"forged") == []


# A failed connection is probed (SPEC D-10) --------------------------------------------------------------------------


def cut_until_it_fails(call: Call) -> None:
    call.agree()
    assert call.delivered("agent", b"before") == [b"before"]
    call.network.cut(call.agent.address[0])
    call.agent.send(b"lost")
    call.run(30.0)
    assert call.agent.reported(ConnectionFailed)
    call.agent.channel.lost()


def test_d10_a_probe_is_answered_as_soon_as_the_way_is_free(call: Call) -> None:
    cut_until_it_fails(call)
    call.network.mend(call.agent.address[0])
    call.agent.ask(call.agent.channel.probe())
    call.run(1.0)
    assert call.agent.reported(ProbeAnswered)
    assert call.broker.received == [b"before"]
    assert call.agree() == (True, True)
    assert call.delivered("agent", b"after") == [b"after"]


def test_d10_a_side_that_forgot_the_connection_answers_by_a_reset(call: Call) -> None:
    cut_until_it_fails(call)
    call.broker.ask(call.broker.channel.close())
    call.network.mend(call.agent.address[0])
    call.agent.ask(call.agent.channel.probe())
    call.run(1.0)
    assert call.agent.reported(ConnectionReset)


def test_the_failed_connection_stays_while_others_are_offered_and_goes_with_the_next_agreement(call: Call) -> None:
    cut_until_it_fails(call)
    failed = call.agent.channel.failed
    call.agent.offer()
    call.agent.ask(call.agent.channel.abandon())
    call.agent.offer()
    assert call.agent.channel.failed == failed
    call.network.mend(call.agent.address[0])
    call.agree()
    assert call.agent.channel.failed == 0
    assert call.agent.channel.probe() == []


def test_u05_an_older_answer_does_not_open_an_earlier_pair_again() -> None:
    """Its MAC, dialog and generation are right, and the keys would be used a second time from packet number 0."""
    call = Call()
    call.broker.accept(call.agent.offer())
    older = call.broker.describe()
    call.agent.agreed(older)
    call.run(0.2)
    call.broker.ask(call.broker.channel.close())
    assert call.agree() == (True, True)
    call.broker.accept(call.agent.offer())
    with pytest.raises(SIPParseError, match="older than its new connection"):
        call.agent.agreed(older)
