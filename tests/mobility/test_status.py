"""The states and their one table (SPEC C-12 to C-15)."""

from __future__ import annotations

import itertools

import pytest

from wanderbus.errors import LocalProtocolError
from wanderbus.mobility.session.session import (
    TRANSITIONS,
    RemoteMediaStatus,
    SessionOccurrence,
    SIPCommunicationStatus,
    advanced,
    advanced_media,
)

Status = SIPCommunicationStatus


def test_c12_c13_members_are_exactly_those_of_the_table() -> None:
    names = "UNDEFINED DISCONNECTED INVITING RINGING_THERE BUSY_THERE RINGING_HERE REINVITING CONNECTED"
    assert [status.name for status in Status] == names.split()
    assert [status.name for status in RemoteMediaStatus] == ["DISCONNECTED", "CONNECTED"]


@pytest.mark.parametrize(
    ("before", "occurrence", "after"),
    [
        (Status.UNDEFINED, SessionOccurrence.INVITE_SENT, Status.INVITING),
        (Status.INVITING, SessionOccurrence.ESTABLISHED, Status.CONNECTED),
        (Status.INVITING, SessionOccurrence.RINGING_RECEIVED, Status.RINGING_THERE),
        (Status.INVITING, SessionOccurrence.BUSY_RECEIVED, Status.BUSY_THERE),
        (Status.RINGING_THERE, SessionOccurrence.ESTABLISHED, Status.CONNECTED),
        (Status.UNDEFINED, SessionOccurrence.INVITE_RECEIVED, Status.RINGING_HERE),
        (Status.RINGING_HERE, SessionOccurrence.ESTABLISHED, Status.CONNECTED),
        (Status.CONNECTED, SessionOccurrence.REINVITE_SENT, Status.REINVITING),
        (Status.REINVITING, SessionOccurrence.ESTABLISHED, Status.CONNECTED),
        (Status.CONNECTED, SessionOccurrence.ENDED, Status.DISCONNECTED),
    ],
)
def test_c15_stated_transitions(before: Status, occurrence: SessionOccurrence, after: Status) -> None:
    assert advanced(before, occurrence) is after


def test_c15_every_other_move_raises() -> None:
    allowed = {(before, occurrence) for before, moves in TRANSITIONS.items() for occurrence in moves}
    for before, occurrence in itertools.product(Status, SessionOccurrence):
        if (before, occurrence) not in allowed:
            with pytest.raises(LocalProtocolError):
                advanced(before, occurrence)


def test_every_state_can_be_reached_and_left_but_the_last() -> None:
    reached = {after for moves in TRANSITIONS.values() for after in moves.values()}
    assert reached == set(Status) - {Status.UNDEFINED}
    assert [status for status, moves in TRANSITIONS.items() if not moves] == [Status.DISCONNECTED]


@pytest.mark.parametrize("media", RemoteMediaStatus)
def test_c14_only_establishing_and_ending_touch_the_media_status(media: RemoteMediaStatus) -> None:
    for occurrence in SessionOccurrence:
        expected = {
            SessionOccurrence.ESTABLISHED: RemoteMediaStatus.CONNECTED,
            SessionOccurrence.ENDED: RemoteMediaStatus.DISCONNECTED,
        }
        assert advanced_media(media, occurrence) is expected.get(occurrence, media)
