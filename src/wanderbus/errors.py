"""Every error this package raises, in one tree.

::

    WanderbusError
    ├── LocalProtocolError        this side was asked for something the protocol forbids now
    ├── RemoteProtocolError       the other side broke the protocol (carries the status to answer with)
    │   └── SIPParseError         bytes that are not a SIP message, SDP or digest value
    ├── FilterError               an expression of interest that cannot be read (carries the position)
    ├── EventError                an event that cannot be published as it is
    ├── LimitExceeded             a stated bound was reached (carries its name)
    ├── Refused                   the broker declined a request (carries its reason)
    │   └── SessionRefused        another user declined a SIP session (carries the status)
    ├── Closed                    the agent or server is closed
    ├── Unreachable               nobody answered in time
    ├── AuthenticationError       credentials were not accepted
    │   ├── WrongPassword
    │   └── UnknownUser
    ├── ConfigurationError        a setting, a file of settings or a port that cannot be used
    └── StorageError              something on disk cannot be used
        ├── LogCorrupt
        └── StateCorrupt

Parsers raise only the error declared for them; a broken invariant is an ``assert``.
"""

from __future__ import annotations

from typing import Final

_POINTED_CHARACTERS: Final = 60
"""Of a line, shown on either side of the fault."""


class WanderbusError(Exception):
    """Root of the tree; the message is one line that says what is wrong, where, and what to do."""


class LocalProtocolError(WanderbusError):
    """This side asked for a step that the protocol does not allow in the present state."""


class RemoteProtocolError(WanderbusError):
    """The other side broke the protocol.

    ``status`` is the SIP status code to answer a request with, or None to drop it in silence.
    """

    def __init__(self, message: str, status: int | None = 400) -> None:
        super().__init__(message)
        self.status = status


class SIPParseError(RemoteProtocolError):
    """Bytes that RFC 3261, RFC 4566 or RFC 7616 does not admit."""


class FilterError(WanderbusError):
    """An expression of interest that cannot be read.

    ``position`` is the zero-based character offset of the fault in ``text``; None if it is not in the text.
    """

    def __init__(self, reason: str, text: str, position: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text
        self.position = position

    def __str__(self) -> str:
        return self.reason if self.position is None else f"{self.reason} at character {self.position + 1}"

    def pointed(self) -> str:
        """Return three lines: the reason, the line of the expression, a caret under the fault; else the reason.

        Of a long line, what is around the fault is shown.
        """
        if self.position is None:
            return str(self)
        start = self.text.rfind("\n", 0, self.position) + 1
        end = self.text.find("\n", self.position)
        start = max(start, self.position - _POINTED_CHARACTERS)
        end = min(end if end >= 0 else len(self.text), start + 2 * _POINTED_CHARACTERS)
        line = self.text[start:end].replace("\t", " ")
        return f"{self}\n  {line}\n  {' ' * (self.position - start)}^"


class EventError(WanderbusError):
    """An event whose subject or attributes cannot be published."""


class LimitExceeded(WanderbusError):
    """A stated bound was reached; ``limit`` is its name in the configuration."""

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class Refused(WanderbusError):
    """The broker declined a request and said why."""


class SessionRefused(Refused):
    """Another user declined a SIP session, or an update of one, with the SIP ``status``."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Closed(WanderbusError):
    """The agent or server was closed, so the request cannot be served."""


class Unreachable(WanderbusError):
    """Nobody answered within the time allowed."""


class AuthenticationError(WanderbusError):
    """The server did not accept the credentials."""


class WrongPassword(AuthenticationError):
    """The server accepts no such user with this password; most servers do not tell which of the two is wrong."""


class UnknownUser(AuthenticationError):
    """The server has no such user, and says so, or serves another domain."""


class ConfigurationError(WanderbusError):
    """A setting, a file of settings or a port that cannot be used."""


class StorageError(WanderbusError):
    """Something on disk cannot be used as it is."""


class LogCorrupt(StorageError):
    """A segment of the event log is damaged before its durable end."""


class StateCorrupt(StorageError):
    """The state file is damaged; it can be rebuilt while the log is whole."""
