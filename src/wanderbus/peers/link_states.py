"""States of links: one that this server opens, one that it may accept, and one that is open."""

from __future__ import annotations

from wanderbus.errors import RemoteProtocolError
from wanderbus.peers.link_pause import LinkPause
from wanderbus.peers.offers import LinkOffer
from wanderbus.rudp.frames import SEALED, decode_header
from wanderbus.rudp.interface import Secrets
from wanderbus.rudp.keys import KeyPair
from wanderbus.rudp.sealing import Sealer


class OpenLink:
    """An open link; ``offer`` and ``answer`` are the datagrams that opened it, b"" if they are no longer needed."""

    __slots__ = ("answer", "is_ours", "local_id", "number", "offer", "server")

    def __init__(
        self, number: int, server: str, local_id: int, *, is_ours: bool, offer: bytes = b"", answer: bytes = b""
    ) -> None:
        self.number = number
        self.server = server
        self.local_id = local_id
        self.is_ours = is_ours
        self.offer = offer
        self.answer = answer


class OwnLink:
    """The link that this server keeps to another one.

    ::

        pause ──▶ offer repeated ──answer──▶ answered ──packet of the other server──▶ open
          ▲              ▲                      │ no packet in time                    │
          │              └──────────────────────┘                                      │
          └────────────────────────────────────────────────failed or closed────────────┘
    """

    __slots__ = ("link", "local_id", "offer", "offer_keys", "offered_at", "opened_at", "pause", "server", "wait_s")

    def __init__(self, server: str, pause: LinkPause) -> None:
        self.server = server
        self.local_id = 0
        """Id of its connection; 0 in a pause."""
        self.offer = b""
        """Offer that waits for an answer."""
        self.offer_keys: KeyPair | None = None
        """Fresh keys of this offer; None if none waits."""
        self.offered_at = 0.0
        """Time when this offer was first sent, monotonic seconds."""
        self.wait_s = 0.0
        """Time until this offer is repeated, seconds, without jitter."""
        self.link: OpenLink | None = None
        self.opened_at = 0.0
        """Time when the last link opened, monotonic seconds."""
        self.pause = pause
        """Pause before the next first offer, without jitter."""


class PendingLink:
    """An answered offer whose opener has not sent a packet yet: nothing else is sent to it before."""

    __slots__ = ("_sealer", "answer", "local_id", "offer", "secrets")

    def __init__(self, offer: LinkOffer, local_id: int, answer: bytes, secrets: Secrets) -> None:
        self.offer = offer
        self.local_id = local_id
        self.answer = answer
        self.secrets = secrets
        self._sealer = Sealer(secrets, 1)

    def is_first_packet(self, data: bytes) -> bool:
        """Return whether the opener has sealed the datagram ``data`` for this link, so it is no replay."""
        try:
            _, source_id, kind, epoch, _, number = decode_header(data)
        except (RemoteProtocolError, ValueError):
            return False
        if kind != SEALED or source_id != self.offer.opener_id:
            return False
        return self._sealer.open(data, number, epoch) is not None
