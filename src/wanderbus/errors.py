"""Exceptions of this package, in one tree.

::

    WanderbusError
    ├── LocalProtocolError        the caller requested a step that the protocol forbids in this state
    ├── RemoteProtocolError       the peer broke the protocol (carries the status to respond with)
    │   └── SIPParseError         bytes that are not a SIP message, SDP or digest value
    ├── FilterError               an expression of interest that cannot be parsed (carries the position)
    │   └── PatternError          a pattern of compound events that cannot be parsed (carries the position)
    ├── EventError                an invalid event
    ├── LimitExceeded             a limit was reached (carries its name)
    ├── Refused                   the broker refused a request
    │   └── SessionRefused        another user declined a SIP session (carries the status)
    ├── Closed                    the agent, subscription, channel or server is closed
    │   └── ConnectionLost        the peer ended the connection; also a ConnectionError
    ├── Unreachable               the peer cannot be reached; also a ConnectionError
    │   └── NoResponse            no response within the timeout; also a TimeoutError
    ├── AuthenticationError       credentials were not accepted
    │   ├── WrongPassword
    │   └── UnknownUser
    ├── ConfigurationError        a setting, a file of settings or a port that cannot be used
    └── StorageError              a file on disk that cannot be used
        ├── LogCorrupt
        └── StateCorrupt

``ConnectionError`` and ``TimeoutError`` are subclasses of ``OSError``. Code that catches one of the three around a
request to a peer therefore handles :class:`WanderbusError` first (``tests/house/test_error_handlers.py``).

Parsers raise only the error declared for them; a broken invariant is an ``assert``.
"""

from __future__ import annotations

from typing import Final

_POINTED_CHARACTERS: Final = 60
"""Most characters shown on each side of the error's position."""


class WanderbusError(Exception):
    """Base class of all errors; the message is one line: what is wrong, where, and what to do."""


class LocalProtocolError(WanderbusError):
    """The caller requested a step that the protocol does not allow in the current state."""


class RemoteProtocolError(WanderbusError):
    """The peer broke the protocol.

    ``status`` is the SIP status code to respond to a request with, or None to discard it without a response.
    """

    def __init__(self, message: str, status: int | None = 400) -> None:
        super().__init__(message)
        self.status = status


class SIPParseError(RemoteProtocolError):
    """Bytes that do not conform to RFC 3261, RFC 4566 or RFC 7616."""


class FilterError(WanderbusError):
    """An expression of interest that cannot be parsed.

    ``position`` is the zero-based character offset of the error in ``text``; None if the error has no position.
    """

    def __init__(self, reason: str, text: str, position: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text
        self.position = position

    def __str__(self) -> str:
        return self.reason if self.position is None else f"{self.reason} at character {self.position + 1}"

    def pointed(self) -> str:
        """Return three lines: the reason, the line of the expression, and a caret under the error.

        A long line is cut to the part around the error. Without a position, return only the reason.
        """
        if self.position is None:
            return str(self)
        start = self.text.rfind("\n", 0, self.position) + 1
        end = self.text.find("\n", self.position)
        start = max(start, self.position - _POINTED_CHARACTERS)
        end = min(end if end >= 0 else len(self.text), start + 2 * _POINTED_CHARACTERS)
        line = self.text[start:end].replace("\t", " ")
        return f"{self}\n  {line}\n  {' ' * (self.position - start)}^"


class PatternError(FilterError):
    """A pattern of compound events that cannot be parsed, with its text and the position as in a filter's error."""


class EventError(WanderbusError):
    """An event whose subject or attributes cannot be published."""


class LimitExceeded(WanderbusError):
    """A limit was reached; ``limit`` is its name in the configuration."""

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class Refused(WanderbusError):
    """The broker refused a request; the message contains its reason."""


class SessionRefused(Refused):
    """Another user declined a SIP session, or an update of one, with the SIP ``status``."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Closed(WanderbusError):
    """The agent, subscription, channel or server is closed, so the request cannot be served."""


class ConnectionLost(Closed, ConnectionError):
    """The peer ended the connection, or was restarted and does not know it; open another."""


class Unreachable(WanderbusError, ConnectionError):
    """The peer cannot be reached: there is no route or connection to it, or it does not respond."""


class NoResponse(Unreachable, TimeoutError):
    """No response arrived within the timeout; the peer may have processed the request nevertheless."""


class AuthenticationError(WanderbusError):
    """The server did not accept the credentials."""


class WrongPassword(AuthenticationError):
    """The server rejected the user or the password; most servers do not reveal which of the two is wrong."""


class UnknownUser(AuthenticationError):
    """The server reported that it has no such user, or it serves another domain."""


class ConfigurationError(WanderbusError):
    """A setting, a file of settings or a port that cannot be used."""


class StorageError(WanderbusError):
    """A file on disk cannot be used."""


class LogCorrupt(StorageError):
    """A segment of the event log is damaged before its durable end."""


class StateCorrupt(StorageError):
    """The state file is damaged; it can be rebuilt from an intact log."""
