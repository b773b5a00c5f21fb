"""Fuzzing of an agent's input from its broker: messages of the data channel, and rows of listings.

A conversation is a script of acts: messages of a lying broker, requests of the application, restarted connections. A
message may only raise :class:`RemoteProtocolError`; whatever arrives can be printed, is in order, and is bounded until
the application consumes it.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec

from fuzz.mutation import mutated
from fuzz.script import Act, acts_of, written
from fuzz.target_runs import Broken, Target
from wanderbus import event_text, protocol
from wanderbus.cli.operator import listings
from wanderbus.client.listed_rows import read_rows
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    AskBroker,
    EndReading,
    ItemArrived,
    PublishEvent,
    RequestSettled,
    SubscriptionOver,
)
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Event, EventId, Gap, Loss, Notification
from wanderbus.machine import Output
from wanderbus.operator_rows import QueueInfo, SessionInfo, SubscriptionInfo
from wanderbus.subscription import Subscription, instant_shown

MESSAGE, APPLICATION, RECONNECTION = range(3)
KINDS: Final[dict[str, Any]] = {"sessions": SessionInfo, "subscriptions": SubscriptionInfo, "queues": QueueInfo}
BYTES_MAX: Final = 65_507
UNTAKEN_BYTES_MAX: Final = 20_000
PROPERTIES: Final = AgentProperties(
    "sip:alice@example.org",
    ("192.0.2.1", 5060),
    "sip:broker@example.org",
    "phone",
    epoch=7,
    on_ended="renew",
    untaken_bytes_max=UNTAKEN_BYTES_MAX,
)
NUMBERS: Final = (0, 1, 2, 3, 4, -1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
_EVENT: Final = protocol.encode_event(Event("Trade", {"N": 1}))
NAMES: Final = ("wb-1", "wb-2", "", "\x1b[2J", "\u202e", "x" * 300)
TABLES: Final = {"sessions": listings.SESSIONS, "subscriptions": listings.SUBSCRIPTIONS, "queues": listings.QUEUES}


def make_conversation(random: Random) -> bytes:
    """Return a script in which an application requests and a broker responds, mostly correctly."""
    acts: list[Act] = [(APPLICATION, b"\x00"), (MESSAGE, protocol.encode(protocol.Attachment(1)))]
    acts.append((MESSAGE, protocol.encode(protocol.Done(1, (_subscription("wb-1"),)))))
    for _ in range(random.randint(1, 30)):
        drawn = random.random()
        if drawn < 0.2:
            acts.append((APPLICATION, random.randbytes(1)))
        elif drawn < 0.25:
            acts.append((RECONNECTION, b""))
        else:
            data = msgspec.msgpack.encode(_message(random))
            acts.append((MESSAGE, mutated(random, data, (data,)) if random.random() < 0.2 else data))
    script = written(acts)
    return (mutated(random, script, (script,)) if random.random() < 0.1 else script)[:BYTES_MAX]


def handle_conversation(script: bytes) -> bool:
    """Run an agent through it; return whether some message was accepted and none ended the connection."""
    life = _Life()
    for kind, body in acts_of(script):
        match kind % 3:
            case 0:
                life.hear(body)
            case 1:
                life.ask(body)
            case _:
                life.talk.opening()
    return life.heard > 0 and not life.ended


def make_rows(random: Random) -> bytes:
    """Return rows of a listing with a field or two changed."""
    what = random.choice(list(TABLES))
    row: dict[str, Any] = dict(ROWS[what])
    for _ in range(random.randint(0, 2)):
        row[random.choice([*row, "more"])] = _value(random, 4)
    if random.random() < 0.1:
        del row[random.choice(list(row))]
    data = msgspec.msgpack.encode([what, row])
    return mutated(random, data, (data,)) if random.random() < 0.1 else data


def handle_rows(data: bytes) -> bool:
    """Check a row and print it as the command line does."""
    try:
        what, row = msgspec.msgpack.decode(data, type=tuple[str, dict[str, Any]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if what not in TABLES:
        return False
    try:
        (listed,) = read_rows(KINDS[what], what, (row,))
    except RemoteProtocolError:
        return False
    wanted = listings.RowPatterns(what, TABLES[what], None, {})  # type: ignore[arg-type]
    lines = [event_text.escaped(str(column(listed))) for column in wanted.columns.values()]
    lines += [event_text.escaped(str(value)) for _, value in wanted.details(listed)]
    if not all(line.isprintable() for line in lines):
        raise Broken("a row steers the terminal")
    msgspec.json.encode(listed)
    return True


def examine_nothing(data: bytes) -> None:
    """Do nothing: everything was checked during the run."""


class _Life:
    """One agent, and what its application received."""

    def __init__(self) -> None:
        self.talk = Conversation(PROPERTIES)
        self.heard = 0
        self.ended = False
        self._asked = 0
        self._last: dict[tuple[str, int], int] = {}
        self._taken: dict[str, Any] = {}

    def hear(self, payload: bytes) -> None:
        try:
            outputs = self.talk.receive(payload)
        except RemoteProtocolError as error:
            if "\n" in str(error):
                raise Broken("an error is more than one line") from None
            self.ended = True
            self.talk.opening()
            return
        self.heard += 1
        for output in outputs:
            self._report(output)
        for unsent in self.talk.take_unsent():
            protocol.decode_from_agent(unsent)
        if self.talk._unacknowledged._bytes > UNTAKEN_BYTES_MAX:
            raise Broken("what was not taken has no bound")

    def ask(self, body: bytes) -> None:
        self._asked += 1
        number, drawn = self._asked, body[:1] or b"\0"
        match drawn[0] % 6:
            case 0:
                message: Any = protocol.Subscribe(number, "Trade", "", None, (), False)
                self.talk.send(AskBroker(message, reads=True))
            case 1:
                self.talk.send(AskBroker(protocol.Query(number)))
            case 2:
                self.talk.send(AskBroker(protocol.Inspect(number, "sessions", None)))
            case 3:
                self.talk.send(PublishEvent(number, _EVENT, number if drawn[0] > 99 else None))
            case 4:
                for subscription, position in self._taken.items():
                    self.talk.send(Acknowledge(subscription, position))
            case _:
                self.talk.send(EndReading("wb-1"))

    def _report(self, output: Output) -> None:
        match output:
            case ItemArrived(item=item, subscriptions=subscriptions):
                self._arrived(item, subscriptions)
            case RequestSettled(subscriptions=subscriptions):
                for each in subscriptions:
                    repr(each)
            case SubscriptionOver(subscription=subscription) if subscription.expires_us is not None:
                instant_shown(subscription.expires_us)

    def _arrived(self, item: Notification | Gap, subscriptions: tuple[str, ...]) -> None:
        if isinstance(item, Notification) and not event_text.write(item.event).isprintable():
            raise Broken("an event steers the terminal")
        for each in subscriptions:
            self._taken[each] = item.position


def _message(random: Random) -> Any:
    number = random.choice(NUMBERS) if random.random() < 0.3 else random.randint(1, 40)
    request = random.choice((-2, -1, 0, 1, 2, 3))
    one = _subscription(random.choice(NAMES), random.choice((None, *NUMBERS)))
    event = msgspec.Raw(msgspec.msgpack.encode(_event(random)))
    origin = EventId(random.choice(NAMES), 1, random.choice((number, 7)))
    reader = random.choice((1, 2, 99))
    match random.randrange(12):
        case 0:
            earlier = ((1, 1),) if random.random() < 0.3 else ()
            return protocol.Attachment(
                random.choice((1, 1, 2, random.choice(NUMBERS))), "", random.choice((1, 5)), earlier
            )
        case 1:
            return protocol.PublishAccepted(number, origin, random.random() < 0.5)
        case 2:
            limit = random.choice((None, "disk_full", "queue", "x"))
            return protocol.PublishRefused(number, "no", limit, random.random() < 0.5)
        case 3:
            loss = Loss(one.id, random.choice(NAMES), random.choice(NUMBERS))
            return protocol.NotifyGap(number, random.choice((number, 50)), (loss,) * random.randint(0, 3), reader)
        case 4:
            return protocol.Done(request, (one,) * random.choice((0, 1, 1, 2)), random.random() < 0.2)
        case 5:
            return protocol.RequestRefused(request, random.choice(NAMES), random.choice((None, *NUMBERS)))
        case 6:
            return protocol.SubscriptionEnded(one, random.choice(("expired", "unsubscribed", "discarded")))
        case 7:
            return protocol.Listing(request, ({"user": _value(random, 3)},), random.random() < 0.2, "x")
        case 8:
            return protocol.NotRead(one, number)
        case _:
            return protocol.Notify(number, origin, event, (one.id, "wb-1"), False, random.choice(((), (1,), (reader,))))


def _event(random: Random) -> Any:
    if random.random() < 0.1:
        return _value(random, 3)
    attributes = {random.choice(NAMES): _value(random, random.choice((0, 0, 2))) for _ in range(random.randint(0, 3))}
    return {
        "subject": random.choice(("Trade", *NAMES)),
        "attributes": attributes,
        "published_us": random.choice(NUMBERS),
    }


def _subscription(name: str, expires_us: int | None = None) -> Subscription:
    return Subscription(name, "sip:alice@example.org", "default", "Trade", "", expires_us)


def _value(random: Random, depth: int) -> Any:
    match random.randrange(9) if depth else random.randrange(6):
        case 0:
            return random.choice(NUMBERS)
        case 1:
            return random.choice((0.5, float("nan"), float("inf"), -0.0))
        case 2 | 3:
            return random.choice(NAMES)
        case 4:
            return random.choice((None, True, b"\xff"))
        case 5:
            return random.randbytes(random.randint(0, 8)).decode("latin-1")
        case 6:
            return [_value(random, depth - 1) for _ in range(random.randint(0, 3))]
        case 7:
            return {random.choice(NAMES): _value(random, depth - 1)}
        case _:
            value: Any = 1
            for _ in range(random.choice((20, 300))):
                value = [value]
            return value


_UNREAD: Final = {"subscription": "wb-1", "state": "not_read", "queued": 3, "oldest_s": 9.0, "blocked_s": None}
_WHOSE: Final = {"user": "sip:alice@example.org", "session": "default"}
ROWS: Final[dict[str, dict[str, Any]]] = {
    "sessions": {
        **_WHOSE,
        "status": "CONNECTED",
        "devices": [{"device": "d", "status": "CONNECTED", "address": None, "away_s": None, "reading": 1}],
        "subscriptions": 1,
        "queued": 3,
        "delivered": 4,
        "dropped": {"purged": 2},
        "unread": 1,
        "unread_subscriptions": [_UNREAD],
    },
    "subscriptions": {
        **_WHOSE,
        **_UNREAD,
        "subject": "Trade",
        "expression": "N > 1",
        "language": "eci",
        "expires_us": 10**15,
        "last_us": 10**15,
        "restrictions": [{"type": "frequency", "period_s": 1.0}],
    },
    "queues": {
        **_WHOSE,
        "notifications": 3,
        "queued_bytes": 99,
        "oldest_s": 9.0,
        "gaps": 1,
        "missing": 2,
        "notifications_max": 10,
        "bytes_max": None,
        "age_max_s": 1.5,
        "unread": 1,
        "unread_subscriptions": [_UNREAD],
    },
}

TARGETS: Final = (
    Target("agent-conversation", make_conversation, handle_conversation, examine_nothing),
    Target("agent-rows", make_rows, handle_rows, examine_nothing),
)
