"""A broker with code of its operator: a kind of restriction, a queue policy and a hook for disconnections.

It starts a server of its own in a temporary directory. Run it with ``.venv/bin/python examples/extending.py``. A server
that runs by ``wanderbus up`` names the same objects in its settings; docs/extending.md says how.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Literal

import wanderbus
from wanderbus.api.extending import Asked, DeviceChange, Handling, Kind, Parameters, Queue
from wanderbus.config import RudpConfig
from wanderbus.errors import Refused, Unreachable

# The operator's code: pure functions, which decide about what they are given and nothing else.


def moved_enough(parameters: Parameters, asked: Asked) -> bool:
    """Allow a notification for a price that differs from the round price by at least so much."""
    price = float(asked.event.get("Price"))
    return abs(price - round(price)) >= float(parameters["by"])


def check_distance(parameters: Parameters) -> None:
    """Refuse a subscription that does not say by how much."""
    if not isinstance(parameters.get("by"), int | float):
        raise Refused("'moved_enough' takes a number 'by'")


MOVED_ENOUGH = Kind(moved_enough, check_distance)


def at_disconnection(change: DeviceChange) -> Handling | None:
    """Let devices of the night shift be away for a month; for others everything is as always."""
    if change.change == "disconnected" and change.user.startswith("sip:night"):
        return Handling(grace_s=30 * 86_400.0)
    return None


def latest(queue: Queue) -> list[int]:
    """Let nothing wait but the latest quote."""
    return [each.number for each in queue.newest[:-1]]


# An application's own handling of the times without the broker.


class Patience:
    """Publishes quotes, and stores them on this device while the broker cannot be reached."""

    def __init__(self) -> None:
        self.is_away = asyncio.Event()
        self.is_back = asyncio.Event()

    async def on_disconnected(self, change: wanderbus.Disconnection) -> Literal["error"]:
        """Let what cannot wait fail at once from now on."""
        print("the broker is away")
        self.is_away.set()
        return "error"

    async def on_reconnected(self, change: wanderbus.Disconnection) -> None:
        """Say that it is over."""
        print("the broker is back")
        self.is_back.set()


async def publish(alice: wanderbus.Agent, price: float) -> None:
    """Publish a quote at once, or through the outbox if that cannot be."""
    try:
        await alice.publish("Quote", {"Price": price})
    except Unreachable:
        await alice.publish("Quote", {"Price": price}, outbox=True)
        print(f"stored {price:.2f}")


async def main() -> None:
    """Publish before, during and after an outage of the broker."""
    with tempfile.TemporaryDirectory() as directory:
        await run(Path(directory))


def server(directory: Path, port: int) -> wanderbus.Server:
    """Return a broker that runs the operator's code."""
    return wanderbus.Server(
        domain="localhost",
        data_dir=directory / "data",
        users={"alice": "secret", "night-bob": "hunter2"},
        port=port,
        restrictions={"moved_enough": MOVED_ENOUGH},
        policies={"latest": latest},
        hook=at_disconnection,
    )


async def run(directory: Path) -> None:
    """Let Bob hear of what is far from a round price, whatever becomes of the broker meanwhile."""
    patience = Patience()
    far = [wanderbus.Custom("moved_enough", {"by": 0.25})]
    async with server(directory, 0) as first:
        place, port = f"127.0.0.1:{first.address[1]}", first.address[1]
        alice = wanderbus.connect(
            "sip:alice@localhost",
            password="secret",
            server=place,
            state_dir=directory / "alice",
            keepalive_s=0.2,
            rudp=RudpConfig(initial_timeout_s=0.1, retries_max=2),
            on_disconnected=patience.on_disconnected,
            on_reconnected=patience.on_reconnected,
        )
        bob = bob_of(place, directory)
        await alice.__aenter__()
        await bob.__aenter__()
        reading = bob.subscribe("Quote", restrictions=far)
        quotes = await reading.__aenter__()
        for price in (24.00, 24.40):
            await publish(alice, price)
        print(f"Bob hears of {(await anext(quotes)).event['Price']:.2f}")
    await patience.is_away.wait()
    for price in (25.10, 25.60):
        await publish(alice, price)
    async with server(directory, port):
        await patience.is_back.wait()
        print(f"Bob hears of {(await anext(quotes)).event['Price']:.2f}")
        await reading.__aexit__(None, None, None)
        await bob.close()
        await overnight(alice, bob_of(place, directory), bob_of(place, directory))
        await alice.close()


def bob_of(place: str, directory: Path) -> wanderbus.Agent:
    """Return the agent of Bob, who works at night."""
    return wanderbus.connect("sip:night-bob@localhost", password="hunter2", server=place, state_dir=directory / "bob")


async def overnight(alice: wanderbus.Agent, evening: wanderbus.Agent, morning: wanderbus.Agent) -> None:
    """Let Bob find the latest quote in the morning, and no others."""
    policy = wanderbus.QueuePolicy(policy="latest")
    async with evening, evening.subscribe("Quote", "Price > 26", keep=True, queue=policy):
        pass
    for price in (26.10, 26.40, 26.70):
        await publish(alice, price)
    async with morning, morning.subscribe("Quote", "Price > 26", keep=True, queue=policy) as quotes:
        print(f"Bob finds {(await anext(quotes)).event['Price']:.2f}, the latest of 3")


if __name__ == "__main__":
    asyncio.run(main())
