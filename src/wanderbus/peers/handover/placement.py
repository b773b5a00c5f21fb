"""Choice of the server for a session that this one does not keep: the same for one user as long as servers stay."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def server_for(user: str, servers: Iterable[str]) -> str | None:
    """Return the server with the greatest weight for ``user``, None if there are none (rendezvous hashing)."""
    return max(servers, key=lambda server: blake2b(f"{server} {user}".encode(), digest_size=8).digest(), default=None)
