"""Requests to the matching engine, in a thread beside the event loop (SPEC T-06)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from wanderbus.broker.messages import MatchesWanted
from wanderbus.machine import Input
from wanderbus.runtime.services.remote_engine import RemoteEngine
from wanderbus.server.answer_thread import AnswerThread


def engine_command(data_dir: Path) -> list[str]:
    """Return the command of the matching engine on Spark beside the server in ``data_dir``."""
    return [sys.executable, "-m", "wanderbus", "pipeline", "engine", str(data_dir), "--until-stdin-ends"]


class EngineReading:
    """Feeds the answers of ``engine`` to the broker."""

    def __init__(self, engine: RemoteEngine, feed: Callable[[Input], None]) -> None:
        self._engine = engine
        self._thread = AnswerThread("wanderbus-engine", feed)

    def read(self, wanted: MatchesWanted) -> None:
        """Feed the matches that are wanted."""
        self._thread.ask(partial(self._engine.read, wanted))

    def close(self) -> None:
        """Feed nothing from now on."""
        self._thread.close()
        self._engine.close()
