"""Lies of a foreign domain, as bytes for the links of its gateway: about events, filters, paths, and what it took."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import msgspec

from harness.absent_domain import ABSENT
from hostile.attack import DOMAIN
from hostile.neighbours import LIAR, RECEIVED, SECRET, SENT
from wanderbus import protocol
from wanderbus.channels.interest.messages import (
    InterestChanged,
    InterestRefused,
    InterestWhole,
    NumberedFilter,
    Stream,
)
from wanderbus.event import Event, EventId
from wanderbus.federation.methods.filter_bounds import FILTERS_MAX
from wanderbus.federation.methods.wire import (
    EPOCH_MAX,
    LINK_STATES_MAX,
    AnnouncedLink,
    LinkState,
    StreamCarried,
    TreeAdopted,
)
from wanderbus.federation.methods.wire import encode as encode_filters
from wanderbus.federation.routed.messages import (
    ROUTED_PREFIX,
    LinkId,
    Passed,
    PassedTaken,
    RoutedAnswered,
    RoutedCalled,
    RoutedCarried,
    StateAnnounced,
    encode_end,
    encode_hop,
)
from wanderbus.federation.wire import EventForwarded, EventsLost, EventsTaken, FiltersSent, encode
from wanderbus.limits import NUMBER_MAX

FLOOD_EVENTS: Final = 50
"""Events of one lie of a flood."""

LIFE: Final = 256
"""Life of a gateway that may be, as link states number it."""

REMEMBERED: Final = 200
SERVERS: Final = 40
"""Servers that the liar invents; more than 256 would close the link."""

Kind = Callable[[], list[bytes]]


class DomainLies:
    """Makes the lies. Every invented event has the attribute ``Forged``."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._numbers = itertools.count(1)
        self._versions = itertools.count(100)
        self._said: deque[bytes] = deque(maxlen=REMEMBERED)
        events = (self._rumours, self._others_events, self._flood, self._replays)
        rest = (self._acknowledgements, self._losses, self._claims, self._lives, self._paths, self._neighbours)
        self._quiet: Iterator[Kind] = itertools.cycle((*events, *rest))
        self._loud: Iterator[Kind] = itertools.cycle(
            (self._noise, self._strangers, self._servers, self._names, self._filters, self._detours)
        )

    def quiet(self) -> list[bytes]:
        """Return the next lies that can be ignored."""
        found = next(self._quiet)()
        self._said += found
        return found

    def loud(self) -> list[bytes]:
        """Return the next lies that close the link."""
        return next(self._loud)()

    def _event(self, subject: str, server: str = "x1", origin: str = "", number: int = 0) -> bytes:
        number = number or next(self._numbers)
        # Good agents read such attributes, if the event comes to them.
        event = Event(subject, {"By": "alice", "Number": number, "At": 0.0, "Forged": True})
        identity = EventId(origin or server, 5, number)
        return encode(EventForwarded(server, 9, number, identity, msgspec.Raw(protocol.encode_event(event))))

    # Quiet lies --------------------------------------------------------------------------------------------------

    def _rumours(self) -> list[bytes]:
        """Publish what it may publish, as servers that there are not."""
        return [self._event(RECEIVED, f"x{self._random.randrange(SERVERS)}") for _ in range(3)]

    def _others_events(self) -> list[bytes]:
        """Publish types that it may not, under ids of the honest domain and of a third one."""
        origins = (DOMAIN, "default", ABSENT, f"{ABSENT}_g1", "g1")
        return [self._event(subject, origin=origin[:30]) for subject in (SENT, SECRET) for origin in origins]

    def _flood(self) -> list[bytes]:
        return [self._event(RECEIVED, "x1") for _ in range(FLOOD_EVENTS)]

    def _replays(self) -> list[bytes]:
        return self._random.choices(list(self._said) or [self._event(RECEIVED)], k=20)

    def _acknowledgements(self) -> list[bytes]:
        """Acknowledge everything that was ever sent, and what never was."""
        return [encode(EventsTaken(server, NUMBER_MAX, NUMBER_MAX)) for server in ("default", "g1", "x1", ABSENT)]

    def _losses(self) -> list[bytes]:
        return [encode(EventsLost("x1", 9, next(self._numbers), NUMBER_MAX, "because\n" * 1_000))]

    def _claims(self) -> list[bytes]:
        """Want everything, also of types that are not sent there."""
        wanted = [NumberedFilter(number, subject, "") for number, subject in enumerate((SENT, RECEIVED, SECRET), 1)]
        stream, version = Stream(0, LIAR), next(self._versions)
        changed = InterestChanged(stream, EPOCH_MAX, version + 9, version + 8, (), ())
        return [_carried(InterestWhole(stream, EPOCH_MAX, version, tuple(wanted))), _carried(changed)]

    def _lives(self) -> list[bytes]:
        return [_carried(InterestRefused(Stream(0, DOMAIN), 1_000 * next(self._versions), 1))]

    def _paths(self) -> list[bytes]:
        """Lie about the trees of types: who is how near to whom."""
        states: list[LinkState | TreeAdopted] = [
            LinkState(RECEIVED, DOMAIN, LIFE, LINK_STATES_MAX, ()),
            TreeAdopted(RECEIVED, 2**63),
            TreeAdopted(SENT, self._random.getrandbits(60)),
        ]
        return [encode(FiltersSent(encode_filters(each))) for each in states]

    def _neighbours(self) -> list[bytes]:
        """Claim to be beside a third domain, and speak for it from the other end of a link that would pass here."""
        number = next(self._versions)
        beside = {LIAR: (DOMAIN, ABSENT), ABSENT: (LIAR,)}
        states = [
            LinkState(RECEIVED, origin, LIFE, number, tuple([AnnouncedLink(each, 0.0, True, True) for each in others]))
            for origin, others in beside.items()
        ]
        identity = LinkId(9, next(self._numbers))
        said = (RoutedCalled(identity), RoutedAnswered(identity), RoutedCarried(identity, 1, self._event(RECEIVED)))
        passed = [encode_hop(Passed(RECEIVED, (ABSENT, LIAR, DOMAIN), 2, encode_end(each))) for each in said]
        announced = [encode_hop(StateAnnounced(encode_filters(each))) for each in states]
        return [*announced, *passed, encode_hop(PassedTaken(NUMBER_MAX))]

    # Loud lies ---------------------------------------------------------------------------------------------------

    def _noise(self) -> list[bytes]:
        return [self._random.choice((b"", b"\xff\x00", self._random.randbytes(60), self._event(RECEIVED)[:-3]))]

    def _strangers(self) -> list[bytes]:
        """Speak for others: their filters, their lives, and paths of theirs that nobody could have."""
        whole = InterestWhole(Stream(0, ABSENT), EPOCH_MAX, 100, (NumberedFilter(1, RECEIVED, ""),))
        last = InterestRefused(Stream(0, DOMAIN), EPOCH_MAX, 1)
        path = encode(FiltersSent(encode_filters(LinkState(RECEIVED, ABSENT, EPOCH_MAX, 1, ()))))
        return [self._random.choice((_carried(whole), _carried(last), path))]

    def _detours(self) -> list[bytes]:
        """Pass on what cannot have come here, and what is no message."""
        end = encode_end(RoutedCalled(LinkId(9, 1)))
        paths = (ABSENT, DOMAIN, LIAR), (LIAR, ABSENT, DOMAIN), (LIAR, DOMAIN, LIAR)
        passed = [encode_hop(Passed(RECEIVED, path, 2, end)) for path in paths]
        return [self._random.choice((*passed, ROUTED_PREFIX + b"\xc1"))]

    def _servers(self) -> list[bytes]:
        """Name more servers than a domain can have."""
        return [self._event(RECEIVED, f"y{number}") for number in range(300)]

    def _names(self) -> list[bytes]:
        """Name a server by two lines."""
        return [self._event(RECEIVED, "x1\nERROR")]

    def _filters(self) -> list[bytes]:
        several = tuple([NumberedFilter(each, SENT, f"Number == {each}") for each in range(FILTERS_MAX + 1)])
        return [_carried(InterestWhole(Stream(0, LIAR), EPOCH_MAX, next(self._versions), several))]


def _carried(message: Any) -> bytes:
    return encode(FiltersSent(encode_filters(StreamCarried(0, message))))
