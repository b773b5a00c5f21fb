"""Open files: how many this process may have, and how many of them connections may take (SPEC U-03).

A connection is a descriptor, and so is what the log needs to begin its next segment: strangers who connect may have
their share and no more.
"""

from __future__ import annotations

import resource
from typing import Final

RESERVED: Final = 256
"""Descriptors that no connection may have: log, state, users, listening sockets, relays, libraries."""

SHARES: Final = 4
"""Sockets among which the others are divided: SIP of the server and of its broker, data channels, and one more."""

_WANTED_MAX: Final = 2**20


def allow_files() -> int:
    """Let this process open as many files as it may ask for; return how many that are.

    The usual limit is 1,024, since programs that use ``select`` cannot have more; this one does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_MAX if hard == resource.RLIM_INFINITY else min(hard, _WANTED_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _limit(soft)


def connections_max(wanted: int) -> int:
    """Return how many connections one socket may have of ``wanted``, so that the reserve stays; at least 16."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(wanted, (_limit(soft) - RESERVED) // SHARES))


def _limit(soft: int) -> int:
    return _WANTED_MAX if soft == resource.RLIM_INFINITY else soft
