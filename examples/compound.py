"""A subscription to a compound event: a late arrival, and then a late departure of the same aircraft.

The server finds it; the subscriber gets one notification for both events. The program starts a server of its own in a
temporary directory. Run it with ``.venv/bin/python examples/compound.py``.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import wanderbus

PATTERN = """
pattern late_turnaround
by Tail
match A: Arrival (Delay > 30)
 then not C: Swap
 then B: Departure (Delay > 15)
within 2 hours
emit LateTurnaround with Tail = A.Tail, Arrival = A.Delay, Departure = B.Delay
"""


async def main(directory: Path) -> None:
    """Subscribe to late turnarounds, and publish those of three aircraft, one of which is swapped for another."""
    users = {"planner": "patience"}
    async with wanderbus.Server(domain="localhost", data_dir=directory / "data", users=users, port=0) as server:
        host, port = server.address
        async with (
            wanderbus.connect(
                "sip:planner@localhost", password="patience", server=f"{host}:{port}", state_dir=directory / "planner"
            ) as planner,
            planner.subscribe(pattern=PATTERN) as turnarounds,
        ):
            for tail, delay in (("N11150", 42), ("N627VA", 35), ("N3BYAA", 5)):
                await planner.publish("Arrival", {"Tail": tail, "Delay": delay})
            await planner.publish("Swap", {"Tail": "N627VA"})
            for tail, delay in (("N627VA", 20), ("N3BYAA", 20), ("N11150", 20)):
                await planner.publish("Departure", {"Tail": tail, "Delay": delay})
            found = (await anext(turnarounds)).event
            print(f"{found['Tail']} came {found['Arrival']} minutes late, and leaves {found['Departure']} late")
            took_part = found["events"]
            assert isinstance(took_part, list)
            print(len(took_part), "events took part")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary)))
