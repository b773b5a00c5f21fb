"""Sessions outlive the process that holds them, if it stored them (DESIGN 6.3)."""

from __future__ import annotations

import msgspec
import pytest

from tests.mobility.world import Talk, established, settled
from wanderbus.errors import LocalProtocolError
from wanderbus.mobility.messages import CreateSession, SessionEstablished, SessionRemoved, UpdateFailed
from wanderbus.mobility.session.session import RESTART_LEAP, RemoteMediaStatus, SIPCommunicationStatus, SIPSession


def test_a_called_side_that_stored_its_session_goes_on_with_it(talk: Talk) -> None:
    world, alice, broker = talk
    snapshot = broker.session().snapshot()
    broker.crash()
    world.run(2.0)
    broker.restart(snapshot)
    assert broker.session().communication is SIPCommunicationStatus.REINVITING
    world.run(1.0)
    assert settled(alice, broker)
    assert list(alice.agent.sessions) == list(broker.agent.sessions) == ["call"]
    assert alice.all_of(SessionEstablished)[-1].update
    assert not alice.all_of(SessionRemoved)
    assert not alice.all_of(UpdateFailed)


def test_a_snapshot_older_than_the_last_update_still_works(talk: Talk) -> None:
    """CSeq and SDP version jump beyond all numbers used after the snapshot."""
    world, alice, broker = talk
    snapshot = broker.session().snapshot()
    for host in ("10.0.4.1", "10.0.4.2", "10.0.1.1"):
        broker.move(host)
        world.run(1.0)
    broker.crash()
    broker.restart(snapshot)
    world.run(1.0)
    assert settled(alice, broker)
    assert world.sent("500 INVITE") == []


def test_the_caller_may_restart_too(talk: Talk) -> None:
    world, alice, broker = talk
    snapshot = alice.session().snapshot()
    alice.crash()
    alice.restart(snapshot)
    world.run(1.0)
    assert settled(alice, broker)
    assert list(broker.agent.sessions) == ["call"]


def test_both_sides_restart_at_once(talk: Talk) -> None:
    world, alice, broker = talk
    snapshots = alice.session().snapshot(), broker.session().snapshot()
    alice.crash()
    broker.crash()
    alice.restart(snapshots[0])
    broker.restart(snapshots[1])
    world.run_until(lambda: settled(alice, broker), 10.0)


def test_a_move_while_the_peer_is_down_for_two_seconds_heals_at_once(talk: Talk) -> None:
    world, alice, broker = talk
    snapshot = broker.session().snapshot()
    broker.crash()
    alice.move("10.0.3.1")
    world.run(2.0)
    broker.restart(snapshot)
    assert world.run_until(lambda: settled(alice, broker), 10.0) < 0.2


def test_a_peer_that_lost_its_sessions_answers_481_and_the_update_fails(talk: Talk) -> None:
    world, alice, broker = talk
    broker.crash()
    broker.restart()
    world.run(1.0)
    alice.move("10.0.3.1")
    world.run(1.0)
    assert [report.status for report in alice.all_of(UpdateFailed)] == [481]
    assert alice.agent.sessions == {}
    alice.call("broker", id="anew")
    world.run(1.0)
    assert alice.sends_to(broker, "anew")


def test_a_new_session_of_the_same_device_names_the_old_one(talk: Talk) -> None:
    """SPEC E-10: the owner can end the old session, which the machine keeps until then."""
    world, alice, broker = talk
    alice.crash()
    alice.restart()
    world.run(1.0)
    alice.call("broker", id="anew")
    world.run(1.0)
    assert sorted(broker.agent.sessions) == ["anew", "call"]
    assert {session.remote_instance for session in broker.agent.sessions.values()} == {"<urn:uuid:alice>"}


def test_a_restored_session_differs_only_in_what_a_restart_changes(talk: Talk) -> None:
    _, alice, _ = talk
    session = alice.session()
    restored = SIPSession.restore(session.snapshot())
    assert session.dialog is not None
    assert restored.dialog is not None
    assert restored.dialog.local_cseq == session.dialog.local_cseq + RESTART_LEAP
    assert restored.description_version == session.description_version + RESTART_LEAP
    assert restored.media_status is RemoteMediaStatus.DISCONNECTED
    unchanged = ("dialog", "description_version", "media_status")
    for field in msgspec.structs.fields(SIPSession):
        if field.name not in unchanged:
            assert getattr(restored, field.name) == getattr(session, field.name), field.name


def test_a_snapshot_that_was_not_compressed_is_restored_as_well(talk: Talk) -> None:
    _, alice, _ = talk
    session = alice.session()
    assert SIPSession.restore(msgspec.json.encode(session)) == SIPSession.restore(session.snapshot())
    assert len(session.snapshot()) < len(msgspec.json.encode(session)) / 2


@pytest.mark.parametrize("snapshot", [b"{}", b"", b"x\x9c", b"neither"])
def test_an_invalid_snapshot_is_refused(snapshot: bytes) -> None:
    _, alice, broker = established()
    with pytest.raises(LocalProtocolError, match="not a snapshot"):
        alice.agent.adopt(snapshot)
    with pytest.raises(LocalProtocolError, match="already"):
        alice.agent.adopt(alice.session().snapshot())
    with pytest.raises(LocalProtocolError, match="belongs to"):
        alice.agent.adopt(msgspec.json.encode(msgspec.structs.replace(broker.session(), id="other")))
    alice.give(CreateSession("unanswered", "broker@example.org", broker.session().remote_media))  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="never established"):
        alice.agent.adopt(alice.session("unanswered").snapshot())
