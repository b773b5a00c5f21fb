"""Fuzzing of what other domains and their operators give: messages of gateways, circuits and filters, files and cards.

Readers raise only their declared errors, and accepted input is written and has to be read the same again. A gateway
with a lying neighbour never raises, keeps its bounds, and says nothing that an honest domain refuses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from fuzz.mutation import mutated
from fuzz.script import Act, acts_of, written
from fuzz.target_runs import Broken, Target
from wanderbus import protocol
from wanderbus.channels.interest import messages as interest
from wanderbus.channels.interest.messages import NumberedFilter, Stream
from wanderbus.errors import ConfigurationError, RemoteProtocolError
from wanderbus.event import Event, EventId
from wanderbus.federation import circuit_messages, wire
from wanderbus.federation.circuit_messages import CircuitClosed, CircuitMessage, CircuitOpened, InterestSent
from wanderbus.federation.domestic_interest import ReceivedTypes
from wanderbus.federation.gateway import Gateway
from wanderbus.federation.gateway_choice import link_name
from wanderbus.federation.imports import WAITING_MAX
from wanderbus.federation.messages import ForForeignLinks
from wanderbus.federation.methods import wire as methods
from wanderbus.federation.methods.wire import AnnouncedLink, LinkState, StreamCarried, TreeAdopted, TrustAnnounced
from wanderbus.federation.parameters import ForeignDomain
from wanderbus.federation.routing_messages import Neighbour, RoutingSettings
from wanderbus.federation.wire import EventForwarded, EventsLost, EventsTaken, FiltersSent
from wanderbus.peers.messages import CloseServerLink, SendOnServerLink, ServerLinkOpened, ServerMessageReceived
from wanderbus.rudp.keys import KeyPair
from wanderbus.runtime.files.federation_file import read_card
from wanderbus.settings.federation import Federation, FederationSettings
from wanderbus.settings.reading import make, read

NAMES: Final = ("alpha", "beta", "gamma", "a1", "b1", "x1", "", "x/T", "\x1b[2J", "x" * 300)
TYPES: Final = ("T", "U", "Secret", "")
NUMBERS: Final = (0, 1, 2, 3, 7, 1_280, 2**31, 2**51 - 1, 2**51, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -1)
EXPRESSIONS: Final = ("", "x == 1", "x > 2 && y == 'b'", "x >", "(" * 50)
BYTES_MAX: Final = 65_507

Decode = Callable[[bytes], Any]


def gateway_message(random: Random) -> bytes:
    """Return an approximate message of a gateway."""
    return _damaged(random, msgspec.msgpack.encode(_of_gateway(random)))


def circuit_message(random: Random) -> bytes:
    """Return an approximate message between a gateway and a server of its domain."""
    number, payload = random.choice(NUMBERS), random.randbytes(random.randint(0, 20))
    message = random.choice(
        (
            CircuitOpened(number, random.choice(NAMES)),
            CircuitMessage(number, payload),
            CircuitClosed(number, random.choice(NAMES)),
            InterestSent(payload),
        )
    )
    return _damaged(random, msgspec.msgpack.encode(message))


def filter_message(random: Random) -> bytes:
    """Return an approximate message about filters."""
    return _damaged(random, msgspec.msgpack.encode(_of_filters(random)))


def handle_message(decode: Decode, encode: Callable[[Any], bytes], data: bytes) -> bool:
    """Read a message, and write it."""
    try:
        message = decode(data)
    except RemoteProtocolError:
        return False
    if decode(encode(message)) != message:
        raise Broken("it is not read as it was written")
    return True


def examine_nothing(data: bytes) -> None:
    """Do nothing: everything was checked in handling."""


def _damaged(random: Random, data: bytes) -> bytes:
    return (mutated(random, data, (data,)) if random.random() < 0.5 else data)[:BYTES_MAX]


def _of_gateway(random: Random) -> wire.Message:
    server, numbers = random.choice(NAMES), [random.choice(NUMBERS) for _ in range(4)]
    match random.randrange(8):
        case 0 | 1 | 2:
            event = Event(random.choice(TYPES) or "T", {"x": random.randrange(4)})
            raw = protocol.encode_event(event) if random.random() < 0.9 else random.randbytes(9)
            identity = EventId(random.choice((server, random.choice(NAMES))), numbers[2], numbers[3])
            return EventForwarded(server, numbers[0], numbers[1], identity, msgspec.Raw(raw or b"\xc0"))
        case 3:
            return EventsLost(server, numbers[0], numbers[1], numbers[2], random.choice(NAMES))
        case 4:
            return EventsTaken(server, numbers[0], numbers[1])
        case _:
            return FiltersSent(msgspec.msgpack.encode(_of_filters(random)))


def _of_filters(random: Random) -> methods.DomainPayload:
    type, number, domain = random.choice(TYPES), random.choice(NUMBERS), random.choice(NAMES)
    match random.randrange(6):
        case 0:
            links = [AnnouncedLink(random.choice(NAMES), random.choice((0.0, 1.0, -1.0, 1e308)), True, True)]
            return LinkState(type, domain, number, random.choice(NUMBERS), tuple(links * random.randint(0, 2)))
        case 1:
            return TreeAdopted(type, number)
        case 2:
            trusted = methods.TrustedType(type, random.randbytes(2), random.randbytes(1))
            return TrustAnnounced(NAMES[: random.randint(0, 5)], (trusted,) * random.randint(0, 2))
        case _:
            return StreamCarried(random.choice((0, 1, 2, 3, 9, -1)), _of_stream(random))


def _of_stream(random: Random) -> interest.Message:
    stream = Stream(random.choice((0, 0, 0, 1, 2**63)), random.choice(("alpha", "alpha", "alpha", *NAMES)))
    first, second, third, fourth = random.choices(NUMBERS, k=4)
    filters = tuple(
        [
            NumberedFilter(random.choice(NUMBERS), random.choice((*TYPES, None)), random.choice(EXPRESSIONS))
            for _ in range(random.randint(0, 3))
        ]
    )
    match random.randrange(6):
        case 0:
            return interest.InterestPosition(stream, first, second, third)
        case 1:
            return interest.InterestChanged(stream, first, second, third, filters, (fourth,))
        case 2:
            return interest.InterestWhole(stream, first, second, filters)
        case 3:
            return interest.InterestConfirmed(stream, first, second)
        case 4:
            return interest.InterestRequested(stream, first, second)
        case _:
            return interest.InterestRefused(stream, first, second)


# A gateway with a neighbour that lies --------------------------------------------------------------------------------


def gateway_script(random: Random) -> bytes:
    """Return what a neighbour says to a gateway, with pauses."""
    acts: list[Act] = [
        (random.randrange(8), msgspec.msgpack.encode(_of_gateway(random))) for _ in range(random.randint(1, 6))
    ]
    script = written(acts)
    return (mutated(random, script, (script,)) if random.random() < 0.1 else script)[:BYTES_MAX]


def handle_gateway(script: bytes) -> bool:
    """Let alpha lie to a gateway of beta; return whether it was believed to the end."""
    gateway, now, link = _gateway(), 0.0, len("alpha")
    gateway.clock_read(1_000_000)
    gateway.start(now)
    for name in ("alpha", "gamma"):
        gateway.at_foreign_links(ServerLinkOpened(len(name), link_name(name, name[0] + "1"), name == "gamma"), now)
    is_closed = False
    for kind, body in acts_of(script):
        now += (0.0, 0.0, 0.1, 2.0)[kind % 4]
        report = ServerMessageReceived(link, link_name("alpha", "a1"), body)
        for output in gateway.at_foreign_links(report, now):
            match output:
                case ForForeignLinks(request=CloseServerLink(link=closed, reason=reason)):
                    if closed != link or not reason.isprintable() or len(reason) > 300:
                        raise Broken(f"link {closed} is closed: {reason}")
                    is_closed = True
                case ForForeignLinks(request=SendOnServerLink(payload=payload)):
                    _check_sent(payload)
        if is_closed:
            break
    msgspec.msgpack.encode(gateway.rows())
    if gateway.rows()["alpha"]["waiting"] > WAITING_MAX:
        raise Broken("too much waits")
    return not is_closed


def _check_sent(payload: bytes) -> None:
    message = wire.decode(payload)
    if isinstance(message, FiltersSent):
        methods.decode(message.payload)


def _gateway() -> Gateway:
    shared = frozenset({"T", "U"})
    routing = RoutingSettings(
        "beta",
        {each: Neighbour(shared, shared) for each in ("alpha", "gamma")},
        "multicast",
        {"U": "tree"},
    )
    domains = [ForeignDomain(each, (f"{each[0]}1",), shared, shared) for each in ("alpha", "gamma")]
    types = ReceivedTypes(shared, lambda subject: (subject,))
    links = itertools.count(1_000).__next__
    return Gateway("beta", "b1", ("b1",), ("b1",), domains, types, routing, links, 5)


# Files ----------------------------------------------------------------------------------------------------------------

_KEYS: Final = tuple(KeyPair(bytes([each] * 32)).public.hex() for each in range(1, 4))
_LINES: Final = (
    'method = "rendezvous"',
    "backbone = false",
    "[methods]",
    'T = "tree"',
    "[domains.'gamma.example']",
    f'public_key = "{_KEYS[2]}"',
    'gateways = { g1 = "192.0.2.3:5900" }',
    'receive = ["T", "*"]',
    "events_per_s_max = nan",
    "distance_ms = -1",
    "unknown = 1",
)


def federation_file(random: Random) -> bytes:
    """Return an approximate federation file."""
    lines = [
        'name = "beta.example"',
        f'public_key = "{_KEYS[0]}"',
        "[gateways]",
        'b1 = "192.0.2.1:5900"',
        '[domains."alpha.example"]',
        f'public_key = "{_KEYS[1]}"',
        'receive = ["T"]',
        'send = ["T", "U"]',
        '[domains."alpha.example".gateways]',
        'a1 = "192.0.2.2:5900"',
    ]
    for _ in range(random.choice((0, 0, 1, 3))):
        lines.insert(random.randint(0, len(lines)), random.choice(_LINES))
    return _mutated_text(random, lines)


def card(random: Random) -> bytes:
    """Return an approximate card of a domain."""
    lines = ['name = "alpha.example"', f'public_key = "{_KEYS[1]}"', "[gateways]", 'a1 = "192.0.2.2:5900"']
    return _mutated_text(random, lines)


def _mutated_text(random: Random, lines: Sequence[str]) -> bytes:
    data = "\n".join(lines).encode()
    return (mutated(random, data, (data, b"[domains]\n", b'"""')) if random.random() < 0.6 else data)[:BYTES_MAX]


def handle_file(data: bytes) -> bool:
    """Read a federation file."""
    try:
        text = data.decode()
        given = read(FederationSettings, text, Path("federation.toml"))
        federation = Federation(make(FederationSettings, given))
    except (ConfigurationError, UnicodeDecodeError):
        return False
    if not all(federation.method_of(each) for each in federation.types):
        raise Broken("a type has no method")
    return True


def handle_card(data: bytes) -> bool:
    """Read a card."""
    try:
        read_card(data.decode(), Path("alpha.card"))
    except (ConfigurationError, UnicodeDecodeError):
        return False
    return True


handle_gateway_message: Final = partial(handle_message, wire.decode, wire.encode)
handle_circuit_message: Final = partial(
    handle_message, circuit_messages.decode, lambda message: circuit_messages.encode(message)[1:]
)
handle_filter_message: Final = partial(handle_message, methods.decode, methods.encode)

TARGETS: Final = (
    Target("gateway-messages", gateway_message, handle_gateway_message, examine_nothing),
    Target("circuit-messages", circuit_message, handle_circuit_message, examine_nothing),
    Target("filter-messages", filter_message, handle_filter_message, examine_nothing),
    Target("gateway", gateway_script, handle_gateway, examine_nothing),
    Target("federation-file", federation_file, handle_file, examine_nothing),
    Target("federation-card", card, handle_card, examine_nothing),
)
