"""Limits on file descriptors: for the process, and for connections (SPEC U-03).

Each connection uses a descriptor, and the log needs one to begin its next segment. Connections therefore get a bounded
share of the descriptors.
"""

from __future__ import annotations

import resource
from typing import Final

RESERVED: Final = 256
"""Descriptors that connections may not use: log, state, users, listening sockets, relays, libraries."""

SHARES: Final = 4
"""Sockets that share the other descriptors: SIP of the server and of its broker, data channels, and one more."""

_WANTED_MAX: Final = 2**20


def allow_files() -> int:
    """Raise this process's limit of open files as far as the system allows; return the limit.

    The usual limit is 1,024, because programs that use ``select`` cannot use more. This program does not use it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_MAX if hard == resource.RLIM_INFINITY else min(hard, _WANTED_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _limit(soft)


def connections_max(wanted: int) -> int:
    """Return how many of ``wanted`` connections one socket may have without using the reserve; at least 16."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(wanted, (_limit(soft) - RESERVED) // SHARES))


def _limit(soft: int) -> int:
    return _WANTED_MAX if soft == resource.RLIM_INFINITY else soft
