"""Numbers of the protocol, and what the lightweight client keeps of items and subscriptions."""

import hashlib

from wanderbus.lightweight.messagepack import pack

try:
    from typing import Any
except ImportError:  # MicroPython
    Any = object  # type: ignore[assignment,misc]

HELLO, CHALLENGE, PROOF, WELCOME, REFUSED, MESSAGE, GRANT, PING, PONG = range(1, 10)
WRONG, LATER, MOVED, CLOSED = range(1, 5)

ATTACH, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, RENEW, RESTRICT, QUERY, ACK, LEAVE = range(1, 10)
READ = 14
ATTACHMENT, ACCEPTED, NOT_ACCEPTED, NOTIFY, NOTIFY_GAP, DONE, NOT_DONE, ENDED = range(1, 9)
WAIT = 17

TEMPORARY = ("disk_full", "forwarded_bytes_max", "routes_unknown", "advertisement_pending", "user_filter_work_per_s")
NUMBER_USED = "number_used"
RETRY_S_MIN, RETRY_S_MAX = 0.25, 30.0
LOGIN_S_MAX = 15.0
SEEN_MAX = 8
FRAME_BYTES_MAX = 131_072


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """Return the HMAC with SHA-256 (RFC 2104), which MicroPython does not have."""
    key = hashlib.sha256(key).digest() if len(key) > 64 else key
    key += bytes(64 - len(key))
    inner = hashlib.sha256(bytes([each ^ 0x36 for each in key]) + message).digest()
    return hashlib.sha256(bytes([each ^ 0x5C for each in key]) + inner).digest()


class Item:
    """A notification, or a gap in the notifications of one subscription if ``lost`` is above 0.

    ``subject``, ``attributes`` and ``id`` are those of the event; ``subscriptions`` the ids of those that it matched.
    ``redelivered`` is true if an earlier life of this device may have seen it. ``reason`` says why a gap was lost.
    """

    def __init__(self, position: tuple[int, int], subscriptions: list[str], size: int) -> None:
        self.position = position
        self.subscriptions = subscriptions
        self.subject = ""
        self.attributes: dict[str, Any] = {}
        self.published_us: int | None = None
        self.id: tuple[str, int, int] | None = None
        self.redelivered = False
        self.lost = 0
        self.reason = ""
        self.readers: list[ReadSubscription] = []
        self.size = size

    def __repr__(self) -> str:
        content = f"{self.lost} lost: {self.reason}" if self.lost else f"{self.subject!r}, {self.attributes!r}"
        return f"<Item {self.position[1]}: {content}>"


class ReadSubscription:
    """A subscription that is read; positions (epoch, number) of what was received, given out and acknowledged."""

    def __init__(self, handle: int, content: list[Any], position: tuple[int, int] | None) -> None:
        self.handle = handle
        self.content = content
        self.key = hashlib.sha256(pack(content)).digest()[:8]
        self.id = ""
        self.received = position
        self.given = position
        self.acked = position
        self.request = 0
