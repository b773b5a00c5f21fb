"""A broker with its operator's extensions: a kind of restriction, a queue policy and a hook for disconnections.

It starts a server of its own in a temporary directory. Run it with ``.venv/bin/python examples/extending.py``. A server
that runs with ``wanderbus up`` names the same objects in its settings, as docs/extending.md describes.
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

# The operator's code: pure functions of their arguments.


def moved_enough(parameters: Parameters, asked: Asked) -> bool:
    """Allow a notification if the price differs from the round price by at least ``by``."""
    price = float(asked.event.get("Price"))
    return abs(price - round(price)) >= float(parameters["by"])


def check_distance(parameters: Parameters) -> None:
    """Refuse a subscription without the number ``by``."""
    if not isinstance(parameters.get("by"), int | float):
        raise Refused("'moved_enough' needs a number 'by'")


MOVED_ENOUGH = Kind(moved_enough, check_distance)


def at_disconnection(change: DeviceChange) -> Handling | None:
    """Keep devices of the night shift for a month; use the default for others."""
    if change.change == "disconnected" and change.user.startswith("sip:night"):
        return Handling(grace_s=30 * 86_400.0)
    return None


def latest(queue: Queue) -> list[int]:
    """Drop all but the latest quote."""
    return [each.number for each in queue.newest[:-1]]


# The application's handling of outages of the broker.


class Patience:
    """Publishes quotes, and stores them on this device while the broker cannot be reached."""

    def __init__(self) -> None:
        self.is_away = asyncio.Event()
        self.is_back = asyncio.Event()

    async def on_disconnected(self, change: wanderbus.Disconnection) -> Literal["error"]:
        """Let requests fail at once during the outage."""
        print("the broker is away")
        self.is_away.set()
        return "error"

    async def on_reconnected(self, change: wanderbus.Disconnection) -> None:
        """Report the end of the outage."""
        print("the broker is back")
        self.is_back.set()


async def publish(alice: wanderbus.Agent, price: float) -> None:
    """Publish a quote at once, or through the outbox while the broker is unreachable."""
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
    """Let Bob receive prices far from a round price, also after an outage of the broker."""
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
        print(f"Bob receives {(await anext(quotes)).event['Price']:.2f}")
    await patience.is_away.wait()
    for price in (25.10, 25.60):
        await publish(alice, price)
    async with server(directory, port):
        await patience.is_back.wait()
        print(f"Bob receives {(await anext(quotes)).event['Price']:.2f}")
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
