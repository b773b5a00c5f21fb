"""Messages about sessions that move from server to server of a domain (SPEC L-06)."""

from __future__ import annotations

from typing import Final

from wanderbus.protocol.bases import AgentMessage

SESSION_MOVED: Final = "session_moved"
"""Limit of the refusal of a device whose session is at another server, or on its way there: it has to call again."""


class MoveSession(AgentMessage, frozen=True, tag=40):
    """Move a session of the server that is asked to another ``server`` of its domain."""

    request: int
    user: str
    session: str
    server: str


class Drain(AgentMessage, frozen=True, tag=41):
    """Let the server that is asked drain, or take sessions again; without ``on`` only ask how far it is."""

    request: int
    on: bool | None = None
