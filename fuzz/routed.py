"""Fuzzing of what other domains say of links that go through several domains (SPEC M-04).

A neighbour that lies makes no gateway raise. What the gateway passes on, or says itself, an honest domain takes.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

import msgspec

from fuzz.federation import examine_nothing, handle_message
from fuzz.mutation import mutated
from fuzz.script import Act, acts_of, written
from fuzz.target_runs import Broken, Target
from wanderbus.federation.gateway_choice import link_name
from wanderbus.federation.methods import wire as methods
from wanderbus.federation.methods.wire import AnnouncedLink, LinkState
from wanderbus.federation.routed.links import RoutedLinks
from wanderbus.federation.routed.messages import (
    ROUTED_PREFIX,
    EndMessage,
    HopMessage,
    LinkId,
    Passed,
    PassedTaken,
    RoutedAnswered,
    RoutedCalled,
    RoutedCarried,
    RoutedEnded,
    RoutedProbed,
    StateAnnounced,
    decode_end,
    decode_hop,
    encode_end,
    encode_hop,
)
from wanderbus.federation.routed.outputs import ForSharedLinks, RoutedOutput
from wanderbus.federation.routing_messages import Neighbour, RoutingSettings
from wanderbus.peers.messages import CloseServerLink, SendOnServerLink, ServerLinkOpened, ServerMessageReceived

NAMES: Final = ("alpha", "beta", "gamma", "delta", "omega", "", "x" * 300)
PATHS: Final = (
    ("alpha", "beta", "gamma"),
    ("gamma", "alpha", "beta"),
    ("omega", "alpha", "beta"),
    ("omega", "alpha", "beta", "gamma"),
    ("alpha", "beta", "alpha"),
)
NUMBERS: Final = (0, 1, 2, 3, 255, 1_280, 2**51 - 1, 2**63 - 1, 2**63, -1)
BYTES_MAX: Final = 65_507


def routed_message(random: Random) -> bytes:
    """Return an approximate message between two gateways, without the prefix."""
    message = encode_hop(_hop(random))[len(ROUTED_PREFIX) :]
    return (mutated(random, message, (message,)) if random.random() < 0.5 else message)[:BYTES_MAX]


def routed_script(random: Random) -> bytes:
    """Return what a neighbour says to a gateway, with pauses."""
    acts: list[Act] = [(random.randrange(8), encode_hop(_hop(random))) for _ in range(random.randint(1, 8))]
    script = written(acts)
    return (mutated(random, script, (script,)) if random.random() < 0.1 else script)[:BYTES_MAX]


def _hop(random: Random) -> HopMessage:
    match random.randrange(5):
        case 0 | 1:
            links = [AnnouncedLink(random.choice(NAMES), random.choice((0.0, 1.0, -1.0)), True, True) for _ in "ab"]
            number, chosen = random.choice(NUMBERS[:-2]), tuple(links[: random.randint(0, 2)])
            state = LinkState(random.choice("TU"), random.choice(NAMES), number, random.choice((1, 2, 3)), chosen)
            return StateAnnounced(methods.encode(state) if random.random() < 0.9 else random.randbytes(9))
        case 2:
            return PassedTaken(random.choice(NUMBERS[:-1]))
        case _:
            path, place = random.choice(PATHS), random.choice((1, 1, 2, 3))
            payload = encode_end(_end(random)) if random.random() < 0.9 else random.randbytes(9)
            return Passed(random.choice("TTTU"), path, place, payload)


def _end(random: Random) -> EndMessage:
    identity = LinkId(random.choice((1, 256)), random.choice((1, 2)))
    number, other = random.choice(NUMBERS[:5]), random.choice(NUMBERS[:5])
    return random.choice(
        (
            RoutedCalled(identity),
            RoutedAnswered(identity),
            RoutedCarried(identity, number, random.randbytes(20)),
            RoutedProbed(identity, number, other),
            RoutedEnded(identity, "\x1b[2J"),
        )
    )


def handle_routed(script: bytes) -> bool:
    """Let alpha lie to beta, which is between it and gamma; return whether it was believed to the end."""
    shared = Neighbour(frozenset("T"), frozenset("T"))
    settings = RoutingSettings("beta", {each: shared for each in NAMES[:5] if each != "beta"}, "tree")
    routed, now = RoutedLinks(settings, 1, 0), 0.0
    for number, name in ((1, "alpha"), (3, "gamma")):
        _check(routed.at_links(ServerLinkOpened(number, link_name(name, "g"), is_ours=name > "beta"), now))
    for kind, body in acts_of(script):
        now += (0.0, 0.0, 0.3, 2.0)[kind % 4]
        is_believed = _check(routed.timer_fired(now))
        if body.startswith(ROUTED_PREFIX):
            is_believed &= _check(routed.at_links(ServerMessageReceived(1, link_name("alpha", "g"), body), now))
        if not is_believed:
            return False
    return True


def _check(outputs: list[RoutedOutput]) -> bool:
    """Check what beta sends; return whether it keeps its links."""
    for output in outputs:
        match output:
            case ForSharedLinks(request=CloseServerLink(link=link, reason=reason)):
                if link != 1 or not reason.isprintable() or len(reason) > 300:
                    raise Broken(f"link {link} is closed: {reason}")
                return False
            case ForSharedLinks(request=SendOnServerLink(payload=payload)):
                message = decode_hop(payload[len(ROUTED_PREFIX) :])
                if isinstance(message, Passed) and len(set(message.path)) < len(message.path):
                    raise Broken(f"a message goes round: {message.path}")
    return True


def _encode_hop(message: HopMessage) -> bytes:
    return encode_hop(message)[len(ROUTED_PREFIX) :]


def end_message(random: Random) -> bytes:
    """Return an approximate message between the ends of a routed link."""
    message = encode_end(_end(random))
    return mutated(random, message, (message, msgspec.msgpack.encode(NUMBERS))) if random.random() < 0.5 else message


TARGETS: Final = (
    Target("routed-messages", routed_message, partial(handle_message, decode_hop, _encode_hop), examine_nothing),
    Target("routed-ends", end_message, partial(handle_message, decode_end, encode_end), examine_nothing),
    Target("routed-links", routed_script, handle_routed, examine_nothing),
)
