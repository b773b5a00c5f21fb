"""Delivery is the same with the engine on Spark: the stories of ``tests/conformance``, with one session (SPEC T-06)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.api.world import World
from tests.conformance.conditions import Conditions
from tests.conformance.delivery import Delivery
from tests.spark.engine.running import running_engine
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.segments import HIGH_WATER

pytestmark = pytest.mark.integration


class EngineOnSpark:
    """The engine on Spark in this process."""

    subjects: tuple[str, ...] = ("*",)
    quiet_s = 0.5

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._running = ExitStack()

    def start(self, data_dir: Path) -> None:
        """Run it; the engine needs a log, so one without records is made if the server has not been started yet."""
        if not (data_dir / "log" / HIGH_WATER).exists():
            ServerFiles.open(data_dir).close()
        self._running.enter_context(running_engine(self._spark, data_dir))

    def kill(self) -> None:
        """End the query in the middle of its batch, and lose the matches that the server has not got."""
        self._running.close()


@pytest.fixture
def conditions(world: World, spark: SparkSession) -> Iterator[Conditions]:
    """A server with the engine."""
    made = Conditions(world, EngineOnSpark(spark))
    yield made
    made.kill_engine()


class TestDelivery(Delivery):
    """The engine on Spark."""
