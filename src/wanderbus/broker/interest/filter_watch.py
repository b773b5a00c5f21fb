"""Use of the filters of a subject by an agent under a lease (SPEC N-02, N-03).

A *watch* knows the oldest version that the agent may use, and the newest that was sent.
"""

from __future__ import annotations

import msgspec


class Watch(msgspec.Struct):
    """Use of the filters of one subject by the agent on ``link``, a device in one life (``key``, ``epoch``)."""

    link: int
    user: str
    key: str
    epoch: int
    until: float
    """End of the lease, as the broker counts it: a margin after the end that the agent counts."""
    oldest: int
    """Version that the agent has confirmed, or was sent first; it may use this one or a later one."""
    sent: int
    """Version that was sent last."""
    is_last: bool = False
    """True if that version lets the agent publish every event, so that its confirmation ends the watch."""
    deferred: int = 0
    """Number of a request that is answered once the agent has confirmed what was sent; 0 for none."""

    @property
    def is_confirmed(self) -> bool:
        """Return whether the agent uses what was sent last."""
        return self.oldest == self.sent
