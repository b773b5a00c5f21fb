"""Lightweight client without its socket: framing, login, session and resumption, as a pure machine."""

import hashlib
import struct

from wanderbus.lightweight.messagepack import LightError, Raw, pack, unpack
from wanderbus.lightweight.records import (
    ACCEPTED,
    ACK,
    ATTACH,
    ATTACHMENT,
    CHALLENGE,
    DONE,
    ENDED,
    FRAME_BYTES_MAX,
    GRANT,
    HELLO,
    LEAVE,
    LOGIN_S_MAX,
    MESSAGE,
    MOVED,
    NOT_ACCEPTED,
    NOT_DONE,
    NOTIFY,
    NOTIFY_GAP,
    NUMBER_USED,
    PING,
    PONG,
    PROOF,
    PUBLISH,
    QUERY,
    READ,
    REFUSED,
    RENEW,
    RESTRICT,
    RETRY_S_MAX,
    RETRY_S_MIN,
    SEEN_MAX,
    SUBSCRIBE,
    TEMPORARY,
    UNSUBSCRIBE,
    WAIT,
    WELCOME,
    WRONG,
    Item,
    ReadSubscription,
    hmac_sha256,
)

try:
    from typing import Any
except ImportError:  # MicroPython
    Any = object  # type: ignore[assignment,misc]


class Core:
    """The client without its socket: inputs are methods with the present second ``now``, :meth:`take` has the outputs.

    An output is a tuple whose first item is its kind::

        ("send", data)                            send on the connection
        ("close", reason)                         close the connection; call :meth:`closed`
        ("attached",)                             the session goes on
        ("published", ticket, id)                 the event is durable
        ("refused", ticket, reason, limit)        the event will not be published
        ("answer", request, subscriptions, "")    a request is done, ("answer", request, None, reason) it is refused
        ("ended", subscription, reason)           a subscription has ended
        ("moved", uri)                            another server has the session
        ("wait", reason)                          publishes wait at the server for this reason, "" no longer
        ("fatal", reason)                         the client cannot log in

    :param user: the name of the user, without the domain
    :param device: the name of this device among those of the user, of its own for each running client
    :param random: returns so many unpredictable bytes
    :param state: what :attr:`state` returned in an earlier life
    :param window_bytes: bytes of notifications that the server sends ahead of the application
    :param unanswered_bytes_max: bytes of events that are published but not answered
    """

    def __init__(
        self,
        user: str,
        password: str,
        device: str,
        random: Any,
        session: str = "default",
        state: bytes = b"",
        keep: bool = True,
        window_bytes: int = 16_384,
        unanswered_bytes_max: int = 65_536,
    ) -> None:
        self.user, self.device, self.session = user, device, session
        self.server = ""
        """Name of the server that knows what this device has published, if the domain has several."""
        self.connect_at = 0.0
        """Second from which on a connection may be opened; meaningless while there is one."""
        self.is_attached = self.has_left = False
        self.unanswered_bytes_max = unanswered_bytes_max
        self._password = password
        self._random = random
        self._keep = keep
        self._window = window_bytes
        self._life = int.from_bytes(random(7), "big")
        self._epoch, self._number, self._ticket, self._request, self._handle = self._new_epoch(), 0, 0, 0, 0
        self._publishes: list[list[Any]] = []
        """Unanswered events: ticket, epoch, number, bytes, and "" unsent, "sent" or the limit of a refusal for now."""
        self._requests: list[list[Any]] = []
        """Unanswered requests: number, message, subscriptions so far, and the reader of a subscription."""
        self._readers: list[ReadSubscription] = []
        self._positions: dict[bytes, list[int]] = {}
        self._inbox: list[Item] = []
        self._epochs: list[list[int]] = []
        self._seen: list[list[Any]] = []
        self._out: list[tuple[Any, ...]] = []
        self._pause_s, self._retry_s, self._retry_at = RETRY_S_MIN, RETRY_S_MIN, 0.0
        self._attached_at: float | None = None
        self._reset()
        if state:
            self._load(state)

    def _new_epoch(self) -> int:
        return int.from_bytes(self._random(4), "big")

    def _reset(self) -> None:
        """Forget the connection."""
        self._stage = 0
        self._buffer = bytearray()
        self._waiting: list[bytes] = []
        self._hello = self._nonce = self._digest = self._secret = b""
        self._sent = self._may_send_to = self._taken = self._granted = 0
        self._heard_at = self._sent_at = 0.0
        self._pinged_at: float | None = None
        self._silence_s = 60
        self.is_attached = False

    # Stored state -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> bytes:
        """The state to store: it covers every item that :meth:`next_item` has returned, and unanswered events."""
        positions = dict(self._positions)
        for reader in self._readers:
            if reader.given is not None:
                positions[reader.key] = list(reader.given)
        unanswered = [[each[1], each[2], each[3]] for each in self._publishes]
        return pack([1, unanswered, positions, self.server])

    def _load(self, state: bytes) -> None:
        version, unanswered, self._positions, self.server = unpack(state)
        if version != 1:
            raise LightError("the stored state is of another version; begin without it")
        for epoch, number, event in unanswered:
            self._ticket += 1
            self._publishes.append([self._ticket, epoch, number, event, ""])
            # Another epoch would begin before all answers are known, and the server forgets those of earlier epochs.
            self._epoch, self._number = epoch, number

    # Requests of the application ----------------------------------------------------------------------------------

    def take(self) -> list[tuple[Any, ...]]:
        """Return the outputs since the last call."""
        out, self._out = self._out, []
        return out

    @property
    def has_room(self) -> bool:
        """True if another event may be published now."""
        return sum(len(each[3]) for each in self._publishes) < self.unanswered_bytes_max

    @property
    def unanswered(self) -> int:
        """Number of events and requests without an answer."""
        return len(self._publishes) + len(self._requests)

    def publish(self, subject: str, attributes: dict[str, Any], published_us: int | None, now: float) -> int:
        """Publish an event; return its ticket. It survives a reboot once :attr:`state` is stored."""
        if not self.has_room:
            raise LightError("too many events wait for their answer; wait until one is published")
        event = b"\x83" + pack("subject") + pack(subject) + pack("attributes") + pack(attributes)
        event += pack("published_us") + pack(published_us)
        self._ticket += 1
        self._number += 1
        self._publishes.append([self._ticket, self._epoch, self._number, event, ""])
        self._send_publishes(now)
        return self._ticket

    def subscribe(
        self,
        subject: str,
        expression: str,
        now: float,
        language: str = "eci",
        lifetime_s: float | None = None,
        restrictions: tuple[dict[str, Any], ...] = (),
        queue: dict[str, Any] | None = None,
        this_device_only: bool = False,
        since: dict[str, Any] | None = None,
    ) -> int:
        """Subscribe, and read; a subscription of the session with the same content goes on. Return the request."""
        content = [subject, expression, lifetime_s, list(restrictions), this_device_only, queue or {}, language, since]
        for known in self._readers:
            if known.content == content:
                raise LightError("this client reads that subscription already")
        self._handle += 1
        reader = ReadSubscription(self._handle, content, None)
        if reader.key in self._positions:
            epoch, number = self._positions[reader.key]
            reader.received = reader.given = reader.acked = (epoch, number)
        self._readers.append(reader)
        return self._ask(self._subscribe_message(reader, reader.acked), now, reader)

    def _subscribe_message(self, reader: ReadSubscription, resume: tuple[int, int] | None) -> list[Any]:
        subject, expression, lifetime_s, restrictions, is_bound, queue, language, since = reader.content
        message = [SUBSCRIBE, 0, subject, expression, lifetime_s, restrictions, is_bound, queue, None, language]
        message.extend(["event", reader.handle, resume, since, None, True])
        return message

    def unsubscribe(self, subscription: str, now: float) -> int:
        """End a subscription, and abandon what waits for it here."""
        self._readers = [each for each in self._readers if each.id != subscription]
        return self._ask([UNSUBSCRIBE, 0, subscription, True], now)

    def renew(self, subscription: str, lifetime_s: float | None, now: float) -> int:
        """Let a subscription end ``lifetime_s`` from now, or never."""
        return self._ask([RENEW, 0, subscription, lifetime_s], now)

    def restrict(self, subscription: str, restrictions: tuple[dict[str, Any], ...], now: float) -> int:
        """Replace the restrictions of a subscription."""
        return self._ask([RESTRICT, 0, subscription, list(restrictions)], now)

    def query(self, now: float) -> int:
        """Ask for the subscriptions of the session."""
        return self._ask([QUERY, 0], now)

    def leave(self, now: float) -> int:
        """Leave the session for good: it keeps nothing for this device."""
        return self._ask([LEAVE, 0], now)

    def _ask(self, message: list[Any], now: float, reader: ReadSubscription | None = None) -> int:
        self._request += 1
        message[1] = self._request
        self._requests.append([self._request, pack(message), [], reader])
        self._message(self._requests[-1][1], now)
        return self._request

    def next_item(self, now: float) -> Item | None:
        """Return the next item in order, None if none has arrived."""
        if not self._inbox:
            return None
        item = self._inbox.pop(0)
        for reader in item.readers:
            reader.given = item.position
        self._credit(item.size, now)
        return item

    def ack(self, now: float) -> None:
        """Acknowledge every item that :meth:`next_item` has returned: the server forgets them."""
        for reader in self._readers:
            if reader.given is not None and reader.given != reader.acked:
                reader.acked = reader.given
                if self.is_attached:
                    self._message(pack([ACK, reader.handle, reader.given[1]]), now)

    # The connection -----------------------------------------------------------------------------------------------

    def opened(self, certificate_digest: bytes, now: float) -> None:
        """Begin the login: TLS is established, with the certificate of this SHA-256."""
        self._reset()
        self._stage, self._digest, self._heard_at, self._pinged_at = HELLO, certificate_digest, now, now
        texts = [each.encode() for each in (self.user, self.device, self.session, self.server)]
        if max(map(len, texts)) > 255:
            raise LightError("user, device and session have at most 255 bytes")
        # What the application has not read yet is in the window of this connection, too.
        self._taken = -sum(each.size for each in self._inbox)
        self._granted = max(0, self._taken + self._window)
        self._hello = struct.pack(">B", 1) + self._random(16) + struct.pack(">I", self._granted)
        self._hello += b"".join(bytes([len(each)]) + each for each in texts)
        self._frame(HELLO, self._hello, now)

    def data(self, data: bytes, now: float) -> None:
        """Take bytes of the connection."""
        self._heard_at, self._pinged_at = now, None if self._stage == MESSAGE else self._pinged_at
        self._buffer += data
        try:
            while self._stage and len(self._buffer) >= 5:
                size = 4 + int.from_bytes(self._buffer[:4], "big")
                if not 5 <= size <= FRAME_BYTES_MAX:
                    raise LightError("the server sent a frame of a wrong length")
                if len(self._buffer) < size:
                    return
                kind, body = self._buffer[4], bytes(self._buffer[5:size])
                self._buffer = self._buffer[size:]
                self._on_frame(kind, body, now)
        except (LightError, IndexError, ValueError, TypeError, KeyError, struct.error) as error:
            self._out.append(("close", str(error) or "the server sent something malformed"))
            self._stage = 0

    def closed(self, now: float) -> None:
        """The connection is closed, or could not be opened."""
        if self._attached_at is not None and now - self._attached_at > 10.0:
            self._pause_s = RETRY_S_MIN
        self._attached_at = None
        self.connect_at = max(self.connect_at, now + self._pause_s)
        self._pause_s = min(RETRY_S_MAX, self._pause_s * 2)
        self._reset()

    @property
    def deadline(self) -> float | None:
        """Second at which :meth:`tick` is due, None for none."""
        if not self._stage:
            return None
        due = self._sent_at + self._silence_s
        if self._pinged_at is not None:
            due = min(due, self._pinged_at + LOGIN_S_MAX)
        elif self.unanswered:
            due = min(due, self._heard_at + LOGIN_S_MAX / 2)
        if self._retry_at:
            due = min(due, self._retry_at)
        return due

    def tick(self, now: float) -> None:
        """Do what is due: ask a silent server whether it is there, and publish again."""
        if not self._stage:
            return
        if self._pinged_at is not None and now >= self._pinged_at + LOGIN_S_MAX:
            self._stage = 0
            self._out.append(("close", "the server does not answer"))
            return
        is_waiting = self.unanswered and now >= self._heard_at + LOGIN_S_MAX / 2
        if (
            self._stage == MESSAGE
            and self._pinged_at is None
            and (is_waiting or now >= self._sent_at + self._silence_s)
        ):
            self._pinged_at = now
            self._frame(PING, b"", now)
        if self._retry_at and now >= self._retry_at:
            self._retry_at = 0.0
            self._send_again(now)

    def _frame(self, kind: int, body: bytes, now: float) -> None:
        self._sent_at = now
        self._out.append(("send", struct.pack(">IB", 1 + len(body), kind) + body))

    def _message(self, payload: bytes, now: float) -> None:
        """Send a message, or let it wait for the server's window."""
        if self._stage != MESSAGE:
            return
        self._waiting.append(payload)
        self._send_waiting(now)

    def _send_waiting(self, now: float) -> None:
        while self._waiting and self._sent < self._may_send_to:
            first = self._waiting.pop(0)
            self._sent += 5 + len(first)
            self._frame(MESSAGE, first, now)

    def _credit(self, size: int, now: float) -> None:
        """Let the server send ``size`` bytes more."""
        self._taken += size
        grant = self._taken + self._window
        if self._stage == MESSAGE and grant - self._granted >= self._window // 2:
            self._granted = grant
            self._frame(GRANT, struct.pack(">Q", grant), now)

    def _on_frame(self, kind: int, body: bytes, now: float) -> None:
        if kind == REFUSED:
            self._on_refused(body[0], struct.unpack(">H", body[1:3])[0], body[3:].decode(), now)
        elif kind == CHALLENGE and self._stage == HELLO:
            self._nonce, realm = body[:16], body[16:].decode()
            ha1 = hashlib.sha256(f"{self.user}:{realm}:{self._password}".encode()).digest()
            self._secret = "".join(f"{each:02x}" for each in ha1).encode()
            self._stage = PROOF
            self._frame(PROOF, self._proof(b"wanderbus light client 1"), now)
        elif kind == WELCOME and self._stage == PROOF:
            proof, self._may_send_to, _, silence_s = struct.unpack(">32sQIH", body)
            if proof != self._proof(b"wanderbus light server 1"):
                raise LightError("the server does not know the password: somebody else answers at its address")
            self._silence_s, self._stage, self._pinged_at = silence_s, MESSAGE, None
            self._begin(now)
        elif kind == MESSAGE and self._stage == MESSAGE:
            self._on_message(unpack(body), 5 + len(body), now)
        elif kind == GRANT and self._stage == MESSAGE:
            self._may_send_to = max(self._may_send_to, struct.unpack(">Q", body)[0])
            self._send_waiting(now)
        elif kind == PING and self._stage == MESSAGE:
            self._frame(PONG, b"", now)
        elif kind != PONG:
            raise LightError(f"the server sent frame type {kind} where it must not come")

    def _proof(self, role: bytes) -> bytes:
        return hmac_sha256(self._secret, role + self._nonce + self._digest + self._hello)

    def _on_refused(self, code: int, wait_s: int, reason: str, now: float) -> None:
        if code == WRONG:
            self._out.append(("fatal", reason))
        elif code == MOVED:
            self._out.append(("moved", reason))
        self.connect_at = now + wait_s
        self._out.append(("close", reason))
        self._stage = 0

    def _begin(self, now: float) -> None:
        """Attach to the session, read on, and send everything that has no answer."""
        self._credit(0, now)  # the application may have read on during the login
        received = [each.received for each in self._readers if each.received is not None and each.id]
        last = max(received) if received and self._epochs else None
        attach = [ATTACH, self._life, self.session, None, self._keep, False, False, last, self._seen, True, self.server]
        self._message(pack(attach), now)
        known = [[each.handle, each.id, each.acked] for each in self._readers if each.id]
        if known:
            self._message(pack([READ, known]), now)
        for request in self._requests:
            request[2] = []
            self._message(request[1], now)
        for reader in self._readers:
            if reader.id and reader.content[2] is None:
                self._ask(self._subscribe_message(reader, None), now, reader)
        for publish in self._publishes:
            publish[4] = ""
        self._retry_at = 0.0
        self._send_publishes(now)

    # Publishes ----------------------------------------------------------------------------------------------------

    def _send_publishes(self, now: float) -> None:
        """Send unsent events in order, unless one was refused for now."""
        if self._stage != MESSAGE or any(each[4] not in ("", "sent") for each in self._publishes):
            return
        for each in self._publishes[:64]:
            if each[4] == "":
                each[4] = "sent"
                self._message(pack([PUBLISH, each[2], Raw(each[3]), each[1]]), now)

    def _send_again(self, now: float) -> None:
        """Send refused events again once no answer is on its way; in another epoch if their numbers were used."""
        states = [each[4] for each in self._publishes]
        if "sent" in states:
            return
        if NUMBER_USED in states:
            self._epoch, self._number = self._new_epoch(), 0
            for each in self._publishes:
                self._number += 1
                each[1], each[2] = self._epoch, self._number
        for each in self._publishes:
            each[4] = ""
        self._send_publishes(now)

    def _on_publish_answer(self, message: list[Any], now: float) -> None:
        found = [each for each in self._publishes if each[2] == message[1] and each[4] == "sent"]
        if not found:
            return
        entry = found[0]
        if message[0] == ACCEPTED:
            self._publishes.remove(entry)
            self._retry_s = RETRY_S_MIN
            self._note_seen(message[2])
            self._out.append(("published", entry[0], tuple(message[2])))
        else:
            limit = message[3]
            if limit == NUMBER_USED or limit in TEMPORARY or "queue" in (limit or ""):
                entry[4] = limit
                if not self._retry_at:
                    self._retry_at = now if limit == NUMBER_USED else now + self._retry_s
                    self._retry_s = min(RETRY_S_MAX, self._retry_s * 2)
            else:
                self._publishes.remove(entry)
                self._out.append(("refused", entry[0], message[2], limit))
        if any(each[4] not in ("", "sent") for each in self._publishes):
            self._retry_at = self._retry_at or now + self._retry_s
        else:
            self._send_publishes(now)

    def _note_seen(self, identity: list[Any]) -> None:
        """Remember the highest id of each server, by which a server notices that its log was replaced by a copy."""
        known = [each for each in self._seen if each[0] == identity[0]]
        if known and known[0] >= identity:
            return
        self._seen = [each for each in self._seen if each[0] != identity[0]][1 - SEEN_MAX :]
        self._seen.append(identity)

    # Messages of the server ---------------------------------------------------------------------------------------

    def _on_message(self, message: list[Any], size: int, now: float) -> None:
        kind = message[0]
        if kind == ATTACHMENT:
            self._on_attachment(message, now)
        elif kind in (ACCEPTED, NOT_ACCEPTED):
            self._on_publish_answer(message, now)
        elif kind in (NOTIFY, NOTIFY_GAP):
            self._on_item(message, size, now)
        elif kind == DONE:
            self._on_done(message[1], message[2], len(message) > 3 and message[3], now)
        elif kind == NOT_DONE and message[1] == 0:
            self._out.append(("close", message[2]))
            self._stage = 0
        elif kind == NOT_DONE:
            self._on_not_done(message[1], message[2])
        elif kind == ENDED:
            self._readers = [each for each in self._readers if each.id != message[1]["id"]]
            self._out.append(("ended", message[1]["id"], message[2]))
        elif kind == WAIT:
            self.server = message[2] or self.server
            self._out.append(("wait", message[1]))

    def _on_attachment(self, message: list[Any], now: float) -> None:
        """Go on in the stream of the session, as far as it is the one of the known positions."""
        self._epochs = list(message[4])
        self._epochs.append([message[1], message[3]])
        self.server = message[7] or self.server
        self.is_attached, self._keep, self._attached_at = True, True, now
        for reader in self._readers:
            reader.received, reader.given, reader.acked = [
                None if each is None else self._in_common(each)
                for each in (reader.received, reader.given, reader.acked)
            ]
        self._out.append(("attached",))

    def _in_common(self, position: tuple[int, int]) -> tuple[int, int] | None:
        """Return the last position up to this one that is the same in the present stream."""
        epoch, number = position
        following = [first for each, first in self._epochs if each > epoch]
        if following:
            is_known = self._epochs[0][1] > 1 or any(each == epoch for each, _ in self._epochs)
            number = min(number, following[0] - 1) if is_known or number >= following[0] else 0
        elif self._epochs[-1][0] != epoch:
            number = 0
        return self._position(number) if number > 0 else None

    def _position(self, number: int) -> tuple[int, int]:
        epoch = self._epochs[0][0]
        for each, first in self._epochs:
            if first <= number:
                epoch = each
        return epoch, number

    def _on_item(self, message: list[Any], size: int, now: float) -> None:
        """Keep a notification or a gap for the application, unless it was received before."""
        if not self.is_attached:
            raise LightError("the server sent a notification before the attachment")
        is_gap = message[0] == NOTIFY_GAP
        number = message[2] if is_gap else message[1]
        handles = [message[4]] if is_gap else message[6]
        fresh = [
            each
            for each in self._readers
            if each.handle in handles and (each.received is None or each.received[1] < number)
        ]
        if not fresh:
            self._credit(size, now)
            return
        item = Item(self._position(number), [], size)
        item.readers = fresh
        if is_gap:
            received = 0 if fresh[0].received is None else fresh[0].received[1]
            total = sum(each[2] for each in message[3])
            item.lost = max(1, min(total, number - max(received, message[1] - 1)))
            item.subscriptions, item.reason = (
                [each[0] for each in message[3]],
                ", ".join(each[1] for each in message[3]),
            )
        else:
            item.id, item.subscriptions, item.redelivered = tuple(message[2]), message[4], message[5]
            event = message[3]
            item.subject, item.attributes = event["subject"], event["attributes"]
            item.published_us = event.get("published_us")
        for each in fresh:
            each.received = item.position
        self._inbox.append(item)

    def _on_done(self, request: int, subscriptions: list[Any], more: bool, now: float) -> None:
        for entry in self._requests:
            if entry[0] == request:
                entry[2] = entry[2] + subscriptions
                if more:
                    return
                self._requests.remove(entry)
                self.has_left = self.has_left or unpack(entry[1])[0] == LEAVE
                if entry[3] is not None:
                    self._on_subscribed(entry[3], entry[2][0]["id"])
                self._out.append(("answer", request, entry[2], ""))
                return

    def _on_subscribed(self, reader: ReadSubscription, identity: str) -> None:
        """Note the id of a subscription; another one than before means that it had ended meanwhile."""
        if reader.id and reader.id != identity:
            gap = Item(reader.received or (0, 0), [reader.id], 0)
            gap.lost, gap.reason, gap.readers = 1, "subscription_ended", []
            self._inbox.append(gap)
        reader.id = identity

    def _on_not_done(self, request: int, reason: str) -> None:
        for entry in self._requests:
            if entry[0] == request:
                self._requests.remove(entry)
                if entry[3] is not None and not entry[3].id:
                    self._readers.remove(entry[3])
                self._out.append(("answer", request, None, reason))
                return
