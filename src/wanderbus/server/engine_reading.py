"""Requests to the matching engine, in a thread beside the event loop (SPEC T-06)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wanderbus.broker.messages import MatchesRead, MatchesWanted
from wanderbus.machine import Input
from wanderbus.runtime.services.remote_engine import RemoteEngine


def engine_command(data_dir: Path) -> list[str]:
    """Return the command of the matching engine on Spark beside the server in ``data_dir``."""
    return [sys.executable, "-m", "wanderbus", "pipeline", "engine", str(data_dir), "--until-stdin-ends"]


class EngineReading:
    """Feeds the answers of ``engine`` to the broker."""

    def __init__(self, engine: RemoteEngine, feed: Callable[[Input], None]) -> None:
        self._engine = engine
        self._feed = feed
        self._executor = ThreadPoolExecutor(1, "wanderbus-engine")
        self._is_closed = False

    def read(self, wanted: MatchesWanted) -> None:
        """Feed the matches that are wanted."""
        coming = asyncio.get_running_loop().run_in_executor(self._executor, self._engine.read, wanted)
        coming.add_done_callback(self._answer)

    def close(self) -> None:
        """Feed nothing from now on."""
        self._is_closed = True
        self._engine.close()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _answer(self, done: asyncio.Future[MatchesRead]) -> None:
        if not self._is_closed and not done.cancelled():
            self._feed(done.result())
