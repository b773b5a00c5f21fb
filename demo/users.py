"""The travellers, their subscriptions, and the publisher.

Every traveller has several subscriptions, some of which overlap on purpose: an event that matches two of them is still
one notification. One traveller never moves, as the control.
"""

from __future__ import annotations

from dataclasses import dataclass

from demo import DOMAIN


@dataclass(frozen=True)
class User:
    """A user of the demonstration: name, subscriptions, and whether they ever change their address."""

    name: str
    subscriptions: tuple[str, ...]
    moves: bool = True

    @property
    def uri(self) -> str:
        """The user's canonical URI."""
        return f"sip:{self.name}@{DOMAIN}"


PUBLISHER = User("newyork", (), moves=False)

TRAVELLERS = (
    User("ana", ("(Dest == IAH) and (DepDelay > 30)", "Dest == IAH", "(Dest == ATL) and (Distance > 700)")),
    User("bruno", ("(Carrier == UA) and (DepDelay > 15)", "Dest == ORD")),
    User("clara", ("(Dest == LAX) or (Dest == SFO) or (Dest == SEA)", "Distance >= 2400")),
    User("davi", ("DepDelay > 60", "(DepDelay > 45) and (ArrDelay > 45)")),
    User("elena", ("(Carrier == B6) and ((Dest == MCO) or (Dest == FLL) or (Dest == PBI))", "ArrDelay < -30")),
    User("felix", ("SchedDep < 630", "(Origin == LGA) and (SchedDep >= 1800)", "not (DepDelay <= 120)")),
    User("gita", ('Carrier == "9E"', "(Carrier == EV) and (DepDelay > 20)", "not (ArrDelay <= 90)"), moves=False),
    User("hugo", ("(Dest == BOS) or (Dest == DCA)", "Distance < 200")),
)
