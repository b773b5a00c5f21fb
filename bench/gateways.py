"""Cost of what stands beside the event path of a server: scrapes of its metrics, and lightweight clients.

``metrics`` lets a thousand users leave a session each, and compares turns with a scrape each second with turns without.
``metrics_cost_share`` is the processor time of the server that a second of scrapes takes: events lose that share of its
only loop. Publishing meanwhile would hide it: its own time differs by more from turn to turn.

``lightweight`` compares the lightweight client with paho-mqtt (:mod:`bench.gateways_light`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from bench.broker_ours import connected, running
from bench.broker_peer import Place
from bench.gateways_light import lightweight
from bench.sections import Measured, measure_sections, section_options
from harness.ports import free_port
from harness.process_figures import processor_s
from harness.reporting import goal

COST_SHARE_MAX: Final = 0.03


class Size(argparse.Namespace):
    """Size of a run: sessions at the server, turns with scrapes and without, and seconds of each."""

    sessions: int = 1_000
    turns: int = 6
    turn_s: float = 10.0
    events: int = 2_000
    """Events of a lightweight client."""


SECTIONS: Final = ("metrics", "lightweight")


async def _turn(place: Place, seconds: float) -> float:
    """Return the processor time of the server in a second, over so many seconds."""
    before_s, began_s = processor_s([place["pid"]]), time.monotonic()
    await asyncio.sleep(seconds)
    return (processor_s([place["pid"]]) - before_s) / (time.monotonic() - began_s)


@contextlib.asynccontextmanager
async def _scraped(url: str) -> AsyncIterator[None]:
    """Scrape a server each second, from the beginning on."""

    def scrape() -> None:
        with urllib.request.urlopen(url, timeout=10) as answer:
            answer.read()

    async def each_second() -> None:
        while True:
            await asyncio.to_thread(scrape)
            await asyncio.sleep(1.0)

    scraping = asyncio.create_task(each_second())
    try:
        yield
    finally:
        scraping.cancel()
        await asyncio.gather(scraping, return_exceptions=True)


async def _metrics(size: Size, directory: Path) -> tuple[Sequence[float], Sequence[float]]:
    """Return the processor times in a second, of the turns without scrapes and of those with."""
    users = [f"user{number}" for number in range(size.sessions)]
    address = f"127.0.0.1:{free_port()}"
    plain: list[float] = []
    scraped: list[float] = []
    with running(directory, users, "--http", address) as place:
        for user in users:
            async with connected(place, user) as agent, agent.subscribe("Departure", keep=True):
                pass
        for _ in range(size.turns):
            plain.append(await _turn(place, size.turn_s))
            async with _scraped(f"http://{address}/metrics"):
                scraped.append(await _turn(place, size.turn_s))
    return plain, scraped


def metrics(size: Size) -> Measured:
    """Measure what a scrape each second costs."""
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as directory:
        plain, scraped = asyncio.run(_metrics(size, Path(directory)))
    share = statistics.median(after - before for before, after in zip(plain, scraped, strict=True))
    results = [
        {"measured": "server_cpu_s_per_s", "scrapes_per_s": 0, "value": statistics.median(plain)},
        {"measured": "server_cpu_s_per_s", "scrapes_per_s": 1, "value": statistics.median(scraped)},
    ]
    return results, [goal("metrics_cost_share", share, "", most=COST_SHARE_MAX)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    parser = section_options(
        "gateways",
        __doc__,
        SECTIONS,
        quick="a hundred sessions, two turns of two seconds, and 200 events",
        example="example: ./do bench gateways --sections metrics --json gateways.json",
    )
    options = parser.parse_args(arguments)
    size = Size(sessions=100, turns=2, turn_s=2.0, events=200) if options.quick else Size()
    measures = {"metrics": metrics, "lightweight": lambda size: lightweight(size.events)}
    return measure_sections("gateways", measures, size, options)
