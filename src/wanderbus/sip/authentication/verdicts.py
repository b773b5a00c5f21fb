"""Verdicts about the senders of requests, and the sources of logins (RFC 3261 22; DESIGN 6.4)."""

from __future__ import annotations

from typing import Final

import msgspec

USER_FAILURES: Final = "logins.user_failures"
SOURCE_FAILURES: Final = "logins.source_failures"


class Authenticated(msgspec.Struct, frozen=True):
    """The request is from ``username``."""

    username: str


class Challenged(msgspec.Struct, frozen=True):
    """Answer 401 (407) with ``challenges`` as WWW-Authenticate (Proxy-Authenticate) fields, in this order."""

    challenges: list[str]
    stale: bool


class AuthenticationRejected(msgspec.Struct, frozen=True):
    """Answer with ``status``, ``reason`` and ``headers``."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...] = ()


Verdict = Authenticated | Challenged | AuthenticationRejected


class RequestSource(msgspec.Struct, frozen=True):
    """Source of a request: ``path`` distinguishes senders, also behind one proxy; ``address`` is trustworthy."""

    path: str
    address: str
