"""Calls of a relay: their dialogues, and the stream of each ``m=`` line (RFC 3264; SPEC I-04).

A call is identified by its Call-ID, and each dialogue in it by the tags of its two parties, in either order. An
unanswered dialogue has one tag, and the branch of its offer if the proxy names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from wanderbus.relay.stream import Side

DIALOGUES_MAX: Final = 32
"""Maximum number of dialogues of one call, one for each branch of a forked call."""

Stream = tuple[Side, Side]
"""Indexes of the sides of caller and callee."""


class Dialogue(msgspec.Struct):
    """Streams that two parties have agreed on, or that one of them has offered."""

    caller: str
    callee: str
    """Tag of the callee, "" before its answer."""
    branch: str
    streams: list[Stream | None] = msgspec.field(default_factory=list)
    """Streams by the index of their ``m=`` line; None for a line that is not in use."""

    def between(self, one: str, other: str) -> bool:
        """Return whether this is the dialogue of these two tags."""
        return (one, other) in ((self.caller, self.callee), (self.callee, self.caller))

    def sides(self) -> Iterator[Side]:
        """Yield the sides of all streams."""
        for stream in self.streams:
            yield from stream or ()


class RelayedCall(msgspec.Struct):
    """All dialogues of one Call-ID."""

    call_id: str
    created_us: int
    signalled_at: float
    dialogues: list[Dialogue] = msgspec.field(default_factory=list)

    def offered(self, from_tag: str, to_tag: str, branch: str) -> Dialogue | None:
        """Return the dialogue that an offer of ``from_tag`` belongs to, or a new one; None if there are too many."""
        for dialogue in self.dialogues:
            if dialogue.between(from_tag, to_tag) and (to_tag or dialogue.branch == branch):
                return dialogue
        if len(self.dialogues) >= DIALOGUES_MAX:
            return None
        # The offer names both tags if the call was removed here, or another relay had it before.
        fresh = Dialogue(from_tag, to_tag, branch)
        self.dialogues.append(fresh)
        return fresh

    def answered(self, from_tag: str, to_tag: str, branch: str) -> Dialogue | None:
        """Return the dialogue that ``to_tag`` answers, and assign it to that tag; None if there was no offer.

        If a call was forked under one branch, the last answer counts.
        """
        theirs = [each for each in self.dialogues if from_tag in (each.caller, each.callee)]
        known = next((each for each in theirs if each.between(from_tag, to_tag)), None)
        if known is not None:
            return known
        waiting = [each for each in theirs if each.caller == from_tag and not each.callee]
        forked = [each for each in theirs if each.caller == from_tag]
        for candidates in ([each for each in waiting if branch and each.branch == branch], waiting, forked):
            if candidates:
                candidates[-1].callee = to_tag
                return candidates[-1]
        return None

    def ended(self, from_tag: str, to_tag: str, branch: str) -> list[Dialogue]:
        """Remove and return the dialogues that a delete command names; without a tag all of them."""
        kept: list[Dialogue] = []
        gone: list[Dialogue] = []
        for each in self.dialogues:
            (gone if _is_named(each, from_tag, to_tag, branch) else kept).append(each)
        self.dialogues = kept
        return gone

    def sides(self) -> Iterator[Side]:
        """Yield the sides of all streams."""
        for dialogue in self.dialogues:
            yield from dialogue.sides()

    def used_at(self) -> float:
        """Return the time of the last command or datagram of the call."""
        return max([self.signalled_at, *(side.received_at for side in self.sides())])


def _is_named(dialogue: Dialogue, from_tag: str, to_tag: str, branch: str) -> bool:
    if branch and not dialogue.callee and dialogue.branch != branch:
        return False
    if from_tag and to_tag and dialogue.callee:
        return dialogue.between(from_tag, to_tag)
    return not from_tag or from_tag in (dialogue.caller, dialogue.callee)
