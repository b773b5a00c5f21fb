"""The travellers, their subscriptions, and the publisher.

Every traveller has several subscriptions, some of which overlap on purpose: an event that matches two of them is still
one notification. One traveller never moves, as the control.
"""

from __future__ import annotations

from dataclasses import dataclass

from demo import ARRIVAL, DEPARTURE, DOMAIN


@dataclass(frozen=True)
class User:
    """A user of the demonstration: name, filters of departures and of arrivals, whether they ever move, and domain."""

    name: str
    departures: tuple[str, ...] = ()
    arrivals: tuple[str, ...] = ()
    moves: bool = True
    domain: str = DOMAIN

    @property
    def uri(self) -> str:
        """The user's canonical URI."""
        return f"sip:{self.name}@{self.domain}"

    @property
    def broker(self) -> str:
        """Return the address of record of the broker of their domain."""
        return broker_of(self.domain)

    @property
    def subscriptions(self) -> list[tuple[str, str]]:
        """Subject and filter of each subscription."""
        return [
            *((DEPARTURE, text) for text in self.departures),
            *((ARRIVAL, text) for text in self.arrivals),
        ]


def broker_of(domain: str) -> str:
    """Return the address of record of the broker of a domain."""
    return f"sip:broker@{domain}"


PUBLISHER = User("newyork", moves=False)

TRAVELLERS = (
    User(
        "ana",
        ("(Dest == IAH) and (DepDelay > 30)", "Dest == IAH", "(Dest == ATL) and (Distance > 700)"),
        ("(Dest == IAH) and (ArrDelay > 30)",),
    ),
    User("bruno", ("(Carrier == UA) and (DepDelay > 15)", "Dest == ORD"), ("(Carrier == UA) and (ArrDelay > 45)",)),
    User("clara", ("(Dest == LAX) or (Dest == SFO) or (Dest == SEA)", "Distance >= 2400"), ("Dest == SEA",)),
    User("davi", ("DepDelay > 60",), ("(DepDelay > 45) and (ArrDelay > 45)", "ArrDelay > 60")),
    User("elena", ("(Carrier == B6) and ((Dest == MCO) or (Dest == FLL) or (Dest == PBI))",), ("ArrDelay < -30",)),
    User("felix", ("SchedDep < 630", "(Origin == LGA) and (SchedDep >= 1800)", "not (DepDelay <= 120)")),
    User("gita", ('Carrier == "9E"', "(Carrier == EV) and (DepDelay > 20)"), ("not (ArrDelay <= 90)",), moves=False),
    User("hugo", ("(Dest == BOS) or (Dest == DCA)", "Distance < 200"), ("(Dest == BOS) and (ArrDelay <= 0)",)),
)
