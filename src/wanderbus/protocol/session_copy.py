"""Copies of sessions: subscriptions and waiting notifications, as values and as lines of JSON (SPEC J-05).

The first line says what the file is, and whose session it is. A line for each subscription follows, then one for each
item of the queue, and a last one with their numbers and the SHA-256 of all lines before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from wanderbus import cloudevents
from wanderbus.errors import EventError, StorageError
from wanderbus.event import CopiedItem, Event, Loss, check_event
from wanderbus.subscription import Subscription

VERSION: Final = 1

LOST_MAX: Final = 2**31
"""Most lost notifications of one gap."""

_KIND: Final = "copy of a wanderbus session"


class SessionCopy(msgspec.Struct, frozen=True):
    """The subscriptions and the queue of a session at one time."""

    user: str
    session: str
    exported_us: int
    """µs since the Unix epoch."""
    subscriptions: tuple[Subscription, ...]
    items: tuple[CopiedItem, ...]
    left_out: int = 0
    """Subscriptions that are no part of a copy: patterns, and those of one device alone."""

    @property
    def notifications(self) -> int:
        """Return how many notifications wait."""
        return sum(item.event is not None for item in self.items)

    def living(self, now_us: int) -> SessionCopy:
        """Return the copy without subscriptions that have expired, and without what waits for them alone."""
        kept = [each for each in self.subscriptions if each.expires_us is None or each.expires_us > now_us]
        ids = {each.id for each in kept}
        items = [found for item in self.items if (found := item.among(ids))]
        return msgspec.structs.replace(self, subscriptions=tuple(kept), items=tuple(items))


class _Head(msgspec.Struct, frozen=True):
    kind: str
    version: int
    user: str
    session: str
    exported_us: int


class _Event(msgspec.Struct, frozen=True, omit_defaults=True):
    subject: str
    attributes: dict[str, Any]
    published_us: int | None = None
    arrived_us: int | None = None


class _Line(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A line behind the first one."""

    subscription: Subscription | None = None
    event: _Event | None = None
    subscriptions: tuple[str, ...] = ()
    lost: tuple[Loss, ...] = ()
    lines: int | None = None
    """Number of the lines before the last one, the first one included."""
    sha256: str = ""


_heads = msgspec.json.Decoder(_Head)
_lines = msgspec.json.Decoder(_Line)
_encode = msgspec.json.encode


def written(copy: SessionCopy) -> bytes:
    """Return the bytes of a file with ``copy``; what was left out is not in it."""
    head = _Head(_KIND, VERSION, copy.user, copy.session, copy.exported_us)
    lines = [_encode(head), *(_encode(_Line(subscription=each)) for each in copy.subscriptions)]
    lines += [_encode(_item_line(item)) for item in copy.items]
    content = b"".join(line + b"\n" for line in lines)
    return content + _encode(_Line(lines=len(lines), sha256=_digest(content))) + b"\n"


def read(content: bytes) -> SessionCopy:
    """Return the copy in the bytes of a file; :class:`StorageError` says what is wrong in which line."""
    lines = content.splitlines(keepends=True)
    head = _head(lines)
    parsed = _parsed(lines[1:])
    last = parsed.pop() if parsed else _Line()
    if last.lines != len(lines) - 1 or last.sha256 != _digest(b"".join(lines[:-1])):
        raise StorageError("the copy is not complete, or was changed: its last line does not fit the others")
    subscriptions = [each.subscription for each in parsed if each.subscription is not None]
    items = list(_items(parsed))
    return SessionCopy(head.user, head.session, head.exported_us, tuple(subscriptions), tuple(items))


def _head(lines: Sequence[bytes]) -> _Head:
    try:
        head = _heads.decode(lines[0] if lines else b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        head = _Head("", 0, "", "", 0)
    if head.kind != _KIND:
        raise StorageError("this is no copy of a session; make one with 'wanderbus session export'")
    if head.version != VERSION:
        raise StorageError(f"the copy has version {head.version} (expected {VERSION}); use the program that wrote it")
    return head


def _parsed(lines: Iterable[bytes]) -> list[_Line]:
    parsed = []
    for number, line in enumerate(lines, 2):
        try:
            parsed.append(_lines.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StorageError(f"line {number} of the copy cannot be read: {error}") from None
    return parsed


def _items(lines: Iterable[_Line]) -> Iterator[CopiedItem]:
    for number, line in enumerate(lines, 2):
        if line.event is None and not line.lost:
            continue
        try:
            event = None if line.event is None else _event(line.event)
        except EventError as error:
            raise StorageError(f"line {number} of the copy has an invalid event: {error}") from None
        if not all(0 < each.count <= LOST_MAX for each in line.lost):
            raise StorageError(f"line {number} of the copy has a gap with an impossible count")
        yield CopiedItem(event, line.subscriptions, line.lost)


def _event(stored: _Event) -> Event:
    attributes = cloudevents.from_json(stored.attributes)
    return check_event(Event(stored.subject, attributes, stored.published_us, stored.arrived_us))


def _item_line(item: CopiedItem) -> _Line:
    event = item.event
    stored = None
    if event is not None:
        stored = _Event(event.subject, cloudevents.to_json(event.attributes), event.published_us, event.arrived_us)
    return _Line(event=stored, subscriptions=item.subscriptions, lost=item.lost)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
