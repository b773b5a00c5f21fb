"""Inputs and output of the broker about its log as a whole: the start, and an earlier copy (decisions 0108, 0109)."""

from __future__ import annotations

from wanderbus.machine import Input, Output


class ServerStarted(Input, frozen=True):
    """The server begins to serve; ``rolled_back`` says why its log is known to be an earlier copy, "" if it is not."""

    rolled_back: str = ""


class ArrivalsRewound(Input, frozen=True):
    """The session of this server at ``leader`` goes on behind ``number``, in ``epoch``, which is not where it was.

    The leader has lost what came behind it, or this server has acknowledged it and lost it itself (``is_own``).
    """

    leader: str
    epoch: int
    number: int
    is_own: bool


class InterestLost(Input, frozen=True):
    """``leader`` lacked interest of this server that it had confirmed, and has it again: events may be missing."""

    leader: str


class LogRolledBack(Output, frozen=True):
    """The log lacks records that this server once made durable, as ``reason`` says: it is an earlier copy.

    With a ``session`` this is no more than the word of its user, and nothing but that session has a gap.
    """

    reason: str
    session: str = ""
