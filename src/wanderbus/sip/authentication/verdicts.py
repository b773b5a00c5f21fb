"""Verdicts about the senders of requests, and the sources of logins (RFC 3261 22; DESIGN 6.4)."""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.machine import Output

FREE_FAILURES: Final = "logins.free_failures"
USER_FAILURES: Final = "logins.user_failures"
SOURCE_FAILURES: Final = "logins.source_failures"


class Accepted(msgspec.Struct, frozen=True):
    """The request is from ``username``."""

    username: str


class Challenged(msgspec.Struct, frozen=True):
    """Answer 401 (407) with ``challenges`` as WWW-Authenticate (Proxy-Authenticate) fields, in this order."""

    challenges: list[str]
    stale: bool


class Rejected(msgspec.Struct, frozen=True):
    """Answer with ``status``, ``reason`` and ``headers``."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...] = ()


Verdict = Accepted | Challenged | Rejected


class LoginRefused(Output, frozen=True):
    """Credentials of ``user``, an address of record, from ``source`` were refused because of ``reason``.

    ``count`` is the number of refusals of this user from there since the last success or pause of an hour. ``limit`` is
    the setting that blocks this attempt or counts the failure. ``by_source`` is true if that limits the source and not
    the user.
    """

    user: str
    reason: str
    source: str
    count: int = 1
    limit: str = FREE_FAILURES
    by_source: str | None = None

    @property
    def party(self) -> str:
        """The limited party: the user, or the source for which all users count together."""
        return self.by_source or self.user


class Source(msgspec.Struct, frozen=True):
    """Source of a request: ``path`` distinguishes senders, also behind one proxy; ``address`` is trustworthy."""

    path: str
    address: str
