"""Airlines, each with a domain of its own: their servers, carriers, publishers and travellers.

The travellers want events of several airlines. In Europe each is served by the partner of their own airline: the
session goes with the traveller, and back home. One stays with the domain of their airline wherever they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from demo.users import User


@dataclass(frozen=True)
class Airline:
    """An airline: its domain, the hosts of its servers, its partner and its carriers.

    The first server is the gateway. ``partner`` is the domain that serves its travellers in Europe. The airline without
    carriers publishes the flights of all that no other airline has.
    """

    domain: str
    servers: tuple[str, ...]
    partner: str
    carriers: frozenset[str] = frozenset()

    @property
    def gateway(self) -> str:
        """Return the server that has the links to other domains."""
        return self.servers[0]


AIRLINES: Final = (
    Airline("delta.example", ("delta",), "jetblue.example", frozenset({"DL", "9E", "FL"})),
    Airline("jetblue.example", ("jetblue",), "united.example"),
    Airline("united.example", ("united1", "united2"), "delta.example", frozenset({"UA", "EV", "OO", "YV"})),
)
"""The airlines by the names of their domains: the last one is called by the gateways of all others."""

CUT_OFF: Final = AIRLINES[-1]
"""The airline whose gateway loses its links for a while."""

CARRIERS: Final = (
    *("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL"),
    *("HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"),
)
"""All carriers of the flights."""

HOME: Final = "at home"
EUROPE: Final = "in Europe"
PLACES: Final = (HOME, "aboard", EUROPE, "aboard")
"""Places of a traveller, in the order in which flights lead to them."""

PUBLISHERS: Final = tuple(
    User(f"{airline.domain.partition('.')[0]}-desk", moves=False, domain=airline.domain) for airline in AIRLINES
)
"""The publisher of each airline, in their order."""

_WISHES: Final = (
    User("ana", ("(Dest == IAH) or (Dest == ATL)", "Dest == IAH"), ("(Dest == IAH) and (ArrDelay > 30)",)),
    User("bruno", ("(Carrier == UA) and (DepDelay > 15)", "Dest == ORD"), ("(Carrier == DL) and (ArrDelay > 45)",)),
    User("clara", ("(Dest == LAX) or (Dest == SFO) or (Dest == SEA)", "Distance >= 2400"), ("Dest == SEA",)),
    User("davi", ("DepDelay > 60",), ("(DepDelay > 45) and (ArrDelay > 45)", "ArrDelay > 60")),
    User("elena", ("(Dest == MCO) or (Dest == FLL) or (Dest == PBI)",), ("ArrDelay < -30",)),
    User("gita", ("(Carrier == EV) and (DepDelay > 20)", 'Carrier == "9E"'), ("not (ArrDelay <= 90)",), moves=False),
)

TRAVELLERS: Final = tuple(
    replace(user, domain=AIRLINES[place % len(AIRLINES)].domain) for place, user in enumerate(_WISHES)
)
"""The travellers, of the airlines in turn."""


STAYS: Final = "elena"
"""Traveller who flies, and whose session stays with the domain of the own airline."""

SERVICES: Final[Mapping[tuple[str, str], str]] = {
    (user.name, place): domain
    for user in TRAVELLERS
    if user.moves and user.name != STAYS
    for airline in AIRLINES
    if airline.domain == user.domain
    for place, domain in ((HOME, airline.domain), (EUROPE, airline.partner))
}
"""Domain that serves each traveller at each place, for those who take their sessions with them."""


def airline_of(user: User) -> Airline:
    """Return the airline whose domain a user has."""
    return next(airline for airline in AIRLINES if airline.domain == user.domain)


def carriers_of(airline: Airline) -> frozenset[str]:
    """Return the carriers whose flights an airline publishes."""
    others = frozenset[str]().union(*(each.carriers for each in AIRLINES))
    return airline.carriers or frozenset(CARRIERS) - others


ORIGINS: Final = {carrier: airline.domain for airline in AIRLINES for carrier in carriers_of(airline)}
"""The domain that publishes the flights of each carrier."""
