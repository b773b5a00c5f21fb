"""The calls of a relay: who offered what to whom, and which stream each ``m=`` line is (RFC 3264; SPEC I-04).

A call is known by its Call-ID, and in it each dialogue by the tags of its two parties, in whatever order they come.
Until it is answered a dialogue has one tag, and the branch under which it was offered where the proxy tells that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from wanderbus.relay.stream import Side

DIALOGUES_MAX: Final = 32
"""Dialogues of one call: as many as a call forks into branches, and no more."""

Stream = tuple[Side, Side]
"""The sides of who called and of who was called."""


class Dialogue(msgspec.Struct):
    """What two parties have agreed on, or one of them has offered."""

    caller: str
    callee: str
    """Its tag, "" before it has answered."""
    branch: str
    streams: list[Stream | None] = msgspec.field(default_factory=list)
    """By the place of the ``m=`` line; None for one that is not in use."""

    def between(self, one: str, other: str) -> bool:
        """Tell whether it is the dialogue of these two tags."""
        return (one, other) in ((self.caller, self.callee), (self.callee, self.caller))

    def sides(self) -> Iterator[Side]:
        """Yield the sides of all streams."""
        for stream in self.streams:
            yield from stream or ()


class Call(msgspec.Struct):
    """All dialogues of one Call-ID."""

    call_id: str
    created_us: int
    signalled_at: float
    dialogues: list[Dialogue] = msgspec.field(default_factory=list)

    def offered(self, from_tag: str, to_tag: str, branch: str) -> Dialogue | None:
        """Return the dialogue that an offer of ``from_tag`` is for, or a new one; None if there are too many."""
        for dialogue in self.dialogues:
            if dialogue.between(from_tag, to_tag) and (to_tag or dialogue.branch == branch):
                return dialogue
        if len(self.dialogues) >= DIALOGUES_MAX:
            return None
        # Who takes up a call that was reclaimed, or that another relay had, names both.
        fresh = Dialogue(from_tag, to_tag, branch)
        self.dialogues.append(fresh)
        return fresh

    def answered(self, from_tag: str, to_tag: str, branch: str) -> Dialogue | None:
        """Return the dialogue that ``to_tag`` answers, which is its own from now on; None if there was no offer.

        Where a call was forked under one branch, the last answer counts.
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
        """Take out the dialogues that a deletion names, and return them; without a tag that is all of them."""
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
        """Return when the call was last spoken of, or something came on it."""
        return max([self.signalled_at, *(side.heard_at for side in self.sides())])


def _is_named(dialogue: Dialogue, from_tag: str, to_tag: str, branch: str) -> bool:
    if branch and not dialogue.callee and dialogue.branch != branch:
        return False
    if from_tag and to_tag and dialogue.callee:
        return dialogue.between(from_tag, to_tag)
    return not from_tag or from_tag in (dialogue.caller, dialogue.callee)
