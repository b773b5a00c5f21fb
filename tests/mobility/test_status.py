"""The states and their one table (SPEC C-12 to C-15)."""

from __future__ import annotations

import itertools

import pytest

from wanderbus.errors import LocalProtocolError
from wanderbus.mobility.session.session import (
    TRANSITIONS,
    Occurrence,
    RemoteMediaStatus,
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
        (Status.UNDEFINED, Occurrence.INVITE_SENT, Status.INVITING),
        (Status.INVITING, Occurrence.ESTABLISHED, Status.CONNECTED),
        (Status.INVITING, Occurrence.RINGING_RECEIVED, Status.RINGING_THERE),
        (Status.INVITING, Occurrence.BUSY_RECEIVED, Status.BUSY_THERE),
        (Status.RINGING_THERE, Occurrence.ESTABLISHED, Status.CONNECTED),
        (Status.UNDEFINED, Occurrence.INVITE_RECEIVED, Status.RINGING_HERE),
        (Status.RINGING_HERE, Occurrence.ESTABLISHED, Status.CONNECTED),
        (Status.CONNECTED, Occurrence.REINVITE_SENT, Status.REINVITING),
        (Status.REINVITING, Occurrence.ESTABLISHED, Status.CONNECTED),
        (Status.CONNECTED, Occurrence.ENDED, Status.DISCONNECTED),
    ],
)
def test_c15_stated_transitions(before: Status, occurrence: Occurrence, after: Status) -> None:
    assert advanced(before, occurrence) is after


def test_c15_every_other_move_raises() -> None:
    allowed = {(before, occurrence) for before, moves in TRANSITIONS.items() for occurrence in moves}
    for before, occurrence in itertools.product(Status, Occurrence):
        if (before, occurrence) not in allowed:
            with pytest.raises(LocalProtocolError):
                advanced(before, occurrence)


def test_every_state_can_be_reached_and_left_but_the_last() -> None:
    reached = {after for moves in TRANSITIONS.values() for after in moves.values()}
    assert reached == set(Status) - {Status.UNDEFINED}
    assert [status for status, moves in TRANSITIONS.items() if not moves] == [Status.DISCONNECTED]


@pytest.mark.parametrize("media", RemoteMediaStatus)
def test_c14_only_establishing_and_ending_touch_the_media_status(media: RemoteMediaStatus) -> None:
    for occurrence in Occurrence:
        expected = {
            Occurrence.ESTABLISHED: RemoteMediaStatus.CONNECTED,
            Occurrence.ENDED: RemoteMediaStatus.DISCONNECTED,
        }
        assert advanced_media(media, occurrence) is expected.get(occurrence, media)
