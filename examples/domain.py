"""Three servers as one event service: one order for everybody, or replies that never precede their causes.

Prices use the ordered model: subscribers at different servers see the same sequence, whoever publishes where. The chat
uses the decentralised model: servers send messages to each other directly, and an answer comes after its question.

It starts the servers in a temporary directory. Run it with ``.venv/bin/python examples/domain.py``.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import wanderbus

USERS = {"ana": "patience", "bob": "hunter2", "eve": "apples"}
SERVERS = ("s1", "s2", "s3")


def make_domain(directory: Path) -> Path:
    """Write the file of a domain of three servers, whose channel Chat is decentralised; return its path."""
    command = [sys.executable, "-m", "wanderbus", "domain", "init", str(directory), "--size", "3", "--port", "0"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    file = directory / "domain.toml"
    file.write_text(file.read_text() + '\n[channels.Chat]\nmodel = "decentralised"\n')
    return file


async def main(directory: Path) -> None:
    """Start three servers, connect a user to each, and use a channel of either model."""
    domain = make_domain(directory / "domain")
    async with AsyncExitStack() as stack:
        users = {}
        for server, (name, password) in zip(SERVERS, USERS.items(), strict=True):
            started = await stack.enter_async_context(
                wanderbus.Server(
                    domain="localhost",
                    data_dir=directory / server,
                    users=USERS,
                    port=0,
                    event_domain=domain,
                    event_server=server,
                )
            )
            host, port = started.address
            users[name] = wanderbus.connect(
                f"sip:{name}@localhost", password=password, server=f"{host}:{port}", state_dir=directory / name
            )
        ana, bob, eve = [await stack.enter_async_context(user) for user in users.values()]
        await one_order(ana, bob, eve)
        await answers(ana, bob, eve)


async def one_order(ana: wanderbus.Agent, bob: wanderbus.Agent, eve: wanderbus.Agent) -> None:
    """Two publish prices at different servers; two others see them in one order."""
    async with ana.subscribe("Price", "Price > 20") as hers, bob.subscribe("Price", "Price > 20") as his:
        await asyncio.gather(*(user.publish("Price", {"Price": price}) for user, price in ((ana, 24.9), (eve, 23.1))))
        seen = [[(await anext(prices)).event["Price"] for _ in range(2)] for prices in (hers, his)]
    print("the same order at both servers:", seen[0] == seen[1])


async def answers(ana: wanderbus.Agent, bob: wanderbus.Agent, eve: wanderbus.Agent) -> None:
    """Bob answers what Ana asks; Eve, at a third server, reads the question first."""
    async with bob.subscribe("Chat", "To == bob") as questions, eve.subscribe("Chat") as everything:
        await ana.publish("Chat", {"To": "bob", "Text": "Are you there?"})
        question = await anext(questions)
        await bob.publish("Chat", {"To": "ana", "Text": f"Yes. You asked: {question.event['Text']}"})
        for _ in range(2):
            print("eve reads:", (await anext(everything)).event["Text"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary)))
